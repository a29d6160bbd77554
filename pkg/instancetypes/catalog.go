// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Catalog holds the NodeTypes that there are, as instance types. It is safe for concurrent use. A type is converted
// again only when it, or the set of labels that types advertise, has changed; reading costs a walk over the types.
// What it gives out is shared: callers must not change instance types, and core does not.
type Catalog struct {
	settings Settings

	mu    sync.Mutex
	types map[string]*entry
	keys  []string
	// used are the topology labels that somebody asks for, with when somebody did last.
	used map[string]time.Time
	// current is nil after a change, until somebody reads.
	current atomic.Pointer[snapshot]
	// listeners are only added to.
	listeners []func()
}

type entry struct {
	nodeType  *v1alpha1.NodeType
	converted *cloudprovider.InstanceType // nil: to be converted
}

// snapshot is never changed once it is published.
type snapshot struct {
	items  []item
	byName map[string]*cloudprovider.InstanceType
	keys   map[string]struct{}
}

type item struct {
	name, provider string
	nodeType       *v1alpha1.NodeType
	instanceType   *cloudprovider.InstanceType
}

// NewCatalog returns an empty catalog.
func NewCatalog(settings Settings) *Catalog {
	return &Catalog{settings: settings, types: map[string]*entry{}, used: map[string]time.Time{}}
}

// Settings are what the catalog was made with.
func (c *Catalog) Settings() Settings { return c.settings }

// OnChange adds a listener that is called after each change, by whoever made it. It must not block.
func (c *Catalog) OnChange(listener func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(slices.Clone(c.listeners), listener)
}

// Set adds a NodeType or replaces it. The catalog keeps it: it must not be changed afterwards.
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

// changed gives the lock back, and tells the listeners.
func (c *Catalog) changed() {
	c.current.Store(nil)
	listeners := c.listeners
	c.mu.Unlock()
	for _, listener := range listeners {
		listener()
	}
}

// InstanceTypes returns the types that pass the filter, by name, also those that are exhausted. The slice is the
// caller's, the types are not.
func (c *Catalog) InstanceTypes(filter Filter) []*cloudprovider.InstanceType {
	items := c.read().items
	types := make([]*cloudprovider.InstanceType, 0, len(items))
	for i := range items {
		if filter.Allows(items[i].name, items[i].provider) {
			types = append(types, items[i].instanceType)
		}
	}
	return types
}

// InstanceType returns the type of that name.
func (c *Catalog) InstanceType(name string) (*cloudprovider.InstanceType, bool) {
	instanceType, found := c.read().byName[name]
	return instanceType, found
}

// Advertises tells whether some NodeType has a label of that key.
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

// build converts what has changed. The caller holds the lock.
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
				set[requirement.Key] = struct{}{}
			}
		}
	}
	slices.SortFunc(known, func(a, b *entry) int { return strings.Compare(a.nodeType.Name, b.nodeType.Name) })
	keys := make([]string, 0, len(set))
	for key := range set {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	sameKeys := slices.Equal(keys, c.keys)
	c.keys = keys

	result := &snapshot{items: make([]item, 0, len(known)), byName: make(map[string]*cloudprovider.InstanceType, len(known)), keys: set}
	for _, entry := range known {
		if entry.converted == nil || !sameKeys {
			entry.converted = convert(entry.nodeType, keys, c.settings, c.inUse)
		}
		result.items = append(result.items, item{
			name: entry.nodeType.Name, provider: entry.nodeType.Spec.ProviderRef.Name, nodeType: entry.nodeType, instanceType: entry.converted,
		})
		result.byName[entry.nodeType.Name] = entry.converted
	}
	return result
}
