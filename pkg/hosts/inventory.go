// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

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
	// IndexLabels keeps an index of hosts by label, which makes Matching fast. Who does not call Matching does without.
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

	listening     sync.RWMutex
	listeners     []func(types []string)
	gainListeners []func(Gain)

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

// OnChange adds a listener that is told the names of the types whose summary or profile may have changed. It is called
// from whoever made the change, after it, and must not block. Names come once per change, sorted; a type that has been
// deleted is among them. Once Synced has become true, all names are told, even if there are none.
func (i *Inventory) OnChange(listener func(types []string)) {
	i.listening.Lock()
	defer i.listening.Unlock()
	i.listeners = append(i.listeners, listener)
}

// OnGain adds a listener that is told what a change may have made possible. It is called as those of OnChange are, and
// before them.
func (i *Inventory) OnGain(listener func(Gain)) {
	i.listening.Lock()
	defer i.listening.Unlock()
	i.gainListeners = append(i.gainListeners, listener)
}

// SetHost takes in the state of a host as a watch shows it. The host's assumption ends once it shows a consumer.
func (i *Inventory) SetHost(from *bmov1alpha1.BareMetalHost) {
	next := newHost(from)
	touched := newTouched()
	i.lock.Lock()
	current, known := i.hosts[next.key]
	switch {
	case !known || current.uid != next.uid || !current.alike(next):
		if known {
			i.take(current, touched)
			if current.uid == next.uid && !next.verdict.Claimed {
				next.assumedBy, next.assumedAs = current.assumedBy, current.assumedAs
			}
		}
		i.put(next, touched)
	default:
		i.change(current, touched, func() {
			current.labels, current.verdict, current.claimedAs = next.labels, next.verdict, next.claimedAs
			if next.verdict.Claimed {
				i.release(current)
			}
		})
	}
	i.lock.Unlock()
	i.tell(touched)
}

// DeleteHost forgets a host, and with it its assumption.
func (i *Inventory) DeleteHost(key types.NamespacedName) {
	touched := newTouched()
	i.lock.Lock()
	if h, known := i.hosts[key]; known {
		i.take(h, touched)
	}
	i.lock.Unlock()
	i.tell(touched)
}

// SetType adds a type or replaces it. Its hosts are looked for only here and when a host's labels change. The profile
// must not be changed afterwards.
func (i *Inventory) SetType(profile Profile) {
	touched := touchedProfile(profile.Name)
	i.lock.Lock()
	if current, known := i.types[profile.Name]; known {
		if current.profile.equal(profile) {
			i.lock.Unlock()
			return
		}
		i.drop(current, touched)
	}
	t := newNodeType(profile)
	i.types[profile.Name] = t
	i.byCost = insertByCost(i.byCost, t)
	for _, h := range i.hosts {
		if profile.selects(h) {
			t.add(h, i.topology)
			h.reshare(touched)
		}
	}
	i.lock.Unlock()
	i.tell(touched)
}

// DeleteType forgets a type.
func (i *Inventory) DeleteType(name string) {
	touched := newTouched()
	i.lock.Lock()
	if t, known := i.types[name]; known {
		touched = touchedProfile(name)
		i.drop(t, touched)
	}
	i.lock.Unlock()
	i.tell(touched)
}

// Forget ends the assumption that a Machine gets a host, because its claim has failed, is not wanted any more, or has
// been given back. It does nothing if the host is not assumed for that Machine.
func (i *Inventory) Forget(key types.NamespacedName, machine types.UID) {
	touched := newTouched()
	i.lock.Lock()
	if h, known := i.hosts[key]; known && machine != "" && h.assumedBy == machine {
		i.change(h, touched, func() { i.release(h) })
	}
	i.lock.Unlock()
	i.tell(touched)
}

// Synced tells whether all hosts and all types that were there at the start have been taken in. Nothing may be decided
// before that: a host or type that is not known yet would count as one that does not exist.
func (i *Inventory) Synced() bool { return i.hostsSynced.open() && i.typesSynced.open() }

// WaitForSync blocks until Synced is true. It returns the context's error if that ends first.
func (i *Inventory) WaitForSync(ctx context.Context) error {
	if err := i.hostsSynced.wait(ctx); err != nil {
		return err
	}
	return i.typesSynced.wait(ctx)
}

// MarkTypesSynced is called by whoever feeds the types, once SetType has been called for each that there is.
func (i *Inventory) MarkTypesSynced() { i.synced(i.typesSynced) }

// MarkHostsSynced is called by whoever feeds the hosts, once SetHost has been called for each that there is.
func (i *Inventory) MarkHostsSynced() { i.synced(i.hostsSynced) }

// synced opens a gate, and wakes all who have waited for both.
func (i *Inventory) synced(gate gate) {
	if !gate.unlock() || !i.Synced() {
		return
	}
	i.lock.Lock()
	names := slices.Sorted(maps.Keys(i.types))
	i.lock.Unlock()
	i.notify(names)
}
