// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/garbagecollection"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

const otherUID = types.UID("11111111-1111-1111-1111-111111111111")

func createMachine(t *testing.T, cluster types.NamespacedName, name string, nodeClaim types.UID,
	changes ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	t.Helper()
	machine := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: name,
			Labels:      map[string]string{v1alpha1.NodeClaimLabelKey: name},
			Annotations: map[string]string{v1alpha1.NodeClaimUIDAnnotationKey: string(nodeClaim)},
		},
		Spec: v1alpha1.MachineSpec{
			NodeTypeRef:      &v1alpha1.NameReference{Name: "h100-8x"},
			TenantClusterRef: &v1alpha1.NameReference{Name: cluster.Name},
		},
	}
	for _, change := range changes {
		change(machine)
	}
	if err := environment.Client.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	return machine
}

func createNodeClaim(t *testing.T, name string, changes ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	t.Helper()
	nodeClaim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: "default"},
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{},
		},
	}
	for _, change := range changes {
		change(nodeClaim)
	}
	if err := environment.Client.Create(t.Context(), nodeClaim); err != nil {
		t.Fatal(err)
	}
	return nodeClaim
}

func exists(t *testing.T, object client.Object) bool {
	t.Helper()
	err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

func TestMachineWithoutNodeClaim(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		nodeClaim bool
		// uid that the Machine has of its NodeClaim, if not that of the NodeClaim that exists.
		uid     types.UID
		change  func(*v1alpha1.Machine)
		deleted bool
	}{
		"Alive":         {reason: "its NodeClaim is there", nodeClaim: true},
		"Gone":          {reason: "its NodeClaim is gone", uid: otherUID, deleted: true},
		"AnotherOfThat": {reason: "a NodeClaim of that name is there, but it is another", nodeClaim: true, uid: otherUID, deleted: true},
		"WithoutLabel":  {reason: "it was created by hand", uid: otherUID, change: func(m *v1alpha1.Machine) { m.Labels = nil }},
		"WithoutUID": {reason: "it does not say which NodeClaim it was made for", uid: otherUID,
			change: func(m *v1alpha1.Machine) { m.Annotations = nil }},
		"AnotherTenants": {reason: "its NodeClaim is in a cluster that is not seen here", uid: otherUID,
			change: func(m *v1alpha1.Machine) { m.Spec.TenantClusterRef.Name = "red" }},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := tenanttest.TenantCluster(t, &environment)
			uid := tc.uid
			if tc.nodeClaim {
				if nodeClaim := createNodeClaim(t, "claim-"+cluster.Namespace); uid == "" {
					uid = nodeClaim.UID
				}
			}
			change := tc.change
			if change == nil {
				change = func(*v1alpha1.Machine) {}
			}
			machine := createMachine(t, cluster, "claim-"+cluster.Namespace, uid, change)
			controller := garbagecollection.NewMachineController(clock.RealClock{}, tenanttest.Clusters(&environment, cluster,
				&faults.Connection{}))
			if _, err := controller.Reconcile(t.Context(), machine.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			if got := !exists(t, machine); got != tc.deleted {
				t.Errorf("%s: deleted is %v, want %v", tc.reason, got, tc.deleted)
			}
		})
	}
}

// No error of the API server may delete a Machine.
func TestMachineIsKept(t *testing.T) {
	nodeClaims := schema.GroupResource{Group: "karpenter.sh", Resource: "nodeclaims"}
	for name, tc := range map[string]struct {
		reason       string
		cached, live error
		wantError    bool
	}{
		"CacheIsBehind": {"the cache does not show the NodeClaim yet, the API server does",
			apierrors.NewNotFound(nodeClaims, "x"), nil, false},
		"CacheFails": {"the cache has not been filled yet", errors.New("not synced"), nil, true},
		"Outage": {"the API server is down", apierrors.NewNotFound(nodeClaims, "x"),
			apierrors.NewServiceUnavailable("down"), true},
		"Forbidden": {"the provider's rights were taken away", apierrors.NewNotFound(nodeClaims, "x"),
			apierrors.NewForbidden(nodeClaims, "x", nil), true},
		"KindUnknown": {"the definition of NodeClaims is gone, which is also a 404", apierrors.NewNotFound(nodeClaims, "x"),
			apierrors.NewGenericServerResponse(http.StatusNotFound, "get", nodeClaims, "x", "404 page not found", 0, true), true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := tenanttest.TenantCluster(t, &environment)
			nodeClaim := createNodeClaim(t, "claim-"+cluster.Namespace)
			machine := createMachine(t, cluster, nodeClaim.Name, nodeClaim.UID)
			clusters := tenanttest.Clusters(&environment, cluster, &faults.Connection{})
			clusters.Tenant.Client = answering(t, tc.cached)
			clusters.Tenant.Live = answering(t, tc.live)
			_, err := garbagecollection.NewMachineController(clock.RealClock{}, clusters).Reconcile(t.Context(), machine.DeepCopy())
			if (err != nil) != tc.wantError {
				t.Errorf("%s: got error %v", tc.reason, err)
			}
			if !exists(t, machine) {
				t.Errorf("%s: the machine was deleted", tc.reason)
			}
		})
	}
}

// answering returns a client that answers with the error when it is asked for a NodeClaim, and truly if there is none.
func answering(t *testing.T, answer error) client.Client {
	return interceptor.NewClient(tenanttest.WithWatch(&environment), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if _, ok := object.(*karpv1.NodeClaim); ok && answer != nil {
				return answer
			}
			return c.Get(ctx, key, object, opts...)
		},
	})
}

// A Machine that has been written since the cache saw it may belong to another NodeClaim by now.
func TestStaleMachineIsNotDeleted(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	machine := createMachine(t, cluster, "claim-"+cluster.Namespace, otherUID)
	stale := machine.DeepCopy()
	machine.Annotations["touched"] = "yes"
	if err := environment.Client.Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	controller := garbagecollection.NewMachineController(clock.RealClock{}, tenanttest.Clusters(&environment, cluster,
		&faults.Connection{}))
	result, err := controller.Reconcile(t.Context(), stale)
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("want another look at it, got %v, %v", result, err)
	}
	if !exists(t, machine) {
		t.Error("the machine was deleted on the strength of an old copy")
	}
}

func TestMachineCrash(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	machine := createMachine(t, cluster, "claim-"+cluster.Namespace, otherUID)
	for writes, wantDeleted := range []bool{false, true} {
		controller := garbagecollection.NewMachineController(clock.RealClock{}, tenanttest.Clusters(&environment, cluster,
			&faults.Connection{Kind: faults.Crash, At: writes}))
		_, err := controller.Reconcile(t.Context(), machine.DeepCopy())
		if (err == nil) != wantDeleted || exists(t, machine.DeepCopy()) == wantDeleted {
			t.Fatalf("with %d writes: got error %v, want deleted %v", writes, err, wantDeleted)
		}
	}
}

// A NodeClaim that was restored from a backup has a new UID, and the server still runs its pods.
func TestRestoredNodeClaimKeepsItsMachine(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	nodeClaim := createNodeClaim(t, "claim-"+cluster.Namespace)
	nodeClaim.Status.ProviderID = v1alpha1.ProviderID("metal3", "server-1", nodeClaim.Name)
	if err := environment.Client.Status().Update(t.Context(), nodeClaim); err != nil {
		t.Fatal(err)
	}
	machine := createMachine(t, cluster, nodeClaim.Name, otherUID)
	machine.Status.ProviderID = nodeClaim.Status.ProviderID
	if err := environment.Client.Status().Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	controller := garbagecollection.NewMachineController(clock.RealClock{}, tenanttest.Clusters(&environment, cluster,
		&faults.Connection{}))
	if _, err := controller.Reconcile(t.Context(), machine.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if !exists(t, machine) {
		t.Error("the machine was deleted")
	}
}
