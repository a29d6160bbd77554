// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/dra/environment"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

const model = `device.attributes["gpu.example.com"].model == `

func TestSelector(t *testing.T) {
	system.Only(t)
	s := newTenantObjects(t)
	s.claim("one", `{requests: [{name: gpu, exactly: {deviceClassName: tested-gpu, selectors: [{cel: {expression: '`+model+`"a100"'}}]}}]}`)
	s.untilRunning("one")
	claim := s.untilAllocated("one", []string{"one"}, "gpu=gpu-3")
	// With nodes.enabled the tenant sees the names of the host.
	if diff := cmp.Diff(s.onHost("one").Status.Allocation, claim.Status.Allocation); diff != "" {
		t.Errorf("allocation, -host +tenant:\n%s", diff)
	}
	s.deleteAll()
}

// The A100 is on socket 1; of the H100s, only gpu-2 is.
func TestMatchAttribute(t *testing.T) {
	system.Only(t)
	s := newTenantObjects(t)
	s.claim("pair", `
    requests:
    - {name: first, exactly: {deviceClassName: tested-gpu, selectors: [{cel: {expression: '`+model+`"a100"'}}]}}
    - {name: second, exactly: {deviceClassName: tested-gpu, selectors: [{cel: {expression: '`+model+`"h100"'}}]}}
    constraints: [{requests: [first, second], matchAttribute: gpu.example.com/socket}]`)
	s.untilRunning("pair")
	s.untilAllocated("pair", []string{"pair"}, "first=gpu-3", "second=gpu-2")
	s.deleteAll()
}

// There are not eight H100s, so the second alternative is allocated.
func TestFirstAvailable(t *testing.T) {
	system.Only(t)
	s := newTenantObjects(t)
	s.claim("best", `
    requests:
    - name: gpus
      firstAvailable:
      - {name: eight, deviceClassName: tested-gpu, count: 8, selectors: [{cel: {expression: '`+model+`"h100"'}}]}
      - {name: single, deviceClassName: tested-gpu, selectors: [{cel: {expression: '`+model+`"a100"'}}]}`)
	s.untilRunning("best")
	s.untilAllocated("best", []string{"best"}, "gpus/single=gpu-3")
	s.deleteAll()
}

// The claim is deleted when neither pod uses it any more.
func TestSharedClaim(t *testing.T) {
	system.Only(t)
	s := newTenantObjects(t)
	s.claim("both", `{requests: [{name: gpu, exactly: {deviceClassName: tested-gpu, selectors: [{cel: {expression: '`+model+`"a100"'}}]}}]}`)
	s.pod("other", "resourceClaimName: both")
	s.untilRunning("both", "other")
	claim := s.untilAllocated("both", []string{"both", "other"}, "gpu=gpu-3")

	if err := s.tenant.Client.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "other"}}
	if err := s.tenant.Client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	kept := s.untilAllocated("both", []string{"both"}, "gpu=gpu-3")
	if kept.UID != claim.UID || kept.DeletionTimestamp.IsZero() {
		t.Errorf("claim %s deleted at %v, want %s, with a deletion timestamp", kept.UID, kept.DeletionTimestamp, claim.UID)
	}
	s.deleteAll()
}

// 48Gi are enough for two claims of 20Gi, but not for three.
func TestConsumableCapacity(t *testing.T) {
	system.Only(t)
	s := newTenantObjects(t)
	const twenty = `{requests: [{name: gpu, exactly: {deviceClassName: tested-shared, capacity: {requests: {memory: 20Gi}}}}]}`
	shares := map[string]bool{}
	for _, name := range []string{"part-1", "part-2"} {
		s.claim(name, twenty)
		s.untilRunning(name)
		result := s.untilAllocated(name, []string{name}, "gpu=gpu-1").Status.Allocation.Devices.Results[0]
		if consumed := result.ConsumedCapacity["memory"]; consumed.String() != "20Gi" || result.ShareID == nil {
			t.Errorf("claim %s has %s of memory, share %v, want 20Gi and a share of its own", name, consumed.String(), result.ShareID)
			continue
		}
		shares[string(*result.ShareID)] = true
	}
	if len(shares) != 2 {
		t.Errorf("shares %v, want two", shares)
	}
	s.claim("part-3", twenty)
	s.untilUnschedulable("part-3")
	s.deleteAll()
}

// A tainted device is allocated only to claims that tolerate the taint.
func TestDeviceTaint(t *testing.T) {
	system.Only(t)
	s := newTenantObjects(t)
	const b200 = `deviceClassName: tested-gpu, selectors: [{cel: {expression: '` + model + `"b200"'}}]`
	s.claim("careful", `{requests: [{name: gpu, exactly: {`+b200+`}}]}`)
	s.untilUnschedulable("careful")
	s.claim("daring", `{requests: [{name: gpu, exactly: {`+b200+`, tolerations: [{key: gpu.example.com/maintenance, operator: Exists}]}}]}`)
	s.untilRunning("daring")
	s.untilAllocated("daring", []string{"daring"}, "gpu=gpu-4")
	s.deleteAll()
}

// The host's controller creates the claim. The tenant sees it under the name in its pod's status.
func TestGeneratedClaim(t *testing.T) {
	system.Only(t)
	s := newTenantObjects(t)
	s.create(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: a100}
spec:
  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: tested-gpu, selectors: [{cel: {expression: '` + model + `"a100"'}}]}}]}}
`)
	s.pod("worker", "resourceClaimTemplateName: a100")
	s.untilRunning("worker")
	var name string
	s.eventually("the pod's status has the name of its claim", func(ctx context.Context) error {
		pod := &corev1.Pod{}
		if err := s.tenant.Client.Get(ctx, key("worker"), pod); err != nil {
			return err
		}
		if len(pod.Status.ResourceClaimStatuses) != 1 || pod.Status.ResourceClaimStatuses[0].ResourceClaimName == nil {
			return errors.New("it has none")
		}
		name = *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
		return nil
	})
	claim := s.untilAllocated(name, []string{"worker"}, "gpu=gpu-3")
	if owner := metav1.GetControllerOf(claim); owner == nil || owner.Kind != "Pod" || owner.Name != "worker" {
		t.Errorf("claim %s is owned by %v, want pod worker", name, owner)
	}
	s.deleteAll()
}

// The device status of the driver is copied to the tenant, and removed there when the driver removes it.
func TestDeviceStatus(t *testing.T) {
	system.Only(t)
	s := newTenantObjects(t)
	s.claim("watched", `{requests: [{name: gpu, exactly: {deviceClassName: tested-gpu, selectors: [{cel: {expression: '`+model+
		`"a100"'}}]}}]}`)
	s.untilRunning("watched")
	s.untilAllocated("watched", []string{"watched"}, "gpu=gpu-3")
	for _, reason := range []string{"Attached", "Healthy"} {
		host := s.onHost("watched")
		result := host.Status.Allocation.Devices.Results[0]
		host.Status.Devices = []resourcev1.AllocatedDeviceStatus{{
			Driver: environment.Driver, Pool: result.Pool, Device: result.Device,
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now()}},
		}}
		if err := s.environment.Host.Client.Status().Update(t.Context(), host); err != nil {
			t.Fatal(err)
		}
		s.eventually("the tenant sees the status of the device", func(ctx context.Context) error {
			claim := &resourcev1.ResourceClaim{}
			if err := s.tenant.Client.Get(ctx, key("watched"), claim); err != nil {
				return err
			}
			if diff := cmp.Diff(host.Status.Devices, claim.Status.Devices, cmpopts.EquateApproxTime(0)); diff != "" {
				return errors.New(diff)
			}
			return nil
		})
	}
	s.deleteAll()
}

// TestExtendedResource: a pod gets a device of the tenant's own class by a resource of a container, and none of a class of others,
// by either name of the resource. kube-scheduler makes the claim on the host, and the tenant has no copy of it.
func TestExtendedResource(t *testing.T) {
	system.Only(t)
	s := newTenantObjects(t)
	for _, object := range documents(t, `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: others-gpu, labels: {for: others}}
spec:
  extendedResourceName: gpu.example.com/whole
  selectors: [{cel: {expression: 'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].type == "gpu"'}}]
`) {
		if err := s.environment.Host.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.environment.Host.Client.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		})
	}
	asking := func(name, resource string) { s.podWith(name, `{limits: {`+resource+`: "1"}}`, "[]") }
	// The syncer copies one pod after the other: once the last one runs, it has tried the others.
	asking("by-class", "deviceclass.resource.kubernetes.io/others-gpu")
	asking("by-resource", "gpu.example.com/whole")
	asking("own", "deviceclass.resource.kubernetes.io/tested-gpu")
	s.untilRunning("own")
	pods := &corev1.PodList{}
	if err := s.environment.Host.Client.List(t.Context(), pods, client.InNamespace(s.tenant.Name)); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if name := pods.Items[i].Annotations[names.NameAnnotation]; name != "own" {
			t.Errorf("pod %s is on the host", name)
		}
	}
	claims := &resourcev1.ResourceClaimList{}
	if err := s.environment.Host.Client.List(t.Context(), claims, client.InNamespace(s.tenant.Name)); err != nil {
		t.Fatal(err)
	}
	for i := range claims.Items {
		if class := claims.Items[i].Spec.Devices.Requests[0].Exactly.DeviceClassName; class != "tested-gpu" {
			t.Errorf("claim %s is of class %s", claims.Items[i].Name, class)
		}
	}
	if len(claims.Items) != 1 {
		t.Errorf("the host has %d claims, want the one that kube-scheduler made", len(claims.Items))
	}
	if err := s.tenant.Client.List(t.Context(), claims); err != nil {
		t.Fatal(err)
	} else if len(claims.Items) != 0 {
		t.Errorf("the tenant has %d claims, and has made none", len(claims.Items))
	}
	s.deleteAll()
}
