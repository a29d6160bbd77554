// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/tenantcluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// devicesTest is a namespace with TenantClusters, while the manager's controller runs.
type devicesTest struct {
	*testing.T
	namespace string
	recorder  *events.FakeRecorder
}

// tenant creates a TenantCluster that selects classes with a value of the test's own label, or none.
func (w *devicesTest) tenant(name, value string) *v1alpha1.TenantCluster {
	w.Helper()
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	tenant.Spec.APIServerEndpoint = "192.0.2.1:6443"
	if value != "" {
		tenant.Spec.Sync.FromHost.DeviceClasses.Enabled = true
		tenant.Spec.Sync.FromHost.DeviceClasses.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{w.namespace: value}}
	}
	w.must(environment.Client.Create(w.Context(), tenant))
	return tenant
}

// class creates a DeviceClass with a value of the test's own label.
func (w *devicesTest) class(name, value string) *resourcev1.DeviceClass {
	w.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-" + name,
		Labels: map[string]string{w.namespace: value}}}
	w.must(environment.Client.Create(w.Context(), class))
	w.Cleanup(func() {
		if err := environment.Client.Delete(context.Background(), class); client.IgnoreNotFound(err) != nil {
			w.Error(err)
		}
	})
	return class
}

func (w *devicesTest) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// await waits until these classes are allowed to each of the TenantClusters.
func (w *devicesTest) await(why string, classes []string, tenants ...*v1alpha1.TenantCluster) {
	w.Helper()
	poll.Eventually(w, why, func(ctx context.Context) error {
		for _, tenant := range tenants {
			if err := environment.Client.Get(ctx, client.ObjectKeyFromObject(tenant), tenant); err != nil {
				return err
			}
			var got []string
			if tenant.Status.AllowedDevices != nil {
				for _, name := range tenant.Status.AllowedDevices.DeviceClasses {
					got = append(got, strings.TrimPrefix(name, w.namespace+"-"))
				}
			}
			if !slices.Equal(got, classes) {
				return fmt.Errorf("TenantCluster %s allows %v, want %v", tenant.Name, got, classes)
			}
		}
		return nil
	})
}

// TestAllowedDevicesFollow: what the TenantClusters of a namespace allow follows the classes and the selectors. A claim is no reason to
// write it.
func TestAllowedDevicesFollow(t *testing.T) {
	w := &devicesTest{T: t, namespace: environment.Namespace(t)}
	w.recorder = runTenantClusters(t, w.namespace, clock.RealClock{})
	blue, red, green := w.tenant("blue", "slice"), w.tenant("red", "whole"), w.tenant("green", "")
	all := []*v1alpha1.TenantCluster{blue, red, green}
	slice := w.class("slice", "slice")
	w.await("a class is new", []string{"slice"}, all...)
	whole := w.class("whole", "other")
	w.class("any", "any")
	whole.Labels[w.namespace] = "whole"
	w.must(environment.Client.Update(t.Context(), whole))
	w.await("a class has another label", []string{"slice", "whole"}, all...)

	writes, err := environment.Client.Watch(t.Context(), &v1alpha1.TenantClusterList{}, client.InNamespace(w.namespace))
	w.must(err)
	defer writes.Stop()
	for range all { // it begins with what exists
		poll.Receive(t, "a TenantCluster", writes.ResultChan())
	}
	for range 5 {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "c-"}}
		w.must(environment.Client.Create(t.Context(), claim))
	}
	slice.Annotations = map[string]string{"example.com/x": "y"}
	w.must(environment.Client.Update(t.Context(), slice))
	w.class("last", "slice")
	for range all { // each is written once, for the class
		written := poll.Receive(t, "a write of a TenantCluster", writes.ResultChan()).Object.(*v1alpha1.TenantCluster)
		if allowed := written.Status.AllowedDevices; len(allowed.DeviceClasses) != 3 {
			t.Errorf("TenantCluster %s was written for a claim or an annotation: %+v", written.Name, allowed)
		}
	}
	w.await("a class is new", []string{"last", "slice", "whole"}, all...)

	w.must(environment.Client.Delete(t.Context(), slice))
	w.await("a class is gone", []string{"last", "whole"}, all...)
	red.Spec.Sync.FromHost.DeviceClasses.Selector.MatchLabels[w.namespace] = "any"
	w.must(environment.Client.Update(t.Context(), red))
	w.await("a TenantCluster selects another class", []string{"any", "last"}, all...)
	w.must(environment.Client.Delete(t.Context(), red))
	w.await("a TenantCluster is gone", []string{"last"}, blue, green)
	poll.Eventually(t, "the sync is off", func(ctx context.Context) error {
		if err := environment.Client.Get(ctx, client.ObjectKeyFromObject(blue), blue); err != nil {
			return err
		}
		blue.Spec.Sync = v1alpha1.Sync{}
		return environment.Client.Update(ctx, blue)
	})
	w.await("nothing is in sync", nil, blue, green)
}

// TestNoDeviceClassesServed: a host before Kubernetes 1.34 has no such kind. The rest of the status is written all the same.
func TestNoDeviceClassesServed(t *testing.T) {
	w := &devicesTest{T: t, namespace: environment.Namespace(t)}
	tenant := w.tenant("blue", "x")
	old := interceptor.NewClient(environment.Client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, classes := list.(*resourcev1.DeviceClassList); classes {
				return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: resourcev1.GroupName, Kind: "DeviceClass"}}
			}
			return c.List(ctx, list, opts...)
		},
	})
	controller := tenantcluster.NewController(old, environment.Client, events.NewFakeRecorder(10), clock.RealClock{})
	for range 2 { // the first adds the finalizer
		if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tenant)}); err != nil {
			t.Fatal(err)
		}
	}
	w.must(environment.Client.Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant))
	if allowed := tenant.Status.AllowedDevices; allowed == nil || len(allowed.DeviceClasses) != 0 ||
		tenant.Status.ObservedGeneration != tenant.Generation {
		t.Errorf("the status is %+v", tenant.Status)
	}
}

// TestTooManyDeviceClasses: a status lists so many classes, and an event says that there are more.
func TestTooManyDeviceClasses(t *testing.T) {
	w := &devicesTest{T: t, namespace: environment.Namespace(t)}
	var names []string
	for n := range v1alpha1.MaxAllowedDevices + 1 {
		name := fmt.Sprintf("%03d", n)
		w.class(name, "x")
		names = append(names, name)
	}
	w.recorder = runTenantClusters(t, w.namespace, clock.RealClock{})
	tenant := w.tenant("blue", "x")
	w.await("the first are allowed", names[:v1alpha1.MaxAllowedDevices], tenant)
	want := "Warning TooManyDeviceClasses spec.sync.fromHost.deviceClasses.selector: the TenantClusters of namespace " + w.namespace +
		" select 257"
	if event := poll.Receive(t, "an event", w.recorder.Events); !strings.HasPrefix(event, want) {
		t.Errorf("the event is %q, want %q", event, want)
	}
}
