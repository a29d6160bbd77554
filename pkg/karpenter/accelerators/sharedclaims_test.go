// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package accelerators

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestPodsSharingAClaim has core plan for pods of one claim, whose device is on a node.
func TestPodsSharingAClaim(t *testing.T) {
	running := func(pod *corev1.Pod) {
		pod.Spec.NodeName = "n1"
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "infer", UID: "infer"}}
	}
	for name, tc := range map[string]struct {
		reason   string
		deleting bool
		// room is how many pods the node takes.
		room              string
		running, waiting  int
		claims, elsewhere int
	}{
		"two leave a node": {
			reason:   "core panics over a claim that it gives devices to twice: both go to one new server",
			deleting: true, room: "10", running: 2, claims: 1, elsewhere: 2,
		},
		"one leaves a node": {
			reason:   "core does this well by itself",
			deleting: true, room: "10", running: 1, claims: 1, elsewhere: 1,
		},
		"one more, and room on the node": {
			reason: "it goes where the device is",
			room:   "10", running: 1, waiting: 1,
		},
		"one more, and no room on the node": {
			reason: "a new server does not have the device, so none is claimed",
			room:   "1", running: 1, waiting: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{
					corev1.LabelHostname: "n1", corev1.LabelInstanceTypeStable: "small", karpv1.NodePoolLabelKey: "servers",
					karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true",
				}},
				Spec:   corev1.NodeSpec{ProviderID: "metal3://metal3/small-01/n1"},
				Status: corev1.NodeStatus{Allocatable: requests("cpu", "64", "pods", tc.room).Requests},
			}
			if tc.deleting {
				node.Finalizers, node.DeletionTimestamp = []string{karpv1.TerminationFinalizer}, &metav1.Time{Time: time.Unix(1, 0)}
			}
			objects := append(claim("shared", nil, `device.driver == "gpu.example.com"`), node)
			shared := objects[0].(*resourcev1.ResourceClaim)
			shared.Status.Allocation = &resourcev1.AllocationResult{
				Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "a", Driver: "gpu.example.com",
					Pool: "n1", Device: "device-0"}}},
				NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
					{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}},
				}}}},
			}
			for i := range tc.running {
				pod := pod(i, requests("cpu", "1"), claiming("shared"), running)
				shared.Status.ReservedFor = append(shared.Status.ReservedFor,
					resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
				objects = append(objects, pod)
			}
			for i := range tc.waiting {
				objects = append(objects, client.Object(pod(tc.running+i, requests("cpu", "1"), claiming("shared"))))
			}
			types := []*v1alpha1.NodeType{withDevices(nodeType("small", 2, "cpu", "64", "memory", "256Gi"), gpus(4, "40Gi"))}
			results := scheduleWith(t, func(o *options.Options) { o.IgnoreDRARequests = false }, types, objects...)
			placed := 0
			for _, planned := range results.NewNodeClaims {
				placed += len(planned.Pods)
			}
			if len(results.NewNodeClaims) != tc.claims || placed != tc.elsewhere {
				t.Errorf("%d pods on %d new servers, want %d on %d: %s; errors: %v", placed, len(results.NewNodeClaims), tc.elsewhere, tc.claims,
					tc.reason, results.PodErrors)
			}
		})
	}
}
