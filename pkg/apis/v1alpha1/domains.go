// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// DomainCapacity counts the hosts of a type that have the same zone and the same topology labels, and that match the
// same types. Each count is limited by the maxCapacity of the type on its own.
type DomainCapacity struct {
	// Zone of the hosts, the value of topology.kubernetes.io/zone.
	Zone string `json:"zone"`
	// Labels are the topology labels of the hosts (rack, nvlink-domain, datacenter, unless the manager is told of
	// others); one that the hosts do not have is left out.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// SharedWith names the other NodeTypes that these hosts match too, sorted. Such a host is available in each of them,
	// and once one has it, in none.
	// +optional
	// +listType=atomic
	SharedWith []string `json:"sharedWith,omitempty"`
	Capacity   `json:",inline"`
}
