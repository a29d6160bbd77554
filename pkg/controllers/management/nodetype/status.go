// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetype

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// invalid is why a NodeType is not valid.
type invalid struct{ reason, message string }

// status computes the status of a NodeType.
func status(nodeType *v1alpha1.NodeType, summary inventory.Summary, disk resource.Quantity, invalid *invalid,
	now time.Time) v1alpha1.NodeTypeStatus {
	status := v1alpha1.NodeTypeStatus{
		Cost:         nodeType.Spec.EffectiveCost(),
		Accelerators: capacity.Accelerators(&nodeType.Spec.HardwareProfile),
		Capacity:     summary.Capacity,
		Zones:        summary.Zones,
		Domains:      summary.Domains,
		Requirements: summary.Requirements,
		Provisioning: nodeType.Status.Provisioning, // package estimate writes it
		Conditions:   slices.Clone(nodeType.Status.Conditions),

		SmallestNode:     nodeType.Status.SmallestNode,
		EphemeralStorage: capacity.EphemeralStorage(&nodeType.Spec.HardwareProfile, summary.SmallestDisk, disk),
	}
	if invalid != nil {
		// Zones and requirements stay: to tenants a type that loses them would have changed, and they would replace the nodes
		// that run. None of its servers can be claimed.
		status.Capacity = v1alpha1.Capacity{}
		status.Zones = slices.Clone(nodeType.Status.Zones)
		for i := range status.Zones {
			status.Zones[i].Capacity = v1alpha1.Capacity{}
		}
		status.Domains = slices.Clone(nodeType.Status.Domains)
		for i := range status.Domains {
			status.Domains[i].Capacity = v1alpha1.Capacity{}
		}
		status.Requirements = nodeType.Status.Requirements
		status.EphemeralStorage = nodeType.Status.EphemeralStorage
	}
	for _, condition := range []metav1.Condition{synced(summary, invalid), hasCapacity(nodeType, summary, invalid),
		hardwareFits(nodeType, summary, invalid)} {
		condition.ObservedGeneration = nodeType.Generation
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func synced(summary inventory.Summary, invalid *invalid) metav1.Condition {
	if invalid != nil {
		return metav1.Condition{Type: v1alpha1.ConditionSynced, Status: metav1.ConditionFalse, Reason: invalid.reason, Message: invalid.message}
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionSynced, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonSynced, Message: "cost and capacity are up to date",
	}
	if summary.DomainCount > inventory.MaxDomains {
		condition.Message += fmt.Sprintf("; its servers are in %d topology domains, more than the %d that are counted one by one: "+
			"claims that ask for one may find it full, so name fewer labels in --topology-labels", summary.DomainCount, inventory.MaxDomains)
	}
	return condition
}

func hasCapacity(nodeType *v1alpha1.NodeType, summary inventory.Summary, invalid *invalid) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionHasCapacity, Status: metav1.ConditionFalse}
	counts := summary.Counts()
	switch {
	case invalid != nil:
		condition.Reason, condition.Message = invalid.reason, invalid.message
	case counts.Total == 0:
		condition.Reason = v1alpha1.ReasonNoHosts
		condition.Message = fmt.Sprintf("no BareMetalHost of NodeProvider %s matches %q: label the servers, or correct bareMetalHosts.selector",
			nodeType.Spec.ProviderRef.Name, metav1.FormatLabelSelector(&nodeType.Spec.BareMetalHosts.Selector))
	case counts.Available > 0:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonAvailable
		condition.Message = fmt.Sprintf("%s, %d available", counts, counts.Available)
	default:
		condition.Reason, condition.Message = v1alpha1.ReasonExhausted, counts.String()
	}
	if limit := nodeType.Spec.MaxCapacity; invalid == nil && limit != nil && summary.Used >= *limit {
		condition.Message += fmt.Sprintf("; maxCapacity %d is reached", *limit)
	}
	return condition
}

// hardwareFits is the condition that the servers are as big as the type says. Smaller ones are not claimed. Either their
// labels or the type may be wrong.
func hardwareFits(nodeType *v1alpha1.NodeType, summary inventory.Summary, invalid *invalid) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionHardwareFits}
	switch small := summary.Capacity.TooSmall; {
	case invalid != nil:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, invalid.reason, invalid.message
	case small > 0:
		verb := "have"
		if small == 1 {
			verb = "has"
		}
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonHostsTooSmall
		condition.Message = fmt.Sprintf("%d of %d servers %s less than resources says and cannot be claimed as %s: %s: correct resources, or "+
			"the labels of the servers",
			small, summary.Capacity.Total, verb, nodeType.Name, inventory.Named(summary.TooSmall, int(small)))
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonBigEnough
		condition.Message = "no server is known to have less than resources says"
	}
	return condition
}
