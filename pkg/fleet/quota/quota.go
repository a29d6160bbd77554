// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quota decides whether a tenant may have one server more.
package quota

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// ExceededError means that a tenant has reached its quota.
type ExceededError struct {
	// Message has the use, the quota and the remedy, in one sentence.
	Message string
}

// Error implements error.
func (e *ExceededError) Error() string { return e.Message }

// Charged returns the Machines that are charged to the TenantCluster of that name. The Machines and the TenantClusters are all of its
// namespace.
func Charged(name string, tenants []*v1alpha1.TenantCluster, machines []v1alpha1.Machine) []*v1alpha1.Machine {
	var charged []*v1alpha1.Machine
	for i := range machines {
		if to := ChargedTo(&machines[i], tenants); to != nil && to.Name == name {
			charged = append(charged, &machines[i])
		}
	}
	return charged
}

// Used returns the types of the servers that Machines which are charged to a tenant have or claim, one for each server. The one with
// that UID is left out. Assumed tells which type a Machine without a server is about to get, empty if none; it may be nil.
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

// NameSuspects adds to an *ExceededError that some of the servers are quarantined: the tenant has no Machines for them, and does not
// see them.
func NameSuspects(err error, suspects int) error {
	var exceeded *ExceededError
	if suspects == 0 || !errors.As(err, &exceeded) {
		return err
	}
	verb := "are"
	if suspects == 1 {
		verb = "is"
	}
	return &ExceededError{Message: fmt.Sprintf("%s; %d of them %s quarantined because of its Machines: an operator must check the servers "+
		"and remove the annotation %s", exceeded.Message, suspects, verb, v1alpha1.QuarantinedAnnotationKey)}
}

// ServersReached says that a tenant, which has so many servers, may have no more.
func ServersReached(tenant *v1alpha1.TenantCluster, has int64) string {
	return fmt.Sprintf("TenantCluster %s/%s has %d servers and its spec.quota.servers is %d: raise the quota, or "+
		"release a server", tenant.Namespace, tenant.Name, has, *tenant.Spec.Quota.Servers)
}

// GPUsReached says that a tenant, which has so many accelerators, may not have those of one server more. needs is a
// clause that says how many those are.
func GPUsReached(tenant *v1alpha1.TenantCluster, has int64, needs string) string {
	return fmt.Sprintf("TenantCluster %s/%s has %d GPUs, %s, and its spec.quota.gpus is %d: raise the quota, or "+
		"release a server", tenant.Namespace, tenant.Name, has, needs, *tenant.Spec.Quota.GPUs)
}

// Check compares what the tenant has, and one server more, with its quota. The error is an *ExceededError if that is too
// much. The name of the type may be empty if it is not known yet. Accelerators counts those of one server of a type; a type
// that does not exist any more has none, so that it does not keep the tenant from all others.
func Check(tenant *v1alpha1.TenantCluster, used []string, nodeType string, accelerators func(nodeType string) (int64, error)) error {
	quota := tenant.Spec.Quota
	if quota == nil {
		return nil
	}
	if quota.Servers != nil && int64(len(used)) >= *quota.Servers {
		return &ExceededError{Message: ServersReached(tenant, int64(len(used)))}
	}
	if quota.GPUs == nil || nodeType == "" {
		return nil
	}
	more, err := accelerators(nodeType)
	if err != nil || more == 0 {
		return err
	}
	has := int64(0)
	for _, typeName := range used {
		if typeName == "" {
			continue
		}
		count, err := accelerators(typeName)
		if err != nil {
			return err
		}
		has += count
	}
	if has+more > *quota.GPUs {
		needs := fmt.Sprintf("a server of NodeType %s has %d more", nodeType, more)
		return &ExceededError{Message: GPUsReached(tenant, has, needs)}
	}
	return nil
}
