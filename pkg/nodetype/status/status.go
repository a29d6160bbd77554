// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/nodetype"
)

// problem is something in a NodeType that its author has to mend.
type problem struct{ reason, message string }

// status of a NodeType. It is a function of its arguments.
func status(nodeType *v1alpha1.NodeType, summary hosts.Summary, problem *problem, now time.Time) v1alpha1.NodeTypeStatus {
	status := v1alpha1.NodeTypeStatus{
		Cost:         nodeType.Spec.EffectiveCost(),
		Accelerators: nodetype.Accelerators(&nodeType.Spec.HardwareProfile),
		Capacity:     summary.Capacity,
		Zones:        summary.Zones,
		Domains:      summary.Domains,
		Requirements: summary.Requirements,
		Provisioning: nodeType.Status.Provisioning, // package estimate writes it
		Conditions:   slices.Clone(nodeType.Status.Conditions),
	}
	if problem != nil {
		// Zones and requirements stay: tenants would take a type that loses them for one that has changed, and replace
		// the nodes that run. Nothing of it can be claimed.
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
	}
	for _, condition := range []metav1.Condition{synced(summary, problem), hasCapacity(nodeType, summary, problem), hardwareFits(nodeType, summary, problem)} {
		condition.ObservedGeneration = nodeType.Generation
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func synced(summary hosts.Summary, problem *problem) metav1.Condition {
	if problem != nil {
		return metav1.Condition{Type: v1alpha1.ConditionSynced, Status: metav1.ConditionFalse, Reason: problem.reason, Message: problem.message}
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionSynced, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonSynced, Message: "cost and capacity are up to date",
	}
	if summary.DomainCount > hosts.MaxDomains {
		condition.Message += fmt.Sprintf("; its servers are in %d topology domains, more than the %d that are counted one by one: "+
			"claims that ask for one may find it full, so name fewer labels in --topology-labels", summary.DomainCount, hosts.MaxDomains)
	}
	return condition
}

func hasCapacity(nodeType *v1alpha1.NodeType, summary hosts.Summary, problem *problem) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionHasCapacity, Status: metav1.ConditionFalse}
	counts := summary.Counts()
	switch {
	case problem != nil:
		condition.Reason, condition.Message = problem.reason, problem.message
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
	if limit := nodeType.Spec.MaxCapacity; problem == nil && limit != nil && summary.Used >= *limit {
		condition.Message += fmt.Sprintf("; maxCapacity %d is reached", *limit)
	}
	return condition
}
