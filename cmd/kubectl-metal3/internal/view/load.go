// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Gauge is the part of a whole that is in use, or done.
type Gauge struct {
	// The name of a resource of a node, or the description of an installation step.
	Of string
	// Value is the part, and Full the whole.
	Value, Full int64
}

// Gauge returns the installation step of a server that is being installed. For a node of a tenant cluster that was
// read, it returns the accelerators that pods request, or the CPUs of a node without accelerators. Otherwise it
// returns false.
func (f *Fleet) Gauge(server Server) (Gauge, bool) {
	machine := f.MachineOn(f.hosts[server.Key()])
	if machine == nil {
		return Gauge{}, false
	}
	if progress := machine.Status.Progress; progress != nil && machine.IsOnItsWay() {
		return Gauge{Of: progress.Description, Value: int64(progress.Step), Full: int64(progress.Steps)}, true
	}
	index := slices.IndexFunc(f.perTenant, func(focused *Fleet) bool {
		return focused.tenant != nil && server.Tenant == nameOf(focused.tenant)
	})
	if index < 0 || server.Node == "" {
		return Gauge{}, false
	}
	node, pods := f.perTenant[index].nodeOf(server.Node)
	if node == nil {
		return Gauge{}, false
	}
	resource := corev1.ResourceCPU
	if accelerators := v1alpha1.Accelerators(node.Status.Allocatable); len(accelerators) > 0 {
		resource = accelerators[0]
	}
	requests := resources.RequestsForPods(pods...)
	value, full := requests[resource], node.Status.Allocatable[resource]
	return Gauge{Of: string(resource), Value: value.Value(), Full: full.Value()}, full.Value() > 0
}

// nodeOf returns a node of the tenant cluster, nil if it has none of that name, and the pods on the node that have
// not ended.
func (f *Fleet) nodeOf(name string) (*corev1.Node, []*corev1.Pod) {
	if f.nodes == nil {
		f.nodes, f.podsOn = map[string]*corev1.Node{}, map[string][]*corev1.Pod{}
		for i := range f.snapshot.Tenant.Nodes {
			node := &f.snapshot.Tenant.Nodes[i]
			f.nodes[node.Name] = node
		}
		for i := range f.snapshot.Tenant.Pods {
			if pod := &f.snapshot.Tenant.Pods[i]; pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				f.podsOn[pod.Spec.NodeName] = append(f.podsOn[pod.Spec.NodeName], pod)
			}
		}
	}
	return f.nodes[name], f.podsOn[name]
}

// UnscheduledPod is a pod without a node.
type UnscheduledPod struct {
	*corev1.Pod
	// Explain explains the pod, as Fleet.Explain does.
	Explain  func() Cause
	ofTenant string
}

// Unscheduled returns the pods without a node in the tenant clusters that were read, the oldest first.
func (f *Fleet) Unscheduled() (pods []UnscheduledPod) {
	for _, focused := range f.perTenant {
		for i := range focused.snapshot.Tenant.Pods {
			pod := &focused.snapshot.Tenant.Pods[i]
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp.IsZero() && cmp.Or(pod.Status.Phase, corev1.PodPending) == corev1.PodPending {
				pods = append(pods, UnscheduledPod{pod, func() Cause { return focused.explainPod(pod) }, focused.ofTenant})
			}
		}
	}
	slices.SortFunc(pods, func(a, b UnscheduledPod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name))
	})
	return pods
}

// Verdict returns the verdict on a server.
func (f *Fleet) Verdict(server Server) Verdict { return f.serverCause(server).Verdict }
