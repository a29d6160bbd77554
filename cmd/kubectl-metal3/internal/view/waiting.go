// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Waiters are objects of one kind with the same reason to wait.
type Waiters struct {
	// Kind is a kind that Explain accepts.
	Kind string `json:"kind"`
	// Names have their namespace in front, the longest wait first. Cause explains the first object.
	Names []string `json:"names"`
	// Since is when the first object was created.
	Since metav1.Time `json:"since"`
	// Until is when the first object is usually done; nil if unknown.
	Until *metav1.Time `json:"until,omitempty"`
	Cause Cause        `json:"cause"`
}

// waiter is an object that waits. Only one of the objects with the same kind and groupKey is explained.
type waiter struct {
	kind, name, groupKey string
	since                metav1.Time
	until                *metav1.Time
	explain              func() Cause
}

// Waiting returns what waits: pods without a node, NodeClaims without a node, and Machines that have not joined, each
// with the longest wait first. It groups pods of one owner with the same needs, and Machines that have no server for
// the same reason. It explains at most the given number of groups; left is the number of other objects.
func (f *Fleet) Waiting(most int) (all []Waiters, left int) {
	index := map[string]int{}
	for _, waiter := range f.waiters() {
		key := waiter.kind + " " + waiter.groupKey
		switch position, known := index[key]; {
		case known:
			all[position].Names = append(all[position].Names, waiter.name)
		case len(all) >= most:
			left++
		default:
			index[key] = len(all)
			all = append(all, Waiters{Kind: waiter.kind, Names: []string{waiter.name}, Since: waiter.since, Until: waiter.until,
				Cause: waiter.explain()})
		}
	}
	return all, left
}

func (f *Fleet) waiters() []waiter {
	var pods, claims, machines []waiter
	for _, pod := range f.Unscheduled() {
		pods = append(pods, waiter{"pod", nameOf(pod) + pod.ofTenant, podLikeness(pod.Pod) + pod.ofTenant, pod.CreationTimestamp, nil,
			pod.Explain})
	}
	for _, focused := range f.perTenant {
		for i := range focused.snapshot.Tenant.NodeClaims {
			claim := &focused.snapshot.Tenant.NodeClaims[i]
			if conditions.Find(claim.Status.Conditions, karpv1.ConditionTypeInitialized).Status != metav1.ConditionTrue &&
				claim.Status.NodeName == "" {
				name := claim.Name + focused.ofTenant
				claims = append(claims, waiter{"nodeclaim", name, name, claim.CreationTimestamp, focused.expected(claim.Name),
					func() Cause { return focused.explainNodeClaim(claim) }})
			}
		}
	}
	for i := range f.snapshot.Management.Machines {
		machine := &f.snapshot.Management.Machines[i]
		if f.machineVerdict(machine) == Good {
			continue
		}
		waiter := waiter{"machine", nameOf(machine), nameOf(machine), machine.CreationTimestamp, f.describe(machine).Expected,
			func() Cause { return f.explainMachine(machine) }}
		if !machine.HasHost() {
			waiter.groupKey = fmt.Sprint(machine.Namespace, machine.Spec.NodeTypeRef, machine.Spec.Requirements,
				conditions.Find(machine.Status.Conditions, v1alpha1.ConditionReady).Message)
		}
		machines = append(machines, waiter)
	}
	for _, waiters := range [][]waiter{pods, claims, machines} {
		slices.SortStableFunc(waiters, func(a, b waiter) int { return cmp.Or(a.since.Compare(b.since.Time), cmp.Compare(a.name, b.name)) })
	}
	return slices.Concat(pods, claims, machines)
}

// expected returns when the Machine of a NodeClaim is usually a node; nil if unknown.
func (f *Fleet) expected(claim string) *metav1.Time {
	if f.tenant == nil {
		return nil
	}
	machine := f.machines[types.NamespacedName{Namespace: f.tenant.Namespace, Name: claim}]
	if machine == nil {
		return nil
	}
	return f.describe(machine).Expected
}

// podLikeness is equal for pods of one owner with the same needs.
func podLikeness(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nameOf(pod)
	}
	needs, err := json.Marshal(pod.Spec)
	if err != nil {
		return nameOf(pod)
	}
	return pod.Namespace + " " + string(owner.UID) + " " + string(needs)
}

func nameOf(object metav1.Object) string { return keyOf(object).String() }
