// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// sizeMemory is how long the size of a node counts after its Machine has gone. A node that is too small for its pods
// stays empty, and its server is given back within minutes: without a memory it would be launched for them again. The
// memory ends, because the server may have been repaired.
const sizeMemory = 6 * time.Hour

// nodeSizes are the sizes of the tenant's own nodes. It is safe for concurrent use.
type nodeSizes struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	nodes map[types.UID]nodeSize
	// least is computed from the nodes and valid until fades. It is nil after a change.
	least map[sizeKey]corev1.ResourceList
	fades time.Time
}

// sizeKey is the same for nodes of equal size: the NodeType, and what a MetalNodeClass gives their Machines.
type sizeKey struct {
	nodeType string
	class    [sha256.Size]byte
}

type nodeSize struct {
	key       sizeKey
	resources corev1.ResourceList
	until     time.Time // zero: the Machine exists
}

func newSizeKey(nodeType string, properties map[string]string, args v1alpha1.KubeletArgs) sizeKey {
	return sizeKey{nodeType, sha256.Sum256([]byte(fmt.Sprint(properties, args)))} // fmt sorts maps
}

// Observe remembers the size of the node of a Machine of the tenant. The catalog then plans with it for Machines with
// the same NodeType, properties and kubelet arguments. It is the tenant's own report, so the type's declaration is the
// only bound. A Machine that has drifted does not count: the next one would be installed differently.
func (c *Catalog) Observe(machine *v1alpha1.Machine) {
	size := machine.NodeSize()
	if meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionDrifted) {
		size = nil
	}
	s := c.sizes
	s.mu.Lock()
	defer s.mu.Unlock()
	known, found := s.nodes[machine.UID]
	if size == nil {
		if found {
			delete(s.nodes, machine.UID)
			s.least = nil
		}
		return
	}
	now := nodeSize{key: newSizeKey(machine.Status.NodeTypeRef.Name, machine.Spec.Properties, machine.Spec.KubeletArgs), resources: size}
	if !equality.Semantic.DeepEqual(known.resources, now.resources) || known.key != now.key {
		s.nodes[machine.UID], s.least = now, nil
	}
}

// Forget notes that a Machine of the tenant has gone. The size of its node counts for six more hours.
func (c *Catalog) Forget(machine *v1alpha1.Machine) {
	s := c.sizes
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, found := s.nodes[machine.UID]; found {
		known.until = s.clock.Now().Add(sizeMemory)
		s.nodes[machine.UID], s.least = known, nil
	}
}

// limit returns the least sizes of nodes with the key, nil if none is known. The caller must not change it.
func (s *nodeSizes) limit(key sizeKey) corev1.ResourceList {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if s.least == nil || !now.Before(s.fades) {
		s.least, s.fades = map[sizeKey]corev1.ResourceList{}, now.Add(sizeMemory)
		for uid, node := range s.nodes {
			switch {
			case node.until.IsZero():
			case !now.Before(node.until):
				delete(s.nodes, uid)
				continue
			case node.until.Before(s.fades):
				s.fades = node.until
			}
			s.least[node.key] = leastOf(s.least[node.key], node.resources)
		}
	}
	return s.least[key]
}

// leastOf returns the lesser quantity of each resource.
func leastOf(a, b corev1.ResourceList) corev1.ResourceList {
	least := maps.Clone(a)
	if least == nil {
		least = corev1.ResourceList{}
	}
	for name, other := range b {
		if has, found := least[name]; !found || other.Cmp(has) < 0 {
			least[name] = other
		}
	}
	return least
}

// OwnNodes returns a function for the least cpu in cores, and memory and ephemeral-storage in bytes, of the tenant's
// own nodes of a NodeType and the filter's class, nil if unknown. The caller must not change its result.
func (c *Catalog) OwnNodes(filter Filter) func(nodeType string) corev1.ResourceList {
	if filter.class == nil || c.sizes.isEmpty() {
		return func(string) corev1.ResourceList { return nil }
	}
	key := newSizeKey("", filter.class.Spec.Properties, filter.class.Spec.KubeletArgs)
	return func(nodeType string) corev1.ResourceList {
		key.nodeType = nodeType
		return c.sizes.limit(key)
	}
}

// isEmpty reports whether no size is known.
func (s *nodeSizes) isEmpty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.nodes) == 0
}
