// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// scheduler decides which Machine gets which server, quota and address, on memory alone and one Machine at a time. What
// it has decided is assumed until it shows in the caches, or until it is forgotten because binding has failed.
type scheduler struct {
	// deciding is held from the first look at the caches until what was decided is assumed.
	deciding sync.Mutex
	assumed  map[types.NamespacedName]assumption
	// resumed is true once what an earlier process has chosen is assumed, too.
	resumed atomic.Bool
	queue   *scheduling.Queue[candidate]
	// failed are the classes of Machines that were refused at a version of the queue: until there is another event, the other
	// Machines of such a class need not be decided on.
	failed   map[string]struct{}
	failedAt scheduling.Version
	// refused are Machines whose gang was refused when it was decided on last.
	refused map[types.NamespacedName]refusedMember
	// choiceChanged is true when the inventory has changed since Machines were last moved by a choice.
	choiceChanged atomic.Bool
	// kick wakes run. workers is the queue of the controller, whose workers bind.
	kick    chan struct{}
	started sync.Mutex
	workers queue
}

// assumption is what a Machine has been given or is about to take.
type assumption struct {
	uid types.UID
	// host and nodeType that were chosen; empty for a Machine that had its server before the manager started.
	host     types.NamespacedName
	nodeType string
	// claimable is since when nothing but the manager held up the claim; zero if that is not known.
	claimable time.Time
	// claimed is true once the claim is on the host. From then on the host is not free, whenever its watch shows that.
	claimed bool
	// owner of the address, and the pool that it will be taken from; nil if the Machine needs none.
	owner v1alpha1.MachineReference
	pool  *ipam.Pool
}

// candidate is a Machine that has been validated, with what a decision about it needs.
type candidate struct {
	machine *v1alpha1.Machine
	// tenant is nil for a Machine that stands alone.
	tenant  *v1alpha1.TenantCluster
	request inventory.Request
	// class is the same for Machines that are given the same servers.
	class string
	// reason and message of why it was unschedulable when it was decided on last, and whether all of its class are for the
	// same reason.
	reason, message string
	alike           bool
	// moved is when an event came that could make it schedulable; zero if a worker decides about it.
	moved time.Time
	// assigned or no is what the loop has decided since then and no worker has taken yet. It stands until an event that could change
	// it: then the queue makes the Machine active again.
	assigned *assignment
	no       *unschedulable
}

func newCandidate(machine *v1alpha1.Machine, tenant *v1alpha1.TenantCluster, request inventory.Request) candidate {
	class := fmt.Sprintf("%s/%v/%s/%s/%v/%v/%v", machine.Namespace, machine.Spec.TenantClusterRef, request.NodeType, request.ServerName,
		request.Requirements, request.Resources, request.Drivers)
	return candidate{machine: machine, tenant: tenant, request: request, class: class}
}

// differs returns whether the Machine has to say something else than it did. Of other Machines the message has counts that every
// server changes, which are not worth a write for each; of a pinned one it says what is the matter with its server.
func (c *candidate) differs(no *unschedulable) bool {
	return no.reason != c.reason || isPinned(c.machine) && no.message != c.message
}

// claimable returns since when nothing but the manager holds up the claim: since the event that made the Machine schedulable, or since it
// was created. For one that was refused before, and is looked at for another reason, that is now.
func (c *candidate) claimable(now time.Time) time.Time {
	switch {
	case !c.moved.IsZero():
		return c.moved
	case condition(c.machine, v1alpha1.ConditionClaimed).Reason == "":
		return c.machine.CreationTimestamp.Time
	}
	return now
}

// unschedulable is why a Machine gets no server, and the events that could make it schedulable.
type unschedulable struct {
	reason, message string
	hints           []scheduling.Event
	// alike is true if all Machines of the same class are refused for the same reason.
	alike bool
	// hostless is true if there is no server to be had.
	hostless bool
}

// refuse returns why a Machine gets no server. A change of an object could make it schedulable, and so could the other events.
func refuse(reason, message string, hints ...scheduling.Event) *unschedulable {
	return &unschedulable{reason: reason, message: message, hints: append(hints, objectChanged)}
}

var (
	objectChanged = scheduling.Event{Kind: scheduling.ObjectChanged}
	hostChanged   = scheduling.Event{Kind: scheduling.HostChanged}
	choiceChanged = scheduling.Event{Kind: scheduling.ChoiceChanged}
)

func addressFreed(network string) scheduling.Event {
	return scheduling.Event{Kind: scheduling.AddressFreed, Of: network}
}

func usageShrank(namespace string) scheduling.Event {
	return scheduling.Event{Kind: scheduling.UsageShrank, Of: namespace}
}

// choiceDelay is how long another choice of a server is put off for Machines that could not have the one they would have
// got. It may cost a rendered template each, and a moving fleet must not cost one for every server that moves.
const choiceDelay = 5 * time.Second

func newScheduler(clock clock.PassiveClock) *scheduler {
	return &scheduler{
		assumed: map[types.NamespacedName]assumption{}, failed: map[string]struct{}{}, refused: map[types.NamespacedName]refusedMember{},
		queue: scheduling.NewQueue[candidate](clock), kick: make(chan struct{}, 1),
	}
}

// start hands the queue of the controller to the scheduler. It is a source of that controller.
func (s *scheduler) start(_ context.Context, workers workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.started.Lock()
	defer s.started.Unlock()
	s.workers = workers
	return nil
}

// notify has a worker look at a Machine.
func (s *scheduler) notify(machine types.NamespacedName, hasServer bool) {
	s.started.Lock()
	defer s.started.Unlock()
	if s.workers == nil {
		return // the controller looks at all Machines when it starts
	}
	priority := withoutServer
	if hasServer {
		priority = withServer
	}
	enqueue(s.workers, reconcile.Request{NamespacedName: machine}, priority)
}

// move makes the Machines active that an event could make schedulable, and wakes run.
func (s *scheduler) move(event scheduling.Event) {
	s.queue.Move(event)
	s.wake()
}

func (s *scheduler) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// park puts a Machine that has been looked at into the queue as unschedulable, or takes it out if it waits for nothing.
func (s *scheduler) park(machine scheduling.Machine[candidate], since scheduling.Version) {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	if len(machine.Hints) == 0 {
		delete(s.refused, machine.Key)
		s.queue.Delete(machine.Key)
		return
	}
	s.queue.Park(machine, since)
	s.wake() // an event in between has made it active
}

// forget ends what is assumed for a Machine: its host, its share of the quota, and its address.
func (s *scheduler) forget(machine types.NamespacedName, hosts *inventory.Inventory) {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	s.forgetLocked(machine, hosts)
}

func (s *scheduler) forgetLocked(machine types.NamespacedName, hosts *inventory.Inventory) {
	assumed, found := s.assumed[machine]
	if !found {
		return
	}
	delete(s.assumed, machine)
	if assumed.nodeType != "" {
		if !assumed.claimed {
			hosts.Forget(assumed.host, assumed.uid)
		}
		s.move(usageShrank(machine.Namespace))
	}
	if assumed.pool != nil {
		s.move(addressFreed(assumed.pool.Network()))
	}
}

// assumePool counts the Machine, which has its server, as one that takes an address of a pool; nil if it needs none. If it
// was to take one of another pool, or a Machine of its name was that is gone, that address is free again.
func (s *scheduler) assumePool(machine *v1alpha1.Machine, pool *ipam.Pool) {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	key, owner := client.ObjectKeyFromObject(machine), ownerOf(machine).machineReference()
	before, found := s.assumed[key]
	if !found && pool == nil {
		return
	}
	after := assumption{uid: machine.UID, owner: owner, pool: pool}
	if before.uid == machine.UID {
		after.host, after.nodeType, after.claimable, after.claimed = before.host, before.nodeType, before.claimable, before.claimed
	}
	s.assumed[key] = after
	if before.pool != nil && (pool == nil || before.owner != owner || !before.pool.Is(*pool)) {
		s.move(addressFreed(before.pool.Network()))
	}
}

// assumedPools are the addresses that Machines other than the owner are about to take.
func (s *scheduler) assumedPools(except v1alpha1.MachineReference) (all []ipam.Assumed) {
	for _, assumption := range s.assumed {
		if assumption.pool != nil && assumption.owner != except {
			all = append(all, ipam.Assumed{Owner: assumption.owner, Pool: *assumption.pool})
		}
	}
	return all
}

// assumedBy are the addresses that other Machines are about to take.
func (s *scheduler) assumedBy(others *v1alpha1.Machine) []ipam.Assumed {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	return s.assumedPools(ownerOf(others).machineReference())
}

// listen moves Machines when the inventory changes.
func (r *Reconciler) listen() {
	r.inventory.OnChange(func([]string) {
		r.scheduler.choiceChanged.Store(true)
		r.scheduler.move(hostChanged)
	})
}

// runScheduler is the loop that takes Machines off the queue, until the context ends.
func (r *Reconciler) runScheduler(ctx context.Context) error {
	if r.inventory.WaitForSync(ctx) == nil {
		r.scheduler.move(objectChanged)
	}
	choices := time.NewTicker(choiceDelay)
	defer choices.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.scheduler.kick:
		case <-choices.C:
			r.beat(ctx)
			r.moveAllowed()
			if r.scheduler.choiceChanged.Swap(false) {
				r.scheduler.queue.Move(choiceChanged)
			}
		}
		r.schedulePending(ctx)
	}
}

// moveAllowed moves the Machines of the namespaces that may claim again.
func (r *Reconciler) moveAllowed() {
	for _, namespace := range r.claimRate.allowed(r.clock.Now()) {
		r.scheduler.queue.Move(claimsAllowed(namespace))
	}
}

// schedulePending decides on the active Machines in order, and has those looked at for which the answer is another now.
func (r *Reconciler) schedulePending(ctx context.Context) {
	for r.scheduleNext(ctx) {
	}
}

func (r *Reconciler) scheduleNext(ctx context.Context) bool {
	s := r.scheduler
	s.deciding.Lock()
	defer s.deciding.Unlock()
	waiting, version, found := s.queue.Pop()
	if !found {
		return false
	}
	if waiting.HasServer || waiting.MovedBy == objectChanged || waiting.Value.machine == nil {
		s.notify(waiting.Key, waiting.HasServer) // what it waits for is for its worker to find out
		return true
	}
	if s.failedAt != version {
		clear(s.failed)
		s.failedAt = version
	}
	if _, failed := s.failed[waiting.Value.class]; failed && waiting.Value.alike {
		s.queue.Park(waiting, version)
		return true
	}
	c := &waiting.Value
	c.assigned, c.no, c.moved = nil, nil, waiting.Moved
	assigned, no, err := r.decide(ctx, c)
	switch {
	case err != nil:
		log.FromContext(ctx).Error(err, "deciding on a server", "Machine", waiting.Key.String())
		s.notify(waiting.Key, false) // its worker tries again
		return true
	case no == nil:
		s.queue.Served(waiting.Key.Namespace)
		c.assigned, waiting.Hints = assigned, []scheduling.Event{objectChanged}
	case c.differs(no):
		c.no, waiting.Hints = no, no.hints
	default:
		if no.alike {
			s.failed[c.class] = struct{}{}
		}
		waiting.Hints, c.alike = no.hints, no.alike
	}
	s.queue.Park(waiting, version)
	if c.assigned != nil || c.no != nil {
		s.notify(waiting.Key, false)
	}
	return true
}

// take returns what the loop has decided about a Machine, for the worker that binds it. It returns false if it has not decided, if an
// event could have changed the decision since, if the Machine is another now, or if what was assumed for it does not stand.
func (r *Reconciler) take(machine *v1alpha1.Machine) (*candidate, bool) {
	s, key := r.scheduler, client.ObjectKeyFromObject(machine)
	s.deciding.Lock()
	defer s.deciding.Unlock()
	waiting, found := s.queue.Take(key)
	c := &waiting.Value
	return c, found && (c.assigned != nil || c.no != nil) && r.stands(c, machine)
}

// stands returns whether what has been decided about a Machine can still be done. scheduler.deciding must be held.
func (r *Reconciler) stands(c *candidate, machine *v1alpha1.Machine) bool {
	if c.machine.UID != machine.UID || c.machine.Generation != machine.Generation {
		return false
	}
	return c.assigned == nil || r.scheduler.assumed[client.ObjectKeyFromObject(machine)].uid == machine.UID &&
		r.inventory.Assume(c.assigned.choice, machine.UID)
}
