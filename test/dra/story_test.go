// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/dra/world"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// story is what happens to a tenant's objects, seen from both sides.
type story struct {
	*testing.T
	world  *world.World
	tenant *world.Tenant
	made   []client.Object
}

// classes are the device classes of the tester, and the sync that gives it those and no others.
const classes = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: tested-gpu, labels: {for: tester}}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].type == "gpu"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: tested-shared, labels: {for: tester}}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].type == "shared"'}}]}
---
apiVersion: karpenter.metal3.io/v1alpha1
kind: TenantCluster
metadata: {namespace: tester, name: tester}
spec:
  apiServerEndpoint: 192.0.2.1:6443
  sync:
    fromHost: {deviceClasses: {enabled: true, selector: {matchLabels: {for: tester}}}, nodes: {enabled: true}}
    toHost: {resourceClaims: {enabled: true}, resourceClaimTemplates: {enabled: true}}
`

// begin returns a story of the tester, which has its device classes.
func begin(t *testing.T) *story {
	t.Helper()
	w := enter(t)
	s := &story{T: t, world: w, tenant: w.Tenant(tester)}
	for _, object := range documents(t, classes) {
		if err := w.Host.Client.Create(t.Context(), object); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	s.eventually("the tenant has its device classes", func(ctx context.Context) error {
		for _, name := range []string{"tested-gpu", "tested-shared"} {
			if err := s.tenant.Client.Get(ctx, client.ObjectKey{Name: name}, &resourcev1.DeviceClass{}); err != nil {
				return err
			}
		}
		return nil
	})
	return s
}

// create makes the tenant's objects that the YAML says.
func (s *story) create(text string) {
	s.Helper()
	for _, object := range documents(s.T, text) {
		object.SetNamespace(metav1.NamespaceDefault)
		if err := s.tenant.Client.Create(s.Context(), object); err != nil {
			s.Fatal(err)
		}
		s.made = append(s.made, object)
	}
}

// claim makes a claim in the tenant, and a pod of the same name that uses it.
func (s *story) claim(name, devices string) {
	s.Helper()
	s.create(fmt.Sprintf("apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: %s}\nspec:\n  devices: %s\n", name, devices))
	s.pod(name, "resourceClaimName: "+name)
}

// pod makes a pod in the tenant that uses a claim or a template.
func (s *story) pod(name, source string) {
	s.Helper()
	s.create(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: registry.example.com/main:1, resources: {claims: [{name: device}]}}]
  resourceClaims: [{name: device, %s}]
`, name, source))
}

// runs waits until the tenant sees its pods running.
func (s *story) runs(names ...string) {
	s.Helper()
	for _, name := range names {
		s.eventually("pod "+name+" runs", func(ctx context.Context) error {
			pod := &corev1.Pod{}
			if err := s.tenant.Client.Get(ctx, key(name), pod); err != nil {
				return err
			}
			if pod.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("phase %s, conditions %v", pod.Status.Phase, pod.Status.Conditions)
			}
			return nil
		})
	}
}

// waits waits until the scheduler has said that there is no device for a pod.
func (s *story) waits(name string) {
	s.Helper()
	s.eventually("pod "+name+" is unschedulable", func(ctx context.Context) error {
		pod := &corev1.Pod{}
		if err := s.tenant.Client.Get(ctx, key(name), pod); err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", pod.Status.Conditions)
	})
	if claim := s.onHost(name); claim.Status.Allocation != nil {
		s.Errorf("claim %s has an allocation, and its pod waits", name)
	}
}

// allocated waits until the tenant sees that its claim is allocated and used by these pods, and compares what it sees with
// what the host has. It returns the tenant's claim.
func (s *story) allocated(name string, pods []string, devices ...string) *resourcev1.ResourceClaim {
	s.Helper()
	claim := &resourcev1.ResourceClaim{}
	s.eventually("the tenant sees claim "+name+" allocated and used", func(ctx context.Context) error {
		if err := s.tenant.Client.Get(ctx, key(name), claim); err != nil {
			return err
		}
		var users []string
		for _, user := range claim.Status.ReservedFor {
			pod := &corev1.Pod{}
			if err := s.tenant.Client.Get(ctx, key(user.Name), pod); err != nil {
				return err
			}
			if user.UID != pod.UID {
				return fmt.Errorf("reserved for pod %s with UID %s, want %s", user.Name, user.UID, pod.UID)
			}
			users = append(users, user.Name)
		}
		slices.Sort(users)
		if claim.Status.Allocation == nil || !slices.Equal(users, pods) {
			return fmt.Errorf("allocation %v, reserved for %v, want %v", claim.Status.Allocation, users, pods)
		}
		return nil
	})
	if diff := cmp.Diff(devices, deviceNames(claim)); diff != "" {
		s.Errorf("devices of claim %s, -want +got:\n%s", name, diff)
	}
	return claim
}

// onHost returns the copy on the host of the tenant's claim.
func (s *story) onHost(name string) *resourcev1.ResourceClaim {
	s.Helper()
	claim := &resourcev1.ResourceClaim{}
	hostName, err := names.HostName(name, metav1.NamespaceDefault, s.tenant.Name)
	if err != nil {
		s.Fatal(err)
	}
	s.eventually("claim "+name+" is on the host", func(ctx context.Context) error {
		return s.world.Host.Client.Get(ctx, client.ObjectKey{Namespace: s.tenant.Name, Name: hostName}, claim)
	})
	return claim
}

// end deletes what the story has made in the tenant, and waits until both sides are empty.
func (s *story) end() {
	s.Helper()
	for _, object := range slices.Backward(s.made) {
		if err := s.tenant.Client.Delete(s.Context(), object, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			s.Fatal(err)
		}
	}
	s.empty()
}

// empty waits until neither side has claims, templates or pods of the tenant.
func (s *story) empty() {
	s.Helper()
	s.eventually("both sides are empty", func(ctx context.Context) error {
		for side, list := range map[string]func(client.ObjectList) error{
			"the tenant": func(list client.ObjectList) error { return s.tenant.Client.List(ctx, list) },
			"the host": func(list client.ObjectList) error {
				return s.world.Host.Client.List(ctx, list, client.InNamespace(s.tenant.Name))
			},
		} {
			for _, kind := range []client.ObjectList{&resourcev1.ResourceClaimList{}, &resourcev1.ResourceClaimTemplateList{}, &corev1.PodList{}} {
				if err := list(kind); err != nil {
					return err
				}
				if n := meta.LenList(kind); n != 0 {
					return fmt.Errorf("%s has %d of %T", side, n, kind)
				}
			}
		}
		return nil
	})
}

func (s *story) eventually(what string, check func(context.Context) error) {
	s.Helper()
	env.Eventually(s.T, what, check)
}

// deviceNames are request=device, in the order of the allocation.
func deviceNames(claim *resourcev1.ResourceClaim) []string {
	var names []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		names = append(names, result.Request+"="+result.Device)
	}
	slices.Sort(names)
	return names
}

func key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}
}

// documents parses YAML documents.
func documents(t *testing.T, text string) []client.Object {
	t.Helper()
	var objects []client.Object
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("parsing %s, %v", text, err)
		}
		objects = append(objects, object)
	}
}
