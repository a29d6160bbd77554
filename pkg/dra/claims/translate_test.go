// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func consumer(name string, uid types.UID) resourcev1.ResourceClaimConsumerReference {
	return resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: uid}
}

func allocated(device string) *resourcev1.AllocationResult {
	return &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: "d", Pool: "node-7", Device: device,
				AdminAccess: ptr.To(true)}},
			Config: []resourcev1.DeviceAllocationConfiguration{
				{Source: resourcev1.AllocationConfigSourceClass,
					DeviceConfiguration: resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: "class"}}},
				{Source: resourcev1.AllocationConfigSourceClaim,
					DeviceConfiguration: resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: "claim"}}},
			},
		},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-7"}}}}}},
	}
}

func seeingAll() view {
	return view{namespace: "ml", nodes: true, classConfig: true, salt: "blue",
		pod: func(name string, uid types.UID) (types.NamespacedName, types.UID, bool) {
			switch {
			case name == "train-x-ml-x-blue" && uid == "h1":
				return types.NamespacedName{Namespace: "ml", Name: "train"}, "t1", true
			case name == "train-x-web-x-blue":
				return types.NamespacedName{Namespace: "web", Name: "train"}, "t2", true
			}
			return types.NamespacedName{}, "", false
		}}
}

func TestConsumers(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		host   resourcev1.ResourceClaimConsumerReference
		want   []resourcev1.ResourceClaimConsumerReference
	}{
		"Pod": {"the tenant's pod, by its own name and UID", consumer("train-x-ml-x-blue", "h1"),
			[]resourcev1.ResourceClaimConsumerReference{consumer("train", "t1")}},
		"OtherUID":       {"a pod that is gone", consumer("train-x-ml-x-blue", "h0"), nil},
		"OtherTenant":    {"no consumer is the tenant's", consumer("train-x-ml-x-red", "h1"), nil},
		"OtherNamespace": {"consumers are in the claim's namespace", consumer("train-x-web-x-blue", "h2"), nil},
		"NoPod": {"what the tenant does not have",
			resourcev1.ResourceClaimConsumerReference{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "train-x-ml-x-blue", UID: "h1"},
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := seeingAll().forTenant(&resourcev1.ResourceClaimStatus{ReservedFor: []resourcev1.ResourceClaimConsumerReference{tc.host}})
			if diff := cmp.Diff(tc.want, got.ReservedFor); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestForTenant(t *testing.T) {
	host := &resourcev1.ResourceClaimStatus{Allocation: allocated("gpu-0"), Devices: []resourcev1.AllocatedDeviceStatus{{
		Driver: "d", Pool: "node-7", Device: "gpu-0", Data: &runtime.RawExtension{Raw: []byte(`{"on":"node-7"}`)},
		NetworkData: &resourcev1.NetworkDeviceData{InterfaceName: "net1"},
		Conditions:  []metav1.Condition{{Type: "Ready", Reason: "Prepared", Message: "gpu-0 on node-7"}},
	}}}
	stored := host.DeepCopy()

	open := seeingAll().forTenant(host)
	want := host.DeepCopy()
	want.Allocation.Devices.Results[0].AdminAccess = nil
	if diff := cmp.Diff(want, &open); diff != "" {
		t.Errorf("a tenant that sees the nodes sees everything but admin access (-want +got):\n%s", diff)
	}

	closed := seeingAll()
	closed.nodes, closed.classConfig = false, false
	got := closed.forTenant(host)
	if text := fmt.Sprintf("%+v", got.String()); strings.Contains(text, "node-7") || strings.Contains(text, "gpu-0") {
		t.Errorf("it sees the host's names: %s", text)
	}
	result, device := got.Allocation.Devices.Results[0], got.Devices[0]
	if result.Pool != device.Pool || result.Device != device.Device || result.Driver != "d" || result.Request != "gpu" {
		t.Errorf("the device's status does not belong to the allocation: %v, %v", result, device)
	}
	if device.Data != nil || device.NetworkData == nil || len(device.Conditions) != 1 || device.Conditions[0].Message != result.Device+" on "+
		result.Pool {
		t.Errorf("the device's status is %v", device)
	}
	if config := got.Allocation.Devices.Config; len(config) != 1 || config[0].Opaque.Driver != "claim" {
		t.Errorf("it sees the configuration %v", config)
	}
	if again := closed.forTenant(host); !cmp.Equal(got, again) {
		t.Error("a second time it is something else, and would be written for ever")
	}
	closed.salt = "red"
	if other := closed.forTenant(host); other.Allocation.Devices.Results[0].Pool == result.Pool {
		t.Error("two tenants can tell that they are on one server")
	}
	if diff := cmp.Diff(stored, host); diff != "" {
		t.Errorf("the host's status has been changed:\n%s", diff)
	}
}

func TestNextStatus(t *testing.T) {
	status := func(device string, consumers ...resourcev1.ResourceClaimConsumerReference) *resourcev1.ResourceClaimStatus {
		if device == "" {
			return &resourcev1.ResourceClaimStatus{}
		}
		return &resourcev1.ResourceClaimStatus{Allocation: allocated(device), ReservedFor: consumers}
	}
	pruned := status("gpu-0")
	pruned.Allocation.Devices.Results[0].AdminAccess = nil
	pruned.Allocation.Devices.Config = nil
	for name, tc := range map[string]struct {
		reason          string
		current, wanted *resourcev1.ResourceClaimStatus
		deleting        bool
		want            *resourcev1.ResourceClaimStatus
	}{
		"Same":      {"nothing to write", status("gpu-0"), status("gpu-0"), false, nil},
		"Nothing":   {"nothing to write", status(""), status(""), false, nil},
		"Allocated": {"one write", status(""), status("gpu-0", consumer("a", "1")), false, status("gpu-0", consumer("a", "1"))},
		"Reserved": {"consumers come and go", status("gpu-0", consumer("a", "1")), status("gpu-0", consumer("b", "2")), false,
			status("gpu-0", consumer("b", "2"))},
		"Deallocated": {"it is taken back", status("gpu-0", consumer("a", "1")), status(""), false, status("")},
		"Reallocated": {"an allocation cannot be changed, only taken back first", status("gpu-0"), status("gpu-1"), false, status("")},
		"FewerFields": {"the tenant's server has dropped some: it is the same allocation", pruned, status("gpu-0"), false, nil},
		"PrunedMore": {"what is there is kept, or the write would fail", pruned, status("gpu-0", consumer("a", "1")), false,
			&resourcev1.ResourceClaimStatus{Allocation: pruned.Allocation,
				ReservedFor: []resourcev1.ResourceClaimConsumerReference{consumer("a", "1")}}},
		"Deleting":     {"none may be added while the claim is being deleted", status("gpu-0"), status("gpu-0", consumer("a", "1")), true, nil},
		"DeletingLess": {"but they may go", status("gpu-0", consumer("a", "1")), status("gpu-0"), true, status("gpu-0")},
	} {
		t.Run(name, func(t *testing.T) {
			got, changed := nextStatus(tc.current, tc.wanted, tc.deleting)
			if changed != (tc.want != nil) {
				t.Fatalf("%s: to write %v, want %v: %v", tc.reason, changed, tc.want != nil, got)
			}
			if changed {
				if len(got.ReservedFor) == 0 {
					got.ReservedFor = nil
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
		})
	}
}
