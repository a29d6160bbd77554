// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine implements the lifecycle of a Machine: it gets a server, has an image installed on it, becomes a
// node, and releases the server after cleaning. It is the only writer of Machine.status. Package hosts writes to the
// BareMetalHosts for it.
//
// The life is a state machine. stateOf reads the state only from the Machine and its host, never from memory, so that a
// run that was killed at any write is continued:
//
//	pending ─► claiming ─► waitingForHooks ─► claimed ─► provisioning ─► provisioned ─► joined
//	   ▲           │                             │             │          └── switching ──┘
//	   └───────────┘ taken                       └─────────────┴──► errored (and back, when the server recovers), hostLost
//
//	interrupted, restored ─► claiming, or pending if no server is claimed
//	any from waitingForHooks on ─► gaveUp, if it gets no further (progress.go) or its server is in error for good (replacing.go)
//	any of them ─► releasing, once the Machine is being deleted
//
// A plan (pkg/fleet/plan) decides what is installed. The manager validates the plan for the chosen server before the
// claim, so that a wrong property, template or key never ties up a server. Hooks (hooks.go) hold a Machine before
// anything is installed and before its server is released.
//
// Two rules keep a host from being claimed twice. The manager writes the choice on the Machine, with the finalizer,
// before it touches the host. Both writes are compare-and-swap on the resource version: one decides which host a
// Machine wants, the other which Machine a host belongs to. The status names the host once it is claimed. A crash can
// leave a host without a Machine that wants it. The orphan sweep (orphanhosts.go, userdata.go) gives it back.
package machine

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/metrics"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/breaker"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Dependencies are the dependencies of a Reconciler. Only Deadline, UnusedClaimsPerHour and Hooks may be zero.
type Dependencies struct {
	// Client writes, and reads from a cache.
	Client client.Client
	// Live reads from the API server, past every cache.
	Live      client.Reader
	Inventory *inventory.Inventory
	Recorder  events.EventRecorder
	// Clock is the clock for the times in conditions and metrics, and for deadlines.
	Clock clock.PassiveClock
	// Deadline is the provisioning deadline if the NodeType sets none. Zero means DefaultProvisioningDeadline.
	Deadline time.Duration
	// Record is the record of who had which server when.
	Record usage.Record
	// UnusedClaimsPerHour bounds claims that are given back uninstalled, by namespace. Zero means no bound.
	UnusedClaimsPerHour int
	// Hooks are the names of other controllers' hooks that hold a server. Other annotations hold nothing.
	Hooks []string
}

// Reconciler takes Machines through their life.
type Reconciler struct {
	servers
	objects      objects
	addresses    ipam.Allocator
	inventory    *inventory.Inventory
	recorder     events.EventRecorder
	clock        clock.PassiveClock
	claimLatency prometheus.Histogram
	claimSLI     prometheus.Histogram
	scheduler    *scheduler
	expectations kube.Expectations
	handlers     map[state]handling
	deadlines    *deadlines
	quarantines  *quarantines
	// searched has, by name, the UIDs of Machines whose server a live read of all hosts did not find.
	searched sync.Map
}

// visit is one look at one Machine. Handlers update it with each write, for the next step.
type visit struct {
	machine *v1alpha1.Machine
	host    *bmov1alpha1.BareMetalHost
	// stored is the Machine as the API server has it, while machine has a newer status; nil otherwise.
	stored *v1alpha1.Machine
	// plan is the plan for the server's installation, once it has been resolved.
	plan *plan.Plan
}

// handling does what a state needs. An error means that an API call failed, and everything is tried again later. A
// problem of the Machine itself is no error but part of the result.
type handling func(context.Context, *visit) (result, error)

// result decides what is written into the status and when the Machine is reconciled again.
type result struct {
	// observed updates the status; nil leaves it alone.
	observed *observation
	// again requests the next step at once.
	again bool
	// after is the time until the next reconcile without an event. Zero means the slow resync.
	after time.Duration
	// hints are events that no watch maps to this Machine and that could get it further: a server becomes free, or a
	// NodeType, OSImage or TenantCluster is created or corrected.
	hints []scheduling.Event
	// candidate is the scheduler's input for another decision after one of the hints. It is empty for a Machine that
	// has its server, or that a worker must look at first.
	candidate candidate
}

// reports returns a result that tells what the Machine is doing or waiting for.
func (v *visit) reports(phase v1alpha1.MachinePhase, reason, format string, arguments ...any) result {
	return result{observed: &observation{phase: phase, reason: reason, message: fmt.Sprintf(format, arguments...), host: v.host}}
}

// New returns a Reconciler.
func New(d Dependencies) *Reconciler {
	writer := hosts.Writer{Client: d.Client, Live: d.Live, Record: d.Record, Hooks: sets.New(d.Hooks...)}
	r := &Reconciler{
		servers:      servers{client: d.Client, live: d.Live, hosts: writer},
		objects:      objects{d.Client},
		addresses:    ipam.Allocator{Client: d.Client, Live: d.Live},
		inventory:    d.Inventory,
		recorder:     d.Recorder,
		clock:        d.Clock,
		claimLatency: metrics.NewClaimDuration(),
		claimSLI:     metrics.NewClaimSLIDuration(),
		scheduler:    newScheduler(d),
		deadlines: &deadlines{objects: objects{d.Client}, live: d.Live, inventory: d.Inventory, clock: d.Clock,
			deadline: cmp.Or(d.Deadline, DefaultProvisioningDeadline), giveUps: giveUps{recent: map[string]breaker.Recent{}},
			stillness: stillness{seen: map[string]seenChanges{}}},
		quarantines: &quarantines{hosts: writer, inventory: d.Inventory, recorder: d.Recorder, clock: d.Clock},
	}
	r.handlers = map[state]handling{
		gone:            r.done,
		unprotected:     r.protect,
		restored:        r.recoverServer,
		interrupted:     r.recoverServer,
		pending:         r.choose,
		claiming:        r.claim,
		waitingForHooks: r.waitForHooks,
		claimed:         r.install,
		provisioning:    r.watchProvisioning,
		switching:       r.switchPower,
		provisioned:     r.watchProvisioned,
		joined:          r.watchJoined,
		errored:         r.watchInError,
		hostLost:        r.watchHostLost,
		gaveUp:          r.watchGaveUp,
		releasing:       r.release,
	}
	return r
}

// Reconcile moves one Machine forward until it has to wait.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r.deadlines.beat(ctx)
	since := r.scheduler.queue.Version()
	machine := &v1alpha1.Machine{}
	if err := r.client.Get(ctx, request.NamespacedName, machine); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.vanished(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !r.expectations.Satisfied(machine, r.clock.Now()) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	v := &visit{machine: machine.DeepCopy()}
	outcome, err := r.advance(ctx, v)
	hasServer := v.machine.Status.HostRef != nil
	if (err != nil || outcome.again) && !hasServer {
		// The next decision may differ.
		outcome.hints, outcome.candidate = []scheduling.Event{objectChanged, choiceChanged}, candidate{}
	}
	r.scheduler.park(scheduling.Machine[candidate]{
		Key: request.NamespacedName, Created: machine.CreationTimestamp.Time, HasServer: hasServer, Hints: outcome.hints,
		Value: outcome.candidate,
	}, since)
	priority := ptr.To(urgency(v.machine))
	switch {
	case apierrors.IsConflict(err), err == nil && outcome.again:
		return ctrl.Result{RequeueAfter: conflictDelay, Priority: priority}, nil
	case err != nil:
		return ctrl.Result{Priority: priority}, err
	}
	return ctrl.Result{RequeueAfter: cmp.Or(outcome.after, resync), Priority: priority}, nil
}

// advance takes the Machine from state to state, as far as it gets. It writes the status at the end. A crash loses
// nothing: the status can be computed again. A step writes the status earlier where the order of writes matters: see
// flush.
func (r *Reconciler) advance(ctx context.Context, v *visit) (outcome result, err error) {
	for range maxSteps {
		if outcome, err = r.step(ctx, v); err != nil || !outcome.again {
			break
		}
	}
	if late := r.flush(ctx, v); err == nil {
		err = late
	}
	return outcome, err
}

// vanished forgets a Machine that does not exist any more.
func (r *Reconciler) vanished(machine types.NamespacedName) {
	r.expectations.Forget(machine)
	r.searched.Delete(machine)
	r.scheduler.claimRate.vanished(machine)
	r.scheduler.park(scheduling.Machine[candidate]{Key: machine}, 0)
	r.scheduler.forget(machine)
	r.scheduler.move(usageShrank(machine.Namespace))
}

// step does what the present state needs and computes the resulting status.
func (r *Reconciler) step(ctx context.Context, v *visit) (result, error) {
	if err := r.lookAtHost(ctx, v); err != nil {
		return result{}, err
	}
	if err := r.recoverNetwork(ctx, v); err != nil {
		return result{}, err
	}
	outcome, err := r.handlers[stateOf(v.machine, v.host)](ctx, v)
	if err != nil || outcome.observed == nil {
		return outcome, err
	}
	if outcome, err = r.trackProgress(ctx, v, outcome); err != nil {
		return result{}, err
	}
	if err := r.checkDrift(ctx, v, outcome.observed); err != nil {
		return result{}, err
	}
	v.changeStatus(func(status *v1alpha1.MachineStatus) {
		*status = nextStatus(v.machine, *outcome.observed, metav1.NewTime(r.clock.Now()))
	})
	return outcome, nil
}

// lookAtHost reads the host of the Machine. If the cache shows the host as lost, it reads past the cache: a stale cache
// must not make the manager give a server up.
func (r *Reconciler) lookAtHost(ctx context.Context, v *visit) error {
	reference := v.machine.Status.HostRef
	if reference == nil || v.machine.Status.ProviderID == "" || !v.machine.DeletionTimestamp.IsZero() {
		v.host = nil // these states read what they need for themselves
		return nil
	}
	owner, key := hosts.OwnerOf(v.machine), hosts.Key(*reference)
	trusted := func(host *bmov1alpha1.BareMetalHost) bool {
		return hosts.Owns(owner, host) && stateOf(v.machine, host) != hostLost
	}
	if trusted(v.host) {
		return nil
	}
	for _, reader := range []client.Reader{r.client, r.live} {
		host := &bmov1alpha1.BareMetalHost{}
		found, err := kube.Find(ctx, reader, key, host)
		if err != nil {
			return err
		}
		if v.host = nil; found {
			v.host = host
		}
		if trusted(v.host) {
			return nil
		}
	}
	return nil
}

// changeStatus changes the status in memory, until flush.
func (v *visit) changeStatus(change func(*v1alpha1.MachineStatus)) {
	if v.stored == nil {
		v.stored = v.machine.DeepCopy()
	}
	change(&v.machine.Status)
}

// flush writes the status. It is the only place that does. It is a compare-and-swap on the Machine's version. Call it
// before anything is installed, and before the Machine is read again or its metadata is written.
func (r *Reconciler) flush(ctx context.Context, v *visit) error {
	before := v.stored
	if v.stored = nil; before == nil || equality.Semantic.DeepEqual(before.Status, v.machine.Status) {
		return nil
	}
	if err := kube.PatchStatus(ctx, r.client, before, v.machine); err != nil {
		v.machine.Status = before.Status
		return err
	}
	r.expectations.Expect(v.machine, r.clock.Now())
	r.recordTransition(before, v.machine)
	return nil
}

// recordTransition publishes the events and metrics of a written change.
func (r *Reconciler) recordTransition(before, after *v1alpha1.Machine) {
	if before.Status.ProviderID == "" && after.Status.ProviderID != "" {
		r.claimLatency.Observe(max(0, r.clock.Since(after.CreationTimestamp.Time).Seconds()))
		if since := r.scheduler.claimableSince(after); !since.IsZero() {
			r.claimSLI.Observe(max(0, r.clock.Since(since).Seconds()))
		}
		r.event(after, corev1.EventTypeNormal, v1alpha1.ReasonClaimed, condition(after, v1alpha1.ConditionClaimed).Message)
	}
	if condition(after, v1alpha1.ConditionProvisioned).Status == metav1.ConditionTrue {
		r.scheduler.claimRate.uncount(client.ObjectKeyFromObject(after), after.UID, r.clock.Now())
	}
	r.recordDrift(before, after)
	ready := condition(after, v1alpha1.ConditionReady)
	if old := condition(before, v1alpha1.ConditionReady); old.Reason == ready.Reason || quiet[ready.Reason] {
		return
	}
	r.event(after, v1alpha1.EventType(ready.Reason), ready.Reason, ready.Message)
}

func (r *Reconciler) event(machine *v1alpha1.Machine, kind, reason, message string) {
	r.recorder.Eventf(machine, nil, kind, reason, reason, "%s", conditions.Truncate(message, conditions.MaxEventNote))
}

func condition(machine *v1alpha1.Machine, kind string) metav1.Condition {
	return conditions.Find(machine.Status.Conditions, kind)
}
