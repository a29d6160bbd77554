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
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/dra/environment"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// tenantObjects creates objects in a tenant, and checks them in the tenant and on the host.
type tenantObjects struct {
	*testing.T
	environment *environment.Environment
	tenant      *environment.Tenant
	made        []client.Object
}

// classes are the device classes of the tester, and the settings that sync only those.
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

// newTenantObjects returns the tester's tenantObjects, when it has its device classes.
func newTenantObjects(t *testing.T) *tenantObjects {
	t.Helper()
	w := sharedEnvironment(t)
	s := &tenantObjects{T: t, environment: w, tenant: w.Tenant(tester)}
	for _, object := range documents(t, classes) {
		if err := w.Host.Client.Create(t.Context(), object); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	s.untilHasClasses()
	return s
}

// untilHasClasses waits until the tenant has the tester's device classes.
func (s *tenantObjects) untilHasClasses() {
	s.Helper()
	s.eventually("the tenant has its device classes", func(ctx context.Context) error {
		for _, name := range []string{"tested-gpu", "tested-shared"} {
			if err := s.tenant.Client.Get(ctx, client.ObjectKey{Name: name}, &resourcev1.DeviceClass{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// create creates the tenant's objects of the YAML.
func (s *tenantObjects) create(text string) {
	s.Helper()
	s.createIn(metav1.NamespaceDefault, text)
}

func (s *tenantObjects) createIn(namespace, text string) {
	s.Helper()
	for _, object := range documents(s.T, text) {
		object.SetNamespace(namespace)
		if err := s.tenant.Client.Create(s.Context(), object); err != nil {
			s.Fatal(err)
		}
		s.made = append(s.made, object)
	}
}

// claim makes a claim in the tenant, and a pod of the same name that uses it.
func (s *tenantObjects) claim(name, devices string) {
	s.Helper()
	s.create(fmt.Sprintf("apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: %s}\nspec:\n  devices: %s\n", name, devices))
	s.pod(name, "resourceClaimName: "+name)
}

// pod makes a pod in the tenant that uses a claim or a template, or neither if source is empty.
func (s *tenantObjects) pod(name, source string) {
	s.Helper()
	if source == "" {
		s.podWith(name, "{}", "[]")
		return
	}
	s.podWith(name, "{claims: [{name: device}]}", "[{name: device, "+source+"}]")
}

// podWith makes a pod in the tenant whose container has resources. Both these and the claims are YAML.
func (s *tenantObjects) podWith(name, resources, claims string) {
	s.Helper()
	s.create(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: registry.example.com/main:1, resources: %s}]
  resourceClaims: %s
`, name, resources, claims))
}

// untilRunning waits until the pods run in the tenant.
func (s *tenantObjects) untilRunning(names ...string) {
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

// untilUnschedulable waits until a pod is unschedulable for lack of a device.
func (s *tenantObjects) untilUnschedulable(name string) {
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
		s.Errorf("claim %s has an allocation, but its pod is unschedulable", name)
	}
}

// untilAllocated waits until the tenant's claim is allocated and reserved for these pods, and compares it with that of
// the host. It returns the tenant's claim.
func (s *tenantObjects) untilAllocated(name string, pods []string, devices ...string) *resourcev1.ResourceClaim {
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
func (s *tenantObjects) onHost(name string) *resourcev1.ResourceClaim {
	s.Helper()
	claim := &resourcev1.ResourceClaim{}
	hostName, err := names.HostNameShort(name, metav1.NamespaceDefault, s.tenant.Name)
	if err != nil {
		s.Fatal(err)
	}
	s.eventually("claim "+name+" is on the host", func(ctx context.Context) error {
		return s.environment.Host.Client.Get(ctx, client.ObjectKey{Namespace: s.tenant.Name, Name: hostName}, claim)
	})
	return claim
}

// deleteAll deletes the objects in the tenant, and waits until both sides are empty.
func (s *tenantObjects) deleteAll() {
	s.Helper()
	for _, object := range slices.Backward(s.made) {
		if err := s.tenant.Client.Delete(s.Context(), object, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			s.Fatal(err)
		}
	}
	s.untilEmpty()
}

// untilEmpty waits until the tenant and the host have no claims, templates or pods of the tenant.
func (s *tenantObjects) untilEmpty() {
	s.Helper()
	s.eventually("both sides are empty", func(ctx context.Context) error {
		for side, list := range map[string]func(client.ObjectList) error{
			"the tenant": func(list client.ObjectList) error { return s.tenant.Client.List(ctx, list) },
			"the host": func(list client.ObjectList) error {
				return s.environment.Host.Client.List(ctx, list, client.InNamespace(s.tenant.Name))
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

func (s *tenantObjects) eventually(what string, check func(context.Context) error) {
	s.Helper()
	poll.Eventually(s.T, what, check)
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
