// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// TenantCapacity is what a TenantCluster has, and its quota.
type TenantCapacity struct {
	Metadata `json:"metadata"`
	// Tenant is the namespace and name of the TenantCluster.
	Tenant string `json:"tenant"`
	// Types is how many servers of each NodeType it has or claims.
	Types   map[string]int32 `json:"types,omitempty"`
	Servers int64            `json:"servers"`
	// Accelerators is the number of accelerators in the servers, from their NodeTypes; nil if a NodeType is gone, or
	// the reader may not list NodeTypes.
	Accelerators *int64 `json:"accelerators,omitempty"`
	// InTransit is how many of the servers are not nodes: they are being installed or released.
	InTransit int64 `json:"inTransit"`
	// Waiting is how many Machines have no server.
	Waiting int64          `json:"waiting"`
	Quota   v1alpha1.Quota `json:"quota"`
	// Ready and Message are the status and the message of the condition Ready.
	Ready   metav1.ConditionStatus `json:"ready"`
	Message string                 `json:"message,omitempty"`
}

// Tenants returns the capacity of each TenantCluster, by namespace and name.
func (f *Fleet) Tenants() []TenantCapacity {
	machines := map[string][]v1alpha1.Machine{}
	for _, machine := range f.snapshot.Management.Machines {
		machines[machine.Namespace] = append(machines[machine.Namespace], machine)
	}
	var all []TenantCapacity
	for namespace, tenants := range f.tenants {
		for _, tenant := range tenants {
			ready := conditions.Find(tenant.Status.Conditions, v1alpha1.ConditionReady)
			capacity := TenantCapacity{Metadata: MetadataOf(tenant), Tenant: nameOf(tenant), Types: map[string]int32{},
				Ready: cmp.Or(ready.Status, metav1.ConditionUnknown), Message: ready.Message}
			if tenant.Spec.Quota != nil {
				capacity.Quota = *tenant.Spec.Quota
			}
			charged := quota.Charged(tenant.Name, tenants, machines[namespace])
			for _, name := range quota.Used(charged, "", nil) {
				capacity.Servers++
				capacity.Types[name]++
			}
			capacity.Accelerators = f.acceleratorsOf(capacity.Types)
			for _, machine := range charged {
				if !machine.HasHost() && machine.DeletionTimestamp.IsZero() {
					capacity.Waiting++
				}
				if machine.Status.HostRef != nil && cmp.Or(machine.Status.Phase, v1alpha1.MachinePending) != v1alpha1.MachineJoined {
					capacity.InTransit++
				}
			}
			all = append(all, capacity)
		}
	}
	slices.SortFunc(all, func(a, b TenantCapacity) int { return strings.Compare(a.Tenant, b.Tenant) })
	return all
}

// ByType lists how many servers it has of each NodeType, with its quota for the type: "h100-8x 3 of 4".
func (c TenantCapacity) ByType() (all []string) {
	types := maps.Clone(c.Types)
	for name := range c.Quota.NodeTypes {
		types[name] += 0
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		text := fmt.Sprintf("%s %d", name, types[name])
		if limit, bounded := c.Quota.NodeTypes[name]; bounded {
			text += fmt.Sprintf(" of %d", limit)
		}
		all = append(all, text)
	}
	return all
}

// acceleratorsOf counts the accelerators of these numbers of servers, by NodeType; nil if a NodeType is unknown.
func (f *Fleet) acceleratorsOf(types map[string]int32) *int64 {
	sum := int64(0)
	for name, servers := range types {
		nodeType := f.nodeTypes[name]
		if nodeType == nil {
			return nil
		}
		sum += int64(servers) * nodeType.Spec.CountAccelerators()
	}
	return &sum
}
