// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaimstatus

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

type published []events.Event

func (p *published) Publish(all ...events.Event) { *p = append(*p, all...) }

func list(pairs ...string) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return resources
}

// TestMissingResources plays the history of a node, minute by minute.
func TestMissingResources(t *testing.T) {
	declared := list("cpu", "96", "memory", "768Gi", "pods", "110", "nvidia.com/gpu", "8")
	none, seven, all := list("cpu", "95", "memory", "700Gi"), list("cpu", "95", "nvidia.com/gpu", "7"),
		list("cpu", "95", "nvidia.com/gpu", "8")
	type look struct {
		minute     int
		advertises corev1.ResourceList
		want       metav1.ConditionStatus // empty for no condition
		says       string
	}
	// devices are what a driver publishes on the node, of a class that serves nvidia.com/gpu.
	devices := func(count int) []client.Object {
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu.nvidia.com"}}
		class.Spec.ExtendedResourceName = ptr.To("nvidia.com/gpu")
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1"}}
		slice.Spec.NodeName, slice.Spec.Devices = ptr.To("gpu-1"), make([]resourcev1.Device, count)
		return []client.Object{class, slice}
	}
	for name, tc := range map[string]struct {
		reason string
		looks  []look
		events int
		driver []client.Object
	}{
		"Driver": {reason: "a driver has published all of them, and no device plugin advertises any", driver: devices(8),
			looks: []look{{advertises: none}, {minute: 60, advertises: none}}},
		"DriverFewer": {reason: "seven of eight devices are not enough", driver: devices(7), events: 2,
			looks: []look{{advertises: none}, {minute: 10, advertises: none, want: metav1.ConditionFalse, says: "7 of 8 nvidia.com/gpu"}}},
		"Well": {reason: "healthy nodes have no condition", looks: []look{{advertises: all}, {minute: 60, advertises: all}}},
		"InTime": {reason: "an operator that installs drivers takes its time",
			looks: []look{{advertises: none}, {minute: 9, advertises: none}, {minute: 11, advertises: all}}},
		"Missing": {reason: "after a while it is said",
			looks: []look{{advertises: none}, {minute: 10, advertises: none, want: metav1.ConditionFalse, says: "none of 8 nvidia.com/gpu"},
				{minute: 20, advertises: none, want: metav1.ConditionFalse}}, events: 2},
		"Fewer": {reason: "seven of eight is not enough",
			looks:  []look{{advertises: seven}, {minute: 10, advertises: seven, want: metav1.ConditionFalse, says: "7 of 8 nvidia.com/gpu"}},
			events: 2},
		"Mended": {reason: "it is said that it is mended, too",
			looks: []look{{advertises: none}, {minute: 10, advertises: none, want: metav1.ConditionFalse},
				{minute: 12, advertises: all, want: metav1.ConditionTrue}}, events: 4},
		"Restarts": {reason: "a device plugin that starts again has its time as well",
			looks: []look{{advertises: all}, {minute: 60, advertises: none}, {minute: 61, advertises: all}, {minute: 70, advertises: none}}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
				t.Fatal(err)
			}
			nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", UID: "claim",
				Labels: map[string]string{corev1.LabelInstanceTypeStable: "h100-8x"}}}
			nodeClaim.Status.ProviderID, nodeClaim.Status.NodeName, nodeClaim.Status.Capacity = providerID, "gpu-1", declared
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1"}, Spec: corev1.NodeSpec{ProviderID: providerID}}
			api := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(nodeClaim, node).
				WithObjects(append(tc.driver, nodeClaim, node)...).Build()
			clock, recorder := clocktesting.NewFakePassiveClock(time.Unix(0, 0)), &published{}
			c := NewController(clock,
				tenant.Clusters{Tenant: tenant.Cluster{Client: api, Live: api}, Management: tenant.Cluster{Client: api, Live: api}}, recorder,
				DefaultResourcesGrace)
			for _, look := range tc.looks {
				clock.SetTime(time.Unix(int64(look.minute)*60, 0))
				advertise(t, api, look.advertises)
				for range 2 {
					if _, err := c.Reconcile(t.Context(), request); err != nil {
						t.Fatal(err)
					}
				}
				if err := api.Get(t.Context(), client.ObjectKeyFromObject(nodeClaim), nodeClaim); err != nil {
					t.Fatal(err)
				}
				got := conditions.Find(nodeClaim.Status.Conditions, v1alpha1.ConditionResourcesAdvertised)
				if got.Status != look.want || !strings.Contains(got.Message, look.says) {
					t.Errorf("%s: after %d minutes %+v, want %q that says %q", tc.reason, look.minute, got, look.want, look.says)
				}
				for _, part := range []string{"OS image", "driver", "container runtime", "device plugin", "gpu-1", "h100-8x"} {
					if look.want == metav1.ConditionFalse && !strings.Contains(got.Message, part) {
						t.Errorf("the message does not say %q: %s", part, got.Message)
					}
				}
			}
			if len(*recorder) != tc.events {
				t.Errorf("%s: %d events, want %d: %v", tc.reason, len(*recorder), tc.events, *recorder)
			}
			if err := api.Delete(t.Context(), nodeClaim); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Reconcile(t.Context(), request); err != nil || len(c.missingSince) > 0 {
				t.Errorf("of a NodeClaim that is gone, %v is remembered: %v", c.missingSince, err)
			}
		})
	}
}

func advertise(t *testing.T, api client.Client, resources corev1.ResourceList) {
	t.Helper()
	node := &corev1.Node{}
	if err := api.Get(context.Background(), client.ObjectKey{Name: "gpu-1"}, node); err != nil {
		t.Fatal(err)
	}
	node.Status.Allocatable = resources
	if err := api.Status().Update(context.Background(), node); err != nil {
		t.Fatal(err)
	}
}
