// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory holds the BareMetalHosts in memory: which can be claimed, which NodeTypes they belong to, and which
// host a claim gets. Indexes avoid a visit of every host for a choice or a count. The package writes nothing: the
// Machine controller claims the host, and a choice is only assumed until the claim is on the host.
package inventory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

// Options of an Inventory.
type Options struct {
	// Topology maps labels of hosts to labels of their nodes, which claims can select on. Nil is the default.
	Topology *topology.Mapping
}

// Inventory holds the hosts and the types in memory. It is safe for concurrent use.
type Inventory struct {
	topology topology.Mapping

	lock   sync.Mutex
	hosts  map[types.NamespacedName]*host
	types  map[string]*nodeType
	byCost []*nodeType
	// used counts the hosts that are claimed or assumed as a type, even if they no longer match it.
	used map[string]int32
	// claims is the number of the last claim that was decided.
	claims int64
	// assumed are the hosts that were given out, by Machine.
	assumed map[types.UID]*host
	// exclusive counts, by namespace of the hosts and label, the types that give each domain of the label to one tenant.
	exclusive map[string]map[string]int
	domains   map[place]*domain
	// stateChanges counts, by namespace, how often a host has changed its provisioning state.
	stateChanges map[string]int64
	// considered is memory for choose: most requests get a host, and need no explanation after the call.
	considered []Candidate

	listening sync.RWMutex
	listeners []func(types []string)

	// hostsSynced and typesSynced are closed once all hosts, or types, are known.
	hostsSynced, typesSynced chan struct{}
}

// NewInventory returns an empty inventory.
func NewInventory(options Options) *Inventory {
	mapping := topology.Default()
	if options.Topology != nil {
		mapping = *options.Topology
	}
	return &Inventory{
		topology:  mapping,
		hosts:     map[types.NamespacedName]*host{},
		types:     map[string]*nodeType{},
		used:      map[string]int32{},
		assumed:   map[types.UID]*host{},
		exclusive: map[string]map[string]int{},
		domains:   map[place]*domain{},

		stateChanges: map[string]int64{},

		hostsSynced: make(chan struct{}),
		typesSynced: make(chan struct{}),
	}
}

// OnChange adds a listener for the names of the types whose summary or profile may have changed. The goroutine that
// made the change calls it afterwards; it must not block. Names come once per change, sorted, and include deleted
// types. Once Synced has become true, the listener gets all names, even if there are none.
func (i *Inventory) OnChange(listener func(types []string)) {
	i.listening.Lock()
	defer i.listening.Unlock()
	i.listeners = append(i.listeners, listener)
}

// SetHost takes in the state of a host from a watch. The host's assumption ends once it shows a consumer.
func (i *Inventory) SetHost(from *bmov1alpha1.BareMetalHost) {
	next := newHost(from)
	i.update(func(changed changed) {
		current, known := i.hosts[next.key]
		if known && current.provisioning != next.provisioning {
			current.provisioning = next.provisioning
			i.stateChanges[next.key.Namespace]++
		}
		if known && current.uid == next.uid && current.alike(next) {
			i.change(current, changed, func() {
				current.labels, current.eligibility, current.claimedAs = next.labels, next.eligibility, next.claimedAs
				current.heldBy, current.uncleaned = next.heldBy, next.uncleaned
				if next.eligibility.Claimed {
					i.release(current)
				}
			})
			return
		}
		if known {
			i.take(current, changed)
			if current.uid == next.uid {
				next.claim = current.claim
			}
			if current.uid == next.uid && !next.eligibility.Claimed {
				next.assumedBy, next.assumedAs, next.assumedFor = current.assumedBy, current.assumedAs, current.assumedFor
			}
		}
		i.put(next, changed)
	})
}

// StateChanges returns how often hosts of a namespace have changed their provisioning state. While it stays the same,
// Metal3 does nothing visible there.
func (i *Inventory) StateChanges(namespace string) int64 {
	i.lock.Lock()
	defer i.lock.Unlock()
	return i.stateChanges[namespace]
}

// DeleteHost forgets a host and its assumption.
func (i *Inventory) DeleteHost(key types.NamespacedName) {
	i.update(func(changed changed) {
		if h, known := i.hosts[key]; known {
			i.take(h, changed)
		}
	})
}

// SetType adds a type or replaces it. Only this, and a change of a host's labels, looks for the hosts of a type. The
// caller must not change the profile afterwards.
func (i *Inventory) SetType(profile Profile) {
	i.update(func(changed changed) {
		current, known := i.types[profile.Name]
		if known && current.profile.equal(profile) {
			return
		}
		i.exclude(profile, 1, changed) // before the other is dropped: mostly, they exclude the same
		if known {
			i.drop(current, changed)
		}
		changed.add(profile.Name)
		t := newNodeType(profile)
		i.types[profile.Name] = t
		i.byCost = insert(i.byCost, t, byCost)
		for _, h := range i.hosts {
			if profile.selects(h) {
				i.fill(h, append(i.empty(h, changed), profile.Name), changed)
			}
		}
	})
}

// DeleteType forgets a type.
func (i *Inventory) DeleteType(name string) {
	i.update(func(changed changed) {
		if t, known := i.types[name]; known {
			changed.add(name)
			i.drop(t, changed)
		}
	})
}

// Forget ends the assumption that a Machine gets a host, because its claim failed, is not needed any more, or was
// released. It does nothing if the host is not assumed for that Machine.
func (i *Inventory) Forget(key types.NamespacedName, machine types.UID) {
	i.update(func(changed changed) {
		if h, known := i.hosts[key]; known && machine != "" && h.assumedBy == machine {
			i.change(h, changed, func() { i.release(h) })
			h.claim = claim{}
		}
	})
}

// update changes the inventory under its lock, and then calls the listeners with the names of the changed types. They
// may ask for summaries.
func (i *Inventory) update(change func(changed)) {
	changed := changed{}
	i.lock.Lock()
	change(changed)
	i.lock.Unlock()
	if len(changed) > 0 {
		i.notify(slices.Sorted(maps.Keys(changed)))
	}
}

// Synced reports whether the inventory has all hosts and types that existed at the start. Nothing may be decided
// before: a host or type that is not known yet would count as missing.
func (i *Inventory) Synced() bool { return isClosed(i.hostsSynced) && isClosed(i.typesSynced) }

// WaitForSync blocks until Synced is true. It returns the context's error if the context ends first.
func (i *Inventory) WaitForSync(ctx context.Context) error {
	return cmp.Or(wait(ctx, i.hostsSynced), wait(ctx, i.typesSynced))
}

// WaitForHosts is WaitForSync for the hosts alone.
func (i *Inventory) WaitForHosts(ctx context.Context) error { return wait(ctx, i.hostsSynced) }

// MarkTypesSynced tells the inventory that the feed has called SetType for each existing type.
func (i *Inventory) MarkTypesSynced() { i.synced(i.typesSynced) }

// MarkHostsSynced tells the inventory that the feed has called SetHost for each existing host.
func (i *Inventory) MarkHostsSynced() { i.synced(i.hostsSynced) }

// synced closes one of the channels that WaitForSync waits for, and calls the listeners once both are closed.
func (i *Inventory) synced(channel chan struct{}) {
	i.lock.Lock()
	opens := !isClosed(channel)
	if opens {
		close(channel)
	}
	synced, names := i.Synced(), slices.Sorted(maps.Keys(i.types))
	i.lock.Unlock()
	if opens && synced {
		i.notify(names)
	}
}

// changed are the names of the types whose hosts or profile a change concerns.
type changed map[string]struct{}

func (c changed) add(name string) {
	if name != "" {
		c[name] = struct{}{}
	}
}

func (i *Inventory) notify(names []string) {
	i.listening.RLock()
	defer i.listening.RUnlock()
	for _, listener := range i.listeners {
		listener(names)
	}
}

// put adds a host that is not known yet. The caller must hold the lock, also for the following functions.
func (i *Inventory) put(h *host, changed changed) {
	i.hosts[h.key] = h
	if h.assumedBy != "" {
		i.assumed[h.assumedBy] = h
	}
	i.use(h.usedAs(), 1, changed)
	var matches []string
	for name, t := range i.types {
		if t.profile.selects(h) {
			matches = append(matches, name)
		}
	}
	i.fill(h, matches, changed)
}

// fill puts a host that is in no bucket into the buckets of the types that it matches.
func (i *Inventory) fill(h *host, matches []string, changed changed) {
	slices.Sort(matches)
	h.matches = matches
	i.join(h, changed)
	for _, name := range matches {
		i.types[name].add(h, i.topology)
		changed.add(name)
	}
}

// empty takes a host out of its buckets, and returns the types of the buckets.
func (i *Inventory) empty(h *host, changed changed) (matches []string) {
	i.leave(h, changed)
	matches = slices.Collect(maps.Keys(h.buckets))
	for _, name := range matches {
		i.types[name].remove(h)
		changed.add(name)
	}
	return matches
}

// take removes a known host. The host keeps the Machine that it was assumed for.
func (i *Inventory) take(h *host, changed changed) {
	i.empty(h, changed)
	i.use(h.usedAs(), -1, changed)
	if h.assumedBy != "" {
		delete(i.assumed, h.assumedBy)
	}
	delete(i.hosts, h.key)
}

// change changes a host in place; the host stays in its buckets.
func (i *Inventory) change(h *host, changed changed, mutate func()) {
	counts, used, message := h.counts(), h.usedAs(), h.eligibility.Message
	before := h.standing()
	mutate()
	h.stands(before, h.standing(), changed)
	if now := h.usedAs(); now != used {
		i.use(used, -1, changed)
		i.use(now, 1, changed)
	}
	if h.eligibility.Message != message {
		for name := range h.buckets {
			changed.add(name) // the message of a Machine that is pinned to the host has the reason
		}
	}
	now := h.counts()
	if now == counts {
		return
	}
	for name, b := range h.buckets {
		old, new := h.countedAs(name, counts), h.countedAs(name, now)
		if old == new {
			continue
		}
		i.types[name].count(h, b, old, new)
		changed.add(name)
	}
}

// reserve assumes a host for a Machine, inside a change.
func (i *Inventory) reserve(h *host, choice Choice, machine types.UID) {
	h.assumedBy, h.assumedAs, h.assumedFor = machine, choice.NodeType, choice.Tenant
	i.assumed[machine] = h
}

// release ends a host's assumption, inside a change.
func (i *Inventory) release(h *host) {
	if h.assumedBy != "" {
		delete(i.assumed, h.assumedBy)
	}
	h.assumedBy, h.assumedAs, h.assumedFor = "", "", ""
}

// drop removes a type. Hosts that were claimed as it are still counted, in case it comes back.
func (i *Inventory) drop(t *nodeType, changed changed) {
	for _, h := range i.hosts {
		if _, member := h.buckets[t.profile.Name]; member {
			delete(h.buckets, t.profile.Name)
			delete(h.lacks, t.profile.Name)
			i.fill(h, i.empty(h, changed), changed)
		}
	}
	i.byCost = remove(i.byCost, t, byCost)
	delete(i.types, t.profile.Name)
	i.exclude(t.profile, -1, changed)
}

// use adds a difference to the number of hosts that are claimed as a type.
func (i *Inventory) use(name string, difference int32, changed changed) {
	if name == "" {
		return
	}
	changed.add(name)
	i.used[name] += difference
	if i.used[name] == 0 {
		delete(i.used, name)
	}
}

// isClosed reports whether a channel that nothing is sent to is closed.
func isClosed(channel chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

func wait(ctx context.Context, channel chan struct{}) error {
	select {
	case <-channel:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
