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
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// scheduler decides which Machine gets which server, quota and address, from memory alone and one Machine at a time. It
// assumes each decision until the caches show it, or until forget ends it because binding has failed.
type scheduler struct {
	objects   objects
	inventory *inventory.Inventory
	clock     clock.PassiveClock
	claimRate claimRate
	// deciding is held from the first look at the caches until the decision is assumed.
	deciding sync.Mutex
	assumed  map[types.NamespacedName]assumption
	// resumed: the choices of an earlier process are assumed, too.
	resumed atomic.Bool
	queue   *scheduling.Queue[candidate]
	// failed are the classes of Machines that were refused at version failedAt of the queue: until there is another
	// event, the other Machines of these classes need no decision.
	failed   map[string]struct{}
	failedAt scheduling.Version
	// refused are the Machines whose gang was refused at its last decision.
	refused map[types.NamespacedName]refusedMember
	// choiceChanged: the inventory has changed since the last event choiceChanged.
	choiceChanged atomic.Bool
	// kick wakes run. workers is the queue of the controller, whose workers bind.
	kick    chan struct{}
	started sync.Mutex
	workers queue
}

// assumption is the server and the address that a Machine has been given or is about to take.
type assumption struct {
	uid types.UID
	// host and nodeType are the choice; empty for a Machine that had its server before the manager started.
	host     types.NamespacedName
	nodeType string
	// claimable is since when only the manager has held up the claim; zero if that is not known.
	claimable time.Time
	// claimed: the claim is on the host. From then on the host is not free, even if its watch does not show that yet.
	claimed bool
	// owner is the owner of the address, and pool the pool to take it from; nil if the Machine needs no address.
	owner v1alpha1.MachineReference
	pool  *ipam.Pool
}

// candidate is a validated Machine, with the input for a decision about it.
type candidate struct {
	machine *v1alpha1.Machine
	// tenant is nil for a stand-alone Machine.
	tenant  *v1alpha1.TenantCluster
	request inventory.Request
	// class is the same for Machines that may get the same servers.
	class string
	// reason and message explain why the last decision was unschedulable. alike: the reason holds for its whole class.
	reason, message string
	alike           bool
	// moved is when an event came that could make it schedulable; zero if a worker decides about it.
	moved time.Time
	// assigned or no is the loop's decision since then, which no worker has taken yet. It stands until an event could
	// change it: then the queue makes the Machine active again.
	assigned *assignment
	no       *unschedulable
}

func newCandidate(machine *v1alpha1.Machine, tenant *v1alpha1.TenantCluster, request inventory.Request) candidate {
	class := fmt.Sprintf("%s/%v/%s/%s/%v/%v/%v", machine.Namespace, machine.Spec.TenantClusterRef, request.NodeType, request.ServerName,
		request.Requirements, request.Resources, request.Drivers)
	return candidate{machine: machine, tenant: tenant, request: request, class: class}
}

// differs reports whether the refusal is worth a new status. For most Machines the message has counts that every server
// changes, so only another reason is. For a pinned Machine the message explains the state of its server.
func (c *candidate) differs(no *unschedulable) bool {
	return no.reason != c.reason || isPinned(c.machine) && no.message != c.message
}

// claimable returns since when only the manager holds up the claim: since the event that made the Machine schedulable,
// or since its creation. For a Machine that was refused before, and is looked at for another reason, it is now.
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
	// alike: all Machines of the same class are refused for the same reason.
	alike bool
	// hostless: no eligible server matches the request.
	hostless bool
}

// refuse returns why a Machine gets no server. The hints, or a change of an object, could make it schedulable.
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

// choiceDelay is the delay before another decision on Machines that could not have the server they would have got. Each
// decision may render a template, and a moving fleet must not cost one for every server that moves.
const choiceDelay = 5 * time.Second

func newScheduler(d Dependencies) *scheduler {
	return &scheduler{
		objects: objects{d.Client}, inventory: d.Inventory, clock: d.Clock,
		claimRate: claimRate{perHour: d.UnusedClaimsPerHour, namespaces: map[string]*unusedClaims{}},
		assumed:   map[types.NamespacedName]assumption{}, failed: map[string]struct{}{}, refused: map[types.NamespacedName]refusedMember{},
		queue: scheduling.NewQueue[candidate](d.Clock), kick: make(chan struct{}, 1),
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

// park puts a Machine into the queue as unschedulable after a worker's look, or removes it if it waits for nothing.
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

// forget ends all assumptions for a Machine: its host, its share of the quota, and its address.
func (s *scheduler) forget(machine types.NamespacedName) {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	s.forgetLocked(machine)
}

func (s *scheduler) forgetLocked(machine types.NamespacedName) {
	assumed, found := s.assumed[machine]
	if !found {
		return
	}
	delete(s.assumed, machine)
	if assumed.nodeType != "" {
		if !assumed.claimed {
			s.inventory.Forget(assumed.host, assumed.uid)
		}
		s.move(usageShrank(machine.Namespace))
	}
	if assumed.pool != nil {
		s.move(addressFreed(assumed.pool.Network()))
	}
}

// assumePool counts a Machine with a server as one that takes an address of the pool, or no address if pool is nil. If
// the Machine, or a former one of its name, was to take an address of another pool, that address becomes free.
func (s *scheduler) assumePool(machine *v1alpha1.Machine, pool *ipam.Pool) {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	key, owner := client.ObjectKeyFromObject(machine), hosts.OwnerOf(machine).Reference()
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

// assumedPools returns the addresses that Machines other than the owner are about to take.
func (s *scheduler) assumedPools(except v1alpha1.MachineReference) (all []ipam.Assumed) {
	for _, assumption := range s.assumed {
		if assumption.pool != nil && assumption.owner != except {
			all = append(all, ipam.Assumed{Owner: assumption.owner, Pool: *assumption.pool})
		}
	}
	return all
}

// assumedBy returns the addresses that Machines other than the given one are about to take.
func (s *scheduler) assumedBy(others *v1alpha1.Machine) []ipam.Assumed {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	return s.assumedPools(hosts.OwnerOf(others).Reference())
}

// listen moves Machines when the inventory changes.
func (s *scheduler) listen() {
	s.inventory.OnChange(func([]string) {
		s.choiceChanged.Store(true)
		s.move(hostChanged)
	})
}

// run is the loop that takes Machines off the queue, until the context ends.
func (s *scheduler) run(ctx context.Context, beat func(context.Context)) error {
	if s.inventory.WaitForSync(ctx) == nil {
		s.move(objectChanged)
	}
	choices := time.NewTicker(choiceDelay)
	defer choices.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.kick:
		case <-choices.C:
			beat(ctx)
			for _, namespace := range s.claimRate.allowed(s.clock.Now()) {
				s.queue.Move(claimsAllowed(namespace))
			}
			if s.choiceChanged.Swap(false) {
				s.queue.Move(choiceChanged)
			}
		}
		s.schedulePending(ctx)
	}
}

// schedulePending decides on the active Machines in order, and has workers look at each Machine with a new answer.
func (s *scheduler) schedulePending(ctx context.Context) {
	for s.scheduleNext(ctx) {
	}
}

func (s *scheduler) scheduleNext(ctx context.Context) bool {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	waiting, version, found := s.queue.Pop()
	if !found {
		return false
	}
	if waiting.HasServer || waiting.MovedBy == objectChanged || waiting.Value.machine == nil {
		s.notify(waiting.Key, waiting.HasServer) // its worker finds out what it waits for
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
	assigned, no, err := s.decide(ctx, c)
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

// take returns the loop's decision about a Machine, for the worker that binds it. It returns false if there is no
// decision, if an event could have changed the decision since, if the Machine has changed, or if the assumption for it
// no longer stands.
func (s *scheduler) take(machine *v1alpha1.Machine) (*candidate, bool) {
	key := client.ObjectKeyFromObject(machine)
	s.deciding.Lock()
	defer s.deciding.Unlock()
	waiting, found := s.queue.Take(key)
	c := &waiting.Value
	return c, found && (c.assigned != nil || c.no != nil) && s.stands(c, machine)
}

// stands reports whether a decision about a Machine can still be carried out. The caller must hold scheduler.deciding.
func (s *scheduler) stands(c *candidate, machine *v1alpha1.Machine) bool {
	if c.machine.UID != machine.UID || c.machine.Generation != machine.Generation {
		return false
	}
	return c.assigned == nil || s.assumed[client.ObjectKeyFromObject(machine)].uid == machine.UID &&
		s.inventory.Assume(c.assigned.choice, machine.UID)
}
