// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory holds the BareMetalHosts in memory: which of them can be claimed, which NodeTypes they belong to,
// and which one a claim gets. They are indexed, so that neither a choice nor a count visits every host. It writes
// nothing: the Machine controller claims the host, and a choice is only assumed until the claim is on the host.
package inventory

import (
	"context"
	"maps"
	"slices"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Options of an Inventory.
type Options struct {
	// TopologyLabels are the labels of hosts that their nodes inherit and that claims can select on. Unset means rack,
	// nvlink-domain and datacenter. A label with an empty value counts as absent.
	TopologyLabels []string
	// IndexLabels keeps an index of hosts by label, which makes Matching fast. It is needed for Matching only.
	IndexLabels bool
}

// Inventory holds the hosts and the types in memory. It is safe for concurrent use.
type Inventory struct {
	topology []string

	lock   sync.Mutex
	hosts  map[types.NamespacedName]*host
	types  map[string]*nodeType
	byCost []*nodeType
	// used counts the hosts that are claimed or assumed as a type, whether they match it still or not.
	used map[string]int32
	// assumed are the hosts that have been given out, by Machine.
	assumed map[types.UID]*host
	// labelled are the hosts by label; nil without an index.
	labelled map[label]map[*host]struct{}
	// considered is memory for choose: most requests get a host, and need no explanation that outlives the call.
	considered []Candidate

	listening sync.RWMutex
	listeners []func(types []string)

	hostsSynced, typesSynced gate
}

// NewInventory returns an empty inventory.
func NewInventory(options Options) *Inventory {
	topology := options.TopologyLabels
	if topology == nil {
		topology = []string{v1alpha1.RackLabelKey, v1alpha1.NVLinkDomainLabelKey, v1alpha1.DatacenterLabelKey}
	}
	inventory := &Inventory{
		topology:    slices.Compact(slices.Sorted(slices.Values(topology))),
		hosts:       map[types.NamespacedName]*host{},
		types:       map[string]*nodeType{},
		used:        map[string]int32{},
		assumed:     map[types.UID]*host{},
		hostsSynced: newGate(),
		typesSynced: newGate(),
	}
	if options.IndexLabels {
		inventory.labelled = map[label]map[*host]struct{}{}
	}
	return inventory
}

// OnChange adds a listener for the names of the types whose summary or profile may have changed. It is called by the
// goroutine that made the change, after it, and must not block. Names come once per change, sorted; a type that has
// been deleted is among them. Once Synced has become true, the listener gets all names, even if there are none.
func (i *Inventory) OnChange(listener func(types []string)) {
	i.listening.Lock()
	defer i.listening.Unlock()
	i.listeners = append(i.listeners, listener)
}

// SetHost takes in the state of a host as a watch shows it. The host's assumption ends once it shows a consumer.
func (i *Inventory) SetHost(from *bmov1alpha1.BareMetalHost) {
	next := newHost(from)
	changed := changed{}
	i.lock.Lock()
	current, known := i.hosts[next.key]
	switch {
	case !known || current.uid != next.uid || !current.alike(next):
		if known {
			i.take(current, changed)
			if current.uid == next.uid && !next.eligibility.Claimed {
				next.assumedBy, next.assumedAs = current.assumedBy, current.assumedAs
			}
		}
		i.put(next, changed)
	default:
		i.change(current, changed, func() {
			current.labels, current.eligibility, current.claimedAs = next.labels, next.eligibility, next.claimedAs
			if next.eligibility.Claimed {
				i.release(current)
			}
		})
	}
	i.lock.Unlock()
	i.notify(changed)
}

// DeleteHost forgets a host, and with it its assumption.
func (i *Inventory) DeleteHost(key types.NamespacedName) {
	changed := changed{}
	i.lock.Lock()
	if h, known := i.hosts[key]; known {
		i.take(h, changed)
	}
	i.lock.Unlock()
	i.notify(changed)
}

// SetType adds a type or replaces it. Its hosts are looked for only here and when a host's labels change. The profile
// must not be changed afterwards.
func (i *Inventory) SetType(profile Profile) {
	changed := changed{profile.Name: {}}
	i.lock.Lock()
	if current, known := i.types[profile.Name]; known {
		if current.profile.equal(profile) {
			i.lock.Unlock()
			return
		}
		i.drop(current, changed)
	}
	t := newNodeType(profile)
	i.types[profile.Name] = t
	i.byCost = insert(i.byCost, t, byCost)
	for _, h := range i.hosts {
		if profile.selects(h) {
			t.add(h, i.topology)
			h.reshare(changed)
		}
	}
	i.lock.Unlock()
	i.notify(changed)
}

// DeleteType forgets a type.
func (i *Inventory) DeleteType(name string) {
	changed := changed{}
	i.lock.Lock()
	if t, known := i.types[name]; known {
		changed.add(name)
		i.drop(t, changed)
	}
	i.lock.Unlock()
	i.notify(changed)
}

// Forget ends the assumption that a Machine gets a host, because its claim has failed, is not needed any more, or was
// released. It does nothing if the host is not assumed for that Machine.
func (i *Inventory) Forget(key types.NamespacedName, machine types.UID) {
	changed := changed{}
	i.lock.Lock()
	if h, known := i.hosts[key]; known && machine != "" && h.assumedBy == machine {
		i.change(h, changed, func() { i.release(h) })
	}
	i.lock.Unlock()
	i.notify(changed)
}

// Synced returns whether all hosts and all types that were there at the start have been taken in. Nothing may be decided
// before that: a host or type that is not known yet would count as one that does not exist.
func (i *Inventory) Synced() bool { return i.hostsSynced.open() && i.typesSynced.open() }

// WaitForSync blocks until Synced is true. It returns the context's error if that ends first.
func (i *Inventory) WaitForSync(ctx context.Context) error {
	if err := i.hostsSynced.wait(ctx); err != nil {
		return err
	}
	return i.typesSynced.wait(ctx)
}

// MarkTypesSynced is called by the feed of the types, once SetType has been called for each that there is.
func (i *Inventory) MarkTypesSynced() { i.synced(i.typesSynced) }

// MarkHostsSynced is called by the feed of the hosts, once SetHost has been called for each that there is.
func (i *Inventory) MarkHostsSynced() { i.synced(i.hostsSynced) }

// synced closes the channel that WaitForSync waits for, once both are known.
func (i *Inventory) synced(gate gate) {
	if !gate.unlock() || !i.Synced() {
		return
	}
	i.lock.Lock()
	names := slices.Sorted(maps.Keys(i.types))
	i.lock.Unlock()
	i.notifyNames(names)
}

// changed are the names of the types whose hosts or profile a change concerns.
type changed map[string]struct{}

func (c changed) add(name string) {
	if name != "" {
		c[name] = struct{}{}
	}
}

// notify calls the listeners with what has changed. The lock must not be held: they may ask for summaries.
func (i *Inventory) notify(changed changed) {
	if len(changed) > 0 {
		i.notifyNames(slices.Sorted(maps.Keys(changed)))
	}
}

func (i *Inventory) notifyNames(names []string) {
	i.listening.RLock()
	defer i.listening.RUnlock()
	for _, listener := range i.listeners {
		listener(names)
	}
}
