// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package instancetypes converts NodeTypes to Karpenter's instance types, with their requirements, capacity and
// offerings. It has no client: callers put NodeTypes into a Catalog, and read instance types from it.
package instancetypes

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
)

// Catalog holds the NodeTypes as instance types. It is safe for concurrent use. A type is converted again only when it,
// or the set of labels that types advertise, has changed; reading costs a walk over the types. Instance types are
// shared: callers must not change them, and core does not.
type Catalog struct {
	// pods is the number of pods on a node whose NodeType has no resource "pods".
	pods int64

	mu    sync.Mutex
	types map[string]*entry
	keys  []string
	// current is nil after a change, until the next read.
	current atomic.Pointer[snapshot]
	// planned are the types for the demand of the last caller.
	planned atomic.Pointer[plannedTypes]
	// remainder is the result of the last call of Without.
	remainder atomic.Pointer[Remainder]
	// listeners are only added to.
	listeners []func()
	// sizes of the tenant's own nodes.
	sizes *nodeSizes
}

type entry struct {
	nodeType  *v1alpha1.NodeType
	converted *cloudprovider.InstanceType // nil: not converted yet
}

// snapshot never changes after its publication.
type snapshot struct {
	items  []item
	byName map[string]*item
	keys   map[string]struct{}
}

// plannedTypes are the types of a snapshot, in its order, with the offerings for a demand. It never changes either.
type plannedTypes struct {
	snapshot *snapshot
	demand   *Demand
	types    []*cloudprovider.InstanceType
}

type item struct {
	name         string
	nodeType     *v1alpha1.NodeType
	instanceType *cloudprovider.InstanceType
	// sharedWith are the other types that match some of its servers.
	sharedWith []string
}

// NewCatalog returns an empty catalog. pods is the number of pods on a node whose NodeType has no resource "pods".
func NewCatalog(pods int64) *Catalog {
	return &Catalog{pods: pods, types: map[string]*entry{},
		sizes: &nodeSizes{clock: clock.RealClock{}, nodes: map[types.UID]nodeSize{}}}
}

// OnChange adds a listener. The goroutine that made a change calls it afterwards. It must not block.
func (c *Catalog) OnChange(listener func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(slices.Clone(c.listeners), listener)
}

// Set adds a NodeType or replaces it. The catalog keeps it: the caller must not change it afterwards.
func (c *Catalog) Set(nodeType *v1alpha1.NodeType) {
	c.mu.Lock()
	if old := c.types[nodeType.Name]; old != nil && old.nodeType.UID == nodeType.UID &&
		old.nodeType.ResourceVersion == nodeType.ResourceVersion && nodeType.ResourceVersion != "" {
		c.mu.Unlock()
		return
	}
	c.types[nodeType.Name] = &entry{nodeType: nodeType}
	c.changed()
}

// Delete removes a NodeType.
func (c *Catalog) Delete(name string) {
	c.mu.Lock()
	delete(c.types, name)
	c.changed()
}

// changed releases the lock and calls the listeners.
func (c *Catalog) changed() {
	c.current.Store(nil)
	c.mu.Unlock()
	c.Notify()
}

// Notify calls the listeners after a change of Machines: more servers may be left.
func (c *Catalog) Notify() {
	c.mu.Lock()
	listeners := c.listeners
	c.mu.Unlock()
	for _, listener := range listeners {
		listener()
	}
}

// InstanceTypes returns the types that pass the filter, by name, including exhausted types. The caller owns the slice,
// but not the types.
func (c *Catalog) InstanceTypes(filter Filter) []*cloudprovider.InstanceType {
	items, own := c.read().items, c.OwnNodes(filter)
	types := make([]*cloudprovider.InstanceType, 0, len(items))
	for i := range items {
		if filter.Allows(items[i].nodeType) {
			types = append(types, withNode(items[i].instanceType, items[i].nodeType, filter.kubelet, own(items[i].name)))
		}
	}
	return types
}

// InstanceTypesFor returns the same types with the offerings that core needs to schedule the pods of a demand.
func (c *Catalog) InstanceTypesFor(filter Filter, demand *Demand) []*cloudprovider.InstanceType {
	current := c.read()
	planned := c.planned.Load()
	if planned == nil || planned.snapshot != current || !planned.demand.Equal(demand) {
		planned = &plannedTypes{snapshot: current, demand: demand, types: make([]*cloudprovider.InstanceType, len(current.items))}
		for i := range current.items {
			planned.types[i] = withDemand(&current.items[i], demand)
		}
		c.planned.Store(planned)
	}
	types, own := make([]*cloudprovider.InstanceType, 0, len(planned.types)), c.OwnNodes(filter)
	for i := range current.items {
		if nodeType := current.items[i].nodeType; filter.Allows(nodeType) {
			types = append(types, withNode(planned.types[i], nodeType, filter.kubelet, own(nodeType.Name)))
		}
	}
	return types
}

// withDemand returns the type itself if the demand uses no label that differs between its servers.
func withDemand(item *item, demand *Demand) *cloudprovider.InstanceType {
	used := len(demand.typeLabels()) > 0 || slices.ContainsFunc(item.nodeType.Status.Domains, func(domain v1alpha1.DomainCapacity) bool {
		for key := range domain.Labels {
			if demand.uses(key) {
				return true
			}
		}
		return false
	})
	if !used {
		return item.instanceType
	}
	return withOfferings(item.instanceType, offerings(item.nodeType, demand))
}

// withOfferings copies a type with other offerings. It does not copy the struct, because core stores there what it
// derives from the offerings.
func withOfferings(original *cloudprovider.InstanceType, offerings cloudprovider.Offerings) *cloudprovider.InstanceType {
	return &cloudprovider.InstanceType{
		Name:             original.Name,
		Requirements:     original.Requirements,
		Offerings:        offerings,
		Capacity:         original.Capacity,
		DynamicResources: original.DynamicResources,
		Overhead:         original.Overhead,
	}
}

// WithOfferings copies a type and its offerings, and changes each copy. What they refer to belongs to the original.
func WithOfferings(original *cloudprovider.InstanceType, change func(*cloudprovider.Offering)) *cloudprovider.InstanceType {
	offerings := make(cloudprovider.Offerings, len(original.Offerings))
	for i, offering := range original.Offerings {
		changed := *offering
		change(&changed)
		offerings[i] = &changed
	}
	return withOfferings(original, offerings)
}

// InstanceType returns the type of that name.
func (c *Catalog) InstanceType(name string) (*cloudprovider.InstanceType, bool) {
	found, known := c.read().byName[name]
	if !known {
		return nil, false
	}
	return found.instanceType, true
}

// InstanceTypeOf returns the type of a Machine as its node probably is, false if the type does not exist.
func (c *Catalog) InstanceTypeOf(machine *v1alpha1.Machine) (*cloudprovider.InstanceType, bool) {
	if machine.Status.NodeTypeRef == nil {
		return nil, false
	}
	found, known := c.read().byName[machine.Status.NodeTypeRef.Name]
	if !known {
		return nil, false
	}
	kubelet, _ := capacity.ParseKubelet(machine.Spec.KubeletArgs)
	own := c.sizes.limit(newSizeKey(found.name, machine.Spec.Properties, machine.Spec.KubeletArgs))
	return withNode(found.instanceType, found.nodeType, kubelet, own), true
}

// NodeType returns the NodeType of that name, or nil if there is none. The caller must not change it.
func (c *Catalog) NodeType(name string) *v1alpha1.NodeType {
	found, known := c.read().byName[name]
	if !known {
		return nil
	}
	return found.nodeType
}

// Exists reports whether a type has that name.
func (c *Catalog) Exists(name string) bool {
	_, found := c.InstanceType(name)
	return found
}

// Offered returns the labels of the nodes of each type of a NodeProvider.
func (c *Catalog) Offered(provider string) (offered []matching.Offered) {
	items := c.read().items
	for i := range items {
		if items[i].nodeType.Spec.ProviderRef.Name == provider {
			offered = append(offered, matching.OfferedBy(items[i].nodeType))
		}
	}
	return offered
}

// Gone stands for a type that does not exist, or not yet again, so that its running nodes keep their price and do not
// drift. It has no servers.
func (c *Catalog) Gone(name string, cost int64) *cloudprovider.InstanceType {
	nodeType := &v1alpha1.NodeType{}
	nodeType.Name, nodeType.Status.Cost = name, cost
	return convert(nodeType, nil, c.pods, noDemand())
}

// Advertises reports whether some NodeType has a label of that key.
func (c *Catalog) Advertises(key string) bool {
	_, found := c.read().keys[key]
	return found
}

func (c *Catalog) read() *snapshot {
	if current := c.current.Load(); current != nil {
		return current
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if current := c.current.Load(); current != nil {
		return current
	}
	current := c.build()
	c.current.Store(current)
	return current
}

// build converts the changed types. The caller holds the lock.
func (c *Catalog) build() *snapshot {
	known := make([]*entry, 0, len(c.types))
	set := map[string]struct{}{}
	for _, entry := range c.types {
		if !Known(entry.nodeType) {
			continue
		}
		known = append(known, entry)
		for _, requirement := range entry.nodeType.Status.Requirements {
			if Selectable(requirement.Key) {
				for _, key := range v1alpha1.Spellings(requirement.Key) {
					set[key] = struct{}{}
				}
			}
		}
	}
	slices.SortFunc(known, func(a, b *entry) int { return strings.Compare(a.nodeType.Name, b.nodeType.Name) })
	keys := slices.Sorted(maps.Keys(set))
	sameKeys := slices.Equal(keys, c.keys)
	c.keys = keys

	result := &snapshot{items: make([]item, 0, len(known)), byName: make(map[string]*item, len(known)), keys: set}
	for _, entry := range known {
		if entry.converted == nil || !sameKeys {
			entry.converted = convert(entry.nodeType, keys, c.pods, noDemand())
		}
		item := item{name: entry.nodeType.Name, nodeType: entry.nodeType, instanceType: entry.converted}
		for _, domain := range entry.nodeType.Status.Domains {
			item.sharedWith = append(item.sharedWith, domain.SharedWith...)
		}
		slices.Sort(item.sharedWith)
		item.sharedWith = slices.Compact(item.sharedWith)
		result.items = append(result.items, item)
	}
	for i := range result.items {
		result.byName[result.items[i].name] = &result.items[i]
	}
	return result
}
