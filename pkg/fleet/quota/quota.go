// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quota decides whether a tenant may have one server more.
package quota

import (
	"fmt"
	"math"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// ExceededError means that a tenant has reached its quota.
type ExceededError struct {
	// Message states the use, the quota and the remedy, in one sentence.
	Message string
	// Total is true if the tenant may have no more servers of any type. Otherwise a server of another type may be
	// within the quota.
	Total bool
	// Elsewhere is true if a server in another domain would be within the quota.
	Elsewhere bool
}

// Error implements error.
func (e *ExceededError) Error() string { return e.Message }

// Charged returns the Machines that are charged to the TenantCluster with this name. The arguments are all
// TenantClusters and Machines of its namespace.
func Charged(name string, tenants []*v1alpha1.TenantCluster, machines []v1alpha1.Machine) []*v1alpha1.Machine {
	var charged []*v1alpha1.Machine
	for i := range machines {
		if to := ChargedTo(&machines[i], tenants); to != nil && to.Name == name {
			charged = append(charged, &machines[i])
		}
	}
	return charged
}

// Used returns the NodeType of each server that the charged Machines have or claim. It skips the Machine with the UID
// except. Assumed returns the type that a Machine without a server is about to get, empty if none; it may be nil.
func Used(charged []*v1alpha1.Machine, except types.UID, assumed func(*v1alpha1.Machine) string) []string {
	var used []string
	for _, machine := range charged {
		if machine.UID == except {
			continue
		}
		chosen, err := machine.ChosenHost()
		switch {
		case machine.Status.HostRef != nil && machine.Status.NodeTypeRef != nil:
			used = append(used, machine.Status.NodeTypeRef.Name)
		case machine.Status.HostRef != nil, err != nil:
			used = append(used, "")
		case chosen != nil:
			used = append(used, chosen.NodeType)
		case assumed != nil:
			if nodeType := assumed(machine); nodeType != "" {
				used = append(used, nodeType)
			}
		}
	}
	return used
}

// Usage is what a tenant has, or is about to get, in the units of a quota.
type Usage struct {
	// Servers counts the servers of all types. GPUs counts their accelerators, if the quota limits accelerators.
	Servers, GPUs int64
	// NodeTypes counts the servers by NodeType.
	NodeTypes map[string]int64
}

// Rest is a quota and its usage. The provider plans with what the quota leaves; the manager and the webhook refuse
// anything beyond that. The zero value has no limits.
type Rest struct {
	// Tenant is the owner of the quota.
	Tenant types.NamespacedName
	// Quota is nil if there is no limit.
	Quota *v1alpha1.Quota
	Usage Usage
	// Accelerators returns the number of accelerators of one server of a type; nil counts none. It returns 0 for a type
	// that no longer exists, so that this type does not keep the tenant from all others.
	Accelerators func(nodeType string) int64
}

// RestOf returns the quota of a tenant with its usage: used has the type of each of its servers, empty if it is not
// known.
func RestOf(tenant *v1alpha1.TenantCluster, used []string, accelerators func(nodeType string) int64) Rest {
	rest := Rest{Tenant: types.NamespacedName{Namespace: tenant.Namespace, Name: tenant.Name}, Quota: tenant.Spec.Quota,
		Accelerators: accelerators, Usage: Usage{NodeTypes: map[string]int64{}}}
	for _, nodeType := range used {
		rest.Usage.Servers++
		rest.Usage.GPUs += rest.gpus(nodeType)
		rest.Usage.NodeTypes[nodeType]++
	}
	return rest
}

func (r Rest) gpus(nodeType string) int64 {
	if r.Quota == nil || r.Quota.GPUs == nil || r.Accelerators == nil || nodeType == "" {
		return 0
	}
	return r.Accelerators(nodeType)
}

// Of returns how many more servers of one type the quota allows. An empty nodeType stands for an unknown type.
func (r Rest) Of(nodeType string) int64 { return min(r.Servers(), r.OwnOf(nodeType)) }

// Servers returns how many more servers of all types together the quota allows.
func (r Rest) Servers() int64 {
	if r.Quota == nil || r.Quota.Servers == nil {
		return math.MaxInt64
	}
	return max(0, *r.Quota.Servers-r.Usage.Servers)
}

// OwnOf returns how many more servers the limits on this type alone allow: its number, and its accelerators.
func (r Rest) OwnOf(nodeType string) int64 {
	left := int64(math.MaxInt64)
	if r.Quota == nil || nodeType == "" {
		return left
	}
	if limit, bounded := r.Quota.NodeTypes[nodeType]; bounded {
		left = int64(limit) - r.Usage.NodeTypes[nodeType]
	}
	if each := r.gpus(nodeType); r.Quota.GPUs != nil && each > 0 {
		left = min(left, (*r.Quota.GPUs-r.Usage.GPUs)/each)
	}
	return max(0, left)
}

// ByType returns how many more servers of each type named in the quota it allows, by type.
func (r Rest) ByType() map[string]int64 {
	if r.Quota == nil {
		return nil
	}
	return lo.MapValues(r.Quota.NodeTypes, func(limit v1alpha1.ServerCount, nodeType string) int64 {
		return max(0, int64(limit)-r.Usage.NodeTypes[nodeType])
	})
}

// Check returns an *ExceededError if the quota allows no more servers of a type. Empty stands for an unknown type.
func (r Rest) Check(nodeType string) error {
	if r.Of(nodeType) > 0 {
		return nil
	}
	total, problem := r.Servers() == 0, ""
	limit, bounded := r.Quota.NodeTypes[nodeType]
	switch has := r.Usage.NodeTypes[nodeType]; {
	case total:
		problem = fmt.Sprintf("has %d servers and its spec.quota.servers is %d", r.Usage.Servers, *r.Quota.Servers)
	case bounded && has >= int64(limit):
		problem = fmt.Sprintf("has %d servers of NodeType %[2]s and its spec.quota.nodeTypes[%[2]s] is %[3]d", has, nodeType, limit)
	default:
		problem = fmt.Sprintf("has %d GPUs, a server of NodeType %s has %d more, and its spec.quota.gpus is %d",
			r.Usage.GPUs, nodeType, r.gpus(nodeType), *r.Quota.GPUs)
	}
	return &ExceededError{Message: fmt.Sprintf("TenantCluster %s %s: raise the quota, or release a server", r.Tenant, problem), Total: total}
}
