// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/quota"
)

// Inventory chooses servers. *hosts.Inventory is the one.
type Inventory interface {
	// Choose picks a host and assumes it for the Machine. The error is a *hosts.NoHostError if there is none.
	Choose(hosts.Request) (hosts.Choice, error)
	// Forget ends the assumption.
	Forget(host types.NamespacedName, machine types.UID)
	// Synced is true once every host and type has been taken in.
	Synced() bool
	// WaitForSync blocks until Synced is true or the context ends.
	WaitForSync(context.Context) error
	// Summary counts the hosts of a type, and tells whether the type is known.
	Summary(nodeType string) (hosts.Summary, bool)
	// OnChange adds a listener that is told of types whose hosts or profile may have changed. It must not block.
	OnChange(listener func(types []string))
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
	quota     *quota.Ledger
	handlers  map[state]handling
	deadline  time.Duration
	beginning
}

// run is one look at one Machine. Handlers leave in it what they have written, for the next step.
type run struct {
	machine *v1alpha1.Machine
	host    *bmov1alpha1.BareMetalHost
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
	// after is when to look again although nothing has happened. Zero: at the slow resync.
	after time.Duration
	// waits is true when something that no watch maps to this Machine has to happen: a server becomes free, or a
	// NodeType, OSImage or TenantCluster is made or mended.
	waits bool
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
		quota:     quota.NewLedger(d.Client),
		deadline:  d.Deadline,
	}
	r.handlers = map[state]handling{
		gone:         r.done,
		unprotected:  r.protect,
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
	if err := r.client.Get(ctx, request.NamespacedName, machine); err != nil {
		r.waiting.remove(request.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// Before anything is asked for: what becomes free between the question and the answer must wake it.
	r.waiting.set(request.NamespacedName, machine.CreationTimestamp.Time, true)
	now := &run{machine: machine.DeepCopy()}
	for range maxSteps {
		outcome, err := r.step(ctx, now)
		switch {
		case apierrors.IsConflict(err):
			return ctrl.Result{RequeueAfter: conflictDelay}, nil
		case err != nil:
			return ctrl.Result{}, err
		case outcome.again:
			continue
		}
		r.waiting.set(request.NamespacedName, now.machine.CreationTimestamp.Time, outcome.waits)
		if outcome.after > 0 {
			return ctrl.Result{RequeueAfter: outcome.after}, nil
		}
		return ctrl.Result{RequeueAfter: resync}, nil
	}
	return ctrl.Result{RequeueAfter: conflictDelay}, nil
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
	return outcome, r.writeStatus(ctx, now, *outcome.facts)
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

// writeStatus is the one place where a status is written. It is a compare-and-swap on the Machine's version.
func (r *Reconciler) writeStatus(ctx context.Context, now *run, f facts) error {
	before := now.machine.DeepCopy()
	status := nextStatus(now.machine, f, metav1.NewTime(r.clock.Now()))
	if equality.Semantic.DeepEqual(before.Status, status) {
		return nil
	}
	now.machine.Status = status
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, now.machine, patch); err != nil {
		if f.choice != nil {
			r.unchoose(f.choice.Host, now.machine.UID)
		}
		return fmt.Errorf("writing the status of Machine %s, %w", client.ObjectKeyFromObject(now.machine), err)
	}
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
	if old := condition(before, v1alpha1.ConditionReady); old.Reason == ready.Reason || ready.Reason == v1alpha1.ReasonClaimed {
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
