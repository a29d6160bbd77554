// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Point 4: the status flows back, in the tenant's terms.
func TestStatus(t *testing.T) {
	w := newFixture(t)
	p := immortal()
	w.run(p)
	w.createClaim("gpu")
	copied := w.awaitHostClaim("gpu")
	first, hostFirst := w.createPod("first")
	w.allocate(copied, "gpu-0", hostFirst)
	claim := w.awaitStatus("gpu", "", first)
	if text := claim.Status.String(); strings.Contains(text, "node-7") || strings.Contains(text, "gpu-0") {
		t.Errorf("the tenant sees the host's nodes and devices: %s", text)
	}
	hidden := claim.Status.Allocation.Devices.Results[0].Device

	// A second pod, and what the driver says of the device.
	second, hostSecond := w.createPod("second")
	w.allocate(copied, "gpu-0", hostFirst, hostSecond)
	w.awaitStatus("gpu", hidden, first, second)
	changeStatus(w, copied, func(status *resourcev1.ResourceClaimStatus) {
		status.Devices = []resourcev1.AllocatedDeviceStatus{{
			Driver: "gpu.example.com", Pool: "node-7", Device: "gpu-0", Data: &runtime.RawExtension{Raw: []byte(`{"node":"node-7"}`)},
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Prepared", Message: "gpu-0 of node-7 is ready",
				LastTransitionTime: metav1.Now()}},
		}}
	})
	w.eventually("the device's condition is back", func(context.Context) error {
		devices := w.tenantClaim("gpu").Status.Devices
		if len(devices) != 1 || len(devices[0].Conditions) != 1 || devices[0].Data != nil {
			return fmt.Errorf("devices are %v", devices)
		}
		if message := devices[0].Conditions[0].Message; !strings.HasSuffix(message, "is ready") || strings.Contains(message, "node-7") {
			return fmt.Errorf("the message is %q", message)
		}
		return nil
	})

	// Taken back, and given again: an allocation cannot be changed in one write.
	changeStatus(w, copied, func(status *resourcev1.ResourceClaimStatus) { *status = resourcev1.ResourceClaimStatus{} })
	w.allocate(copied, "gpu-1", hostSecond)
	w.eventually("another device is allocated", func(context.Context) error {
		claim := w.tenantClaim("gpu")
		if claim.Status.Allocation == nil || claim.Status.Allocation.Devices.Results[0].Device == hidden {
			return fmt.Errorf("the allocation is %v", claim.Status.Allocation)
		}
		return nil
	})

	// A tenant that sees the nodes sees what is on them.
	w.setSync(func(sync *v1alpha1.Sync) { sync.FromHost.Nodes.Enabled = true })
	claim = w.awaitStatus("gpu", "gpu-1", second)
	if claim.Status.Allocation.NodeSelector == nil || claim.Status.Allocation.Devices.Results[0].Pool != "node-7" {
		t.Errorf("the allocation is %v", claim.Status.Allocation)
	}
	t.Log("writes:", p.written())
}

// The scheduler may reserve a claim for a pod before the pod is in a cache. Pods of others are not shown.
func TestReservedForLaterPods(t *testing.T) {
	w := newFixture(t)
	w.run()
	w.createClaim("gpu")
	copied := w.awaitHostClaim("gpu")
	stranger := pod(w.cluster.Namespace, "stranger")
	w.must(w.host.Create(t.Context(), stranger))
	w.allocate(copied, "gpu-0", stranger)
	w.awaitStatus("gpu", "")
	tenantPod := pod(w.namespace, "train")
	w.must(w.tenant.Create(t.Context(), tenantPod))
	hostPod := w.createHostPod(tenantPod)
	w.allocate(copied, "gpu-0", hostPod, stranger)
	w.awaitStatus("gpu", "", tenantPod)
}

// Writes per claim, and none when nothing changes.
func TestWritesPerClaim(t *testing.T) {
	w := newFixture(t)
	p := immortal()
	w.run(p)
	w.awaitClass(w.class, nil)
	w.awaitCondition(v1alpha1.ReasonSynced)
	before := len(p.written())
	for i := range 20 {
		w.createClaim(fmt.Sprintf("gpu-%d", i))
	}
	for i := range 20 {
		name := fmt.Sprintf("gpu-%d", i)
		copied := w.awaitHostClaim(name)
		tenantPod, hostPod := w.createPod(name)
		// What a scheduler does in one write.
		w.allocate(copied, "gpu-0", hostPod)
		w.awaitStatus(name, "", tenantPod)
	}
	counts := map[string]int{}
	for _, write := range p.written()[before:] {
		counts[write]++
	}
	t.Log("20 claims, allocated:", counts)
	for write, most := range map[string]int{"host create ResourceClaim": 20, "tenant patch ResourceClaim": 20,
		// One more for a claim whose pod comes into the cache after the reservation.
		"tenant status ResourceClaim": 40} {
		if counts[write] < 20 || counts[write] > most {
			t.Errorf("%d times %s, want from 20 to %d", counts[write], write, most)
		}
	}
	if len(counts) != 3 {
		t.Errorf("there were other writes too")
	}
	// A new start writes nothing.
	again := immortal()
	w.run(again)
	w.createClaim("last")
	w.awaitHostClaim("last")
	if written := again.written(); len(written) > 2 {
		t.Errorf("after a new start there were writes: %v", written)
	}
}

// Point 6: the claims that the host makes of templates, under the names that the tenant's pods expect.
func TestGeneratedClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// prepare does what the tenant does for its pod, and returns the name that it expects, if it does not expect the host's.
		prepare func(*fixture, *corev1.Pod) string
	}{
		"HostsName": {"the pod's status is copied from the host", func(*fixture, *corev1.Pod) string { return "" }},
		"InStatus": {"the tenant has a controller that has chosen a name, and died before it made the claim",
			func(w *fixture, pod *corev1.Pod) string {
				pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To("train-gpu-abcde")}}
				w.must(w.tenant.Status().Update(w.Context(), pod))
				return "train-gpu-abcde"
			}},
		"MadeByTenant": {"the tenant has a controller that has made the claim", func(w *fixture, pod *corev1.Pod) string {
			claim := w.generatedClaim(w.namespace, "train-gpu-fghij", pod)
			w.must(w.tenant.Create(w.Context(), claim))
			return claim.Name
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.createTemplate("one-gpu")
			tenantPod := pod(w.namespace, "train", corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: ptr.To("one-gpu")})
			w.must(w.tenant.Create(t.Context(), tenantPod))
			expected := tc.prepare(w, tenantPod)
			w.run()
			hostTemplate := w.hostName("one-gpu")
			w.eventually("the template is on the host", func(ctx context.Context) error {
				return w.host.Get(ctx, client.ObjectKey{Namespace: w.cluster.Namespace, Name: hostTemplate}, &resourcev1.ResourceClaimTemplate{})
			})
			hostPod := w.createHostPod(tenantPod)
			copied := w.generatedClaim(w.cluster.Namespace, hostPod.Name+"-gpu-klmno", hostPod)
			w.must(w.host.Create(t.Context(), copied))
			if expected == "" {
				expected = copied.Name
			}
			w.allocate(copied, "gpu-0", hostPod)
			w.eventually("the tenant sees the claim", func(ctx context.Context) error {
				return w.tenant.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: expected}, &resourcev1.ResourceClaim{})
			})
			claim := w.awaitStatus(expected, "", tenantPod)
			if !metav1.IsControlledBy(claim, tenantPod) || claim.Annotations["resource.kubernetes.io/pod-claim-name"] != "gpu" {
				t.Errorf("the pod would not take it for its own: %v %v", claim.OwnerReferences, claim.Annotations)
			}
			claims := &resourcev1.ResourceClaimList{}
			w.must(w.host.List(t.Context(), claims, client.InNamespace(w.cluster.Namespace)))
			if len(claims.Items) != 1 {
				t.Errorf("the host has %d claims, want the one that it made", len(claims.Items))
			}
			w.must(w.tenant.List(t.Context(), claims, client.InNamespace(w.namespace)))
			if len(claims.Items) != 1 {
				t.Errorf("the tenant has %d claims, want one", len(claims.Items))
			}
			// The host's goes with its pod, and the one made for it goes too.
			w.deallocate(copied)
			w.must(w.host.Delete(t.Context(), copied))
			if claim.Annotations[v1alpha1.HostClaimAnnotationKey] != "" {
				w.awaitGone(w.tenant, claim)
			}
		})
	}
}

// generatedClaim is a claim as Kubernetes' resourceclaim controller makes it for a pod.
func (w *fixture) generatedClaim(namespace, name string, owner *corev1.Pod) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Annotations: map[string]string{"resource.kubernetes.io/pod-claim-name": "gpu"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{exactly("gpu", w.class)}}},
	}
}
