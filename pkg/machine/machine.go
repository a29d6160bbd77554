// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/quota"
)

// Inventory chooses servers. *hosts.Inventory is the one.
type Inventory interface {
	// Choose picks a host and assumes it for the Machine. The error is a *hosts.NoHostError if there is none.
	Choose(hosts.Request) (hosts.Choice, error)
	// Recall describes a host as the choice of that type, which must exist.
	Recall(host *bmov1alpha1.BareMetalHost, nodeType string) (hosts.Choice, bool)
	// Forget ends the assumption.
	Forget(host types.NamespacedName, machine types.UID)
	// Synced is true once every host and type has been taken in.
	Synced() bool
	// WaitForSync blocks until Synced is true or the context ends.
	WaitForSync(context.Context) error
	// SetHost takes in a host that has just been written, before the watch shows it.
	SetHost(*bmov1alpha1.BareMetalHost)
	// Summary counts the hosts of a type, and tells whether the type is known.
	Summary(nodeType string) (hosts.Summary, bool)
	// OnChange adds a listener that is told of types whose hosts or profile may have changed. It must not block.
	OnChange(listener func(types []string))
	// OnGain adds a listener that is told what a change may have made possible. It must not block.
	OnGain(listener func(hosts.Gain))
}

// Dependencies of a Reconciler. All are required.
type Dependencies struct {
	// Client writes, and reads from a cache.
	Client client.Client
	// Live reads from the API server, past every cache.
	Live client.Reader
	// Claims writes on servers.
	Claims Claims
	// Addresses gives out addresses.
	Addresses Addresses
	// Inventory chooses servers.
	Inventory Inventory
	// Recorder of events on Machines.
	Recorder events.EventRecorder
	// Clock for the times in conditions and metrics, and for deadlines.
	Clock clock.PassiveClock
	// Deadline is how long a Machine may go without progress if its NodeType does not say. Zero is
	// DefaultProvisioningDeadline.
	Deadline time.Duration
}

// Reconciler takes Machines through their life.
type Reconciler struct {
	client    client.Client
	live      client.Reader
	claims    Claims
	addresses Addresses
	inventory Inventory
	recorder  events.EventRecorder
	clock     clock.PassiveClock
	metrics   *metrics
	waiting   *waiting
	echoes    *echoes
	quota     *quota.Ledger
	promises  *ipam.Promises
	handlers  map[state]handling
	deadline  time.Duration
	// quarantining is held by whoever counts the quarantined servers and adds one.
	quarantining sync.Mutex
	beginning
}

// run is one look at one Machine. Handlers leave in it what they have written, for the next step.
type run struct {
	machine *v1alpha1.Machine
	host    *bmov1alpha1.BareMetalHost
	// written is the Machine as the API server has it, while a newer status has been put off; nil if there is none.
	written *v1alpha1.Machine
}

// handling does what a state needs. An error means that an API call failed, and everything is tried again later; what
// is wrong with the Machine itself is no error but part of the result.
type handling func(context.Context, *run) (result, error)

// result alone decides what is written into the status and when the Machine is looked at again.
type result struct {
	// facts for the status; nil leaves it alone.
	facts *facts
	// again is true when the next state can be taken on at once.
	again bool
	// putsOff is true when the status need not be written before the next state has been looked at: nothing is lost with
	// it, because it follows from what is written elsewhere.
	putsOff bool
	// after is when to look again although nothing has happened. Zero: at the slow resync.
	after time.Duration
	// wants is what has to happen that no watch maps to this Machine: a server becomes free, or a NodeType, OSImage or
	// TenantCluster is made or mended.
	wants wish
}

// New returns a Reconciler.
func New(d Dependencies) *Reconciler {
	r := &Reconciler{
		client:    d.Client,
		live:      d.Live,
		claims:    d.Claims,
		addresses: d.Addresses,
		inventory: d.Inventory,
		recorder:  d.Recorder,
		clock:     d.Clock,
		metrics:   newMetrics(),
		waiting:   newWaiting(),
		echoes:    newEchoes(),
		quota:     quota.NewLedger(d.Client),
		promises:  ipam.NewPromises(d.Client),
		deadline:  d.Deadline,
	}
	r.handlers = map[state]handling{
		gone:         r.done,
		unprotected:  r.protect,
		restored:     r.recall,
		pending:      r.choose,
		claiming:     r.claim,
		held:         r.waitForHooks,
		claimed:      r.install,
		provisioning: r.watchProvisioning,
		switching:    r.switchPower,
		provisioned:  r.watchProvisioned,
		joined:       r.watchJoined,
		broken:       r.hold,
		lost:         r.giveUp,
		abandoned:    r.watchAbandoned,
		releasing:    r.release,
	}
	return r
}

// Reconcile looks at one Machine and takes it as far as it gets without waiting.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r.startOnce()
	machine := &v1alpha1.Machine{}
	err := r.client.Get(ctx, request.NamespacedName, machine)
	if err == nil && r.echoes.outstanding(machine, r.clock.Now()) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	waiter := r.waiting.begin(request.NamespacedName)
	if err != nil {
		r.waiting.end(waiter, time.Time{}, wish{}, false)
		if client.IgnoreNotFound(err) == nil {
			r.vanished(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	now := &run{machine: machine.DeepCopy()}
	outcome, err := r.advance(ctx, now)
	wants, holds := outcome.wants, now.machine.Status.HostRef != nil
	if (err != nil || outcome.again) && !holds {
		wants = wish{need: correction, anotherChoice: true} // whatever it was, it may be different next time
	}
	r.waiting.end(waiter, machine.CreationTimestamp.Time, wants, holds)
	priority := ptr.To(urgency(now.machine))
	switch {
	case apierrors.IsConflict(err), err == nil && outcome.again:
		return ctrl.Result{RequeueAfter: conflictDelay, Priority: priority}, nil
	case err != nil:
		return ctrl.Result{Priority: priority}, err
	case outcome.after > 0:
		return ctrl.Result{RequeueAfter: outcome.after, Priority: priority}, nil
	}
	return ctrl.Result{RequeueAfter: resync, Priority: priority}, nil
}

// advance takes the Machine from state to state, as far as it gets.
func (r *Reconciler) advance(ctx context.Context, now *run) (outcome result, err error) {
	for range maxSteps {
		if outcome, err = r.step(ctx, now); err != nil || !outcome.again {
			break
		}
	}
	if now.written != nil {
		// What had been put off must not be lost because of what came after it.
		if late := r.flush(ctx, now); err == nil {
			err = late
		}
	}
	return outcome, err
}

// vanished lets others have what a Machine that does not exist any more had or was promised.
func (r *Reconciler) vanished(machine types.NamespacedName) {
	r.echoes.forget(machine)
	r.addressForgotten(r.promises.Forget(machine))
	r.waiting.serve(func(wants wish) int { return wants.servedByAllowance(machine.Namespace) })
}

// step does what the present state needs and writes what follows from it into the status.
func (r *Reconciler) step(ctx context.Context, now *run) (result, error) {
	if err := r.lookAtHost(ctx, now); err != nil {
		return result{}, err
	}
	outcome, err := r.handlers[stateOf(now.machine, now.host)](ctx, now)
	if err != nil || outcome.facts == nil {
		return outcome, err
	}
	if outcome, err = r.judge(ctx, now, outcome); err != nil {
		return result{}, err
	}
	if err := r.noteDrift(ctx, now, outcome.facts); err != nil {
		return result{}, err
	}
	return outcome, r.writeStatus(ctx, now, *outcome.facts, outcome.putsOff && outcome.again)
}

// lookAtHost reads the host of the Machine, past the cache if the cache shows it as lost: to give a server up, a cache
// is not good enough.
func (r *Reconciler) lookAtHost(ctx context.Context, now *run) error {
	reference := now.machine.Status.HostRef
	if reference == nil || now.machine.Status.ProviderID == "" || !now.machine.DeletionTimestamp.IsZero() {
		now.host = nil // these states read what they need for themselves
		return nil
	}
	owner, key := ownerOf(now.machine), types.NamespacedName{Namespace: reference.Namespace, Name: reference.Name}
	trusted := func(host *bmov1alpha1.BareMetalHost) bool {
		return ownsHost(owner, host) && stateOf(now.machine, host) != lost
	}
	if trusted(now.host) {
		return nil
	}
	for _, reader := range []client.Reader{r.client, r.live} {
		host := &bmov1alpha1.BareMetalHost{}
		err := reader.Get(ctx, key, host)
		if err != nil && !isGone(err) {
			return fmt.Errorf("reading host %s, %w", key, err)
		}
		now.host = nil
		if err == nil {
			now.host = host
		}
		if trusted(now.host) {
			return nil
		}
	}
	return nil
}

// writeStatus is the one place where a status is made. With putOff it is written together with the one that the next
// state makes, if that is one that knows of it, or by flush at the latest.
func (r *Reconciler) writeStatus(ctx context.Context, now *run, f facts, putOff bool) error {
	status := nextStatus(now.machine, f, metav1.NewTime(r.clock.Now()))
	if now.written == nil {
		now.written = now.machine.DeepCopy()
	}
	now.machine.Status = status
	if next := stateOf(now.machine, now.host); putOff && (next == held || next == claimed) {
		return nil
	}
	err := r.flush(ctx, now)
	if err != nil && f.choice != nil {
		r.unchoose(f.choice.Host, now.machine)
	}
	return err
}

// flush writes the status. It is a compare-and-swap on the Machine's version.
func (r *Reconciler) flush(ctx context.Context, now *run) error {
	before := now.written
	if now.written = nil; before == nil || equality.Semantic.DeepEqual(before.Status, now.machine.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, now.machine, patch); err != nil {
		now.machine.Status = before.Status
		return fmt.Errorf("writing the status of Machine %s, %w", client.ObjectKeyFromObject(before), err)
	}
	r.echoes.expect(now.machine, r.clock.Now())
	r.report(before, now.machine)
	return nil
}

// report tells events and metrics of a change that has been written.
func (r *Reconciler) report(before, after *v1alpha1.Machine) {
	if before.Status.ProviderID == "" && after.Status.ProviderID != "" {
		r.metrics.claimLatency.Observe(r.clock.Since(after.CreationTimestamp.Time).Seconds())
		r.event(after, corev1.EventTypeNormal, v1alpha1.ReasonClaimed, condition(after, v1alpha1.ConditionClaimed).Message)
	}
	r.reportDrift(before, after)
	ready := condition(after, v1alpha1.ConditionReady)
	if old := condition(before, v1alpha1.ConditionReady); old.Reason == ready.Reason || quiet[ready.Reason] {
		return
	}
	kind := corev1.EventTypeNormal
	if warnings[ready.Reason] {
		kind = corev1.EventTypeWarning
	}
	r.event(after, kind, ready.Reason, ready.Message)
}

func (r *Reconciler) event(machine *v1alpha1.Machine, kind, reason, message string) {
	r.recorder.Eventf(machine, nil, kind, reason, reason, "%s", shortened(message, maxEventNote))
}

func condition(machine *v1alpha1.Machine, kind string) metav1.Condition {
	if found := meta.FindStatusCondition(machine.Status.Conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{}
}

func hostKey(reference v1alpha1.HostReference) types.NamespacedName {
	return types.NamespacedName{Namespace: reference.Namespace, Name: reference.Name}
}
