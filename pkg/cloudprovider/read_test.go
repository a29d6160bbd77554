// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// launched is a NodeClaim with a server.
func (f *fixture) launched(name string) *karpv1.NodeClaim {
	f.t.Helper()
	nodeClaim := f.nodeClaim(name)
	machine := machineFor(nodeClaim, f.class, nil, func(string) bool { return true }, f.options)
	machine.Finalizers = []string{v1alpha1.MachineFinalizer}
	f.create(machine)
	f.answer(name, f.claims)
	nodeClaim.Status.ProviderID = v1alpha1.ProviderID("metal3", "a100-01", name)
	return nodeClaim
}

// released plays the manager once the server is back in the pool.
func (f *fixture) released(name string) {
	f.t.Helper()
	machine := &v1alpha1.Machine{}
	if err := environment.Client.Get(f.ctx, types.NamespacedName{Namespace: f.namespace, Name: name}, machine); err != nil {
		f.t.Fatal(err)
	}
	machine.Finalizers = nil
	if err := environment.Client.Update(f.ctx, machine); err != nil {
		f.t.Fatal(err)
	}
}

func TestDelete(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	nodeClaim := f.launched("gpu-1")
	for _, step := range []string{"the first call", "a call while the server is being released"} {
		if err := f.Delete(f.ctx, nodeClaim); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
	}
	machine := &v1alpha1.Machine{}
	if err := environment.Client.Get(f.ctx, f.machineKey("gpu-1"), machine); err != nil || machine.DeletionTimestamp.IsZero() {
		t.Fatalf("the machine is not being deleted (%v)", err)
	}
	f.released("gpu-1")
	// The cache may still have it; that must not keep core waiting, and must not be what decides either.
	if err := f.Delete(f.ctx, nodeClaim); !cloudprovider.IsNodeClaimNotFoundError(err) {
		t.Errorf("after the machine is gone: %v", err)
	}
}

func TestForeignProviderIDs(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	f.launched("gpu-1")
	f.create(&v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "by-hand"},
		Spec:       v1alpha1.MachineSpec{NodeTypeRef: &v1alpha1.NameReference{Name: f.nodeType}},
	})
	f.answer("by-hand", f.claims)
	for name, tc := range map[string]struct {
		reason     string
		providerID string
		name, uid  string
	}{
		"foreign": {
			reason:     "a node of another provider, which this one would otherwise keep for ever",
			providerID: "kwok://somewhere", name: "gpu-1", uid: "uid-of-gpu-1",
		},
		"unknown": {
			reason:     "a machine that never was, or is gone",
			providerID: "metal3://metal3/a100-01/gpu-9", name: "gpu-9", uid: "uid-of-gpu-9",
		},
		"another host": {
			reason:     "the name was used again",
			providerID: "metal3://metal3/a100-02/gpu-1", name: "gpu-1", uid: "an-older-uid",
		},
		"made by hand": {
			reason:     "a machine that Karpenter never asked for",
			providerID: "metal3://metal3/a100-01/by-hand", name: "by-hand", uid: "1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := f.Get(f.ctx, tc.providerID); !cloudprovider.IsNodeClaimNotFoundError(err) {
				t.Errorf("Get returns %v; %s", err, tc.reason)
			}
			nodeClaim := f.nodeClaim(tc.name)
			nodeClaim.UID, nodeClaim.Status.ProviderID = types.UID(tc.uid), tc.providerID
			if err := f.Delete(f.ctx, nodeClaim); !cloudprovider.IsNodeClaimNotFoundError(err) {
				t.Errorf("Delete returns %v; %s", err, tc.reason)
			}
		})
	}
	for _, name := range []string{"gpu-1", "by-hand"} {
		machine := &v1alpha1.Machine{}
		if err := environment.Client.Get(f.ctx, f.machineKey(name), machine); err != nil || !machine.DeletionTimestamp.IsZero() {
			t.Errorf("machine %s was deleted (%v)", name, err)
		}
	}
}

func TestGetAndList(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	nodeClaim := f.launched("gpu-1")
	waiting := machineFor(f.nodeClaim("gpu-2"), f.class, nil, func(string) bool { return true }, f.options)
	f.create(waiting)
	f.create(&v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "by-hand"},
		Spec:       v1alpha1.MachineSpec{NodeTypeRef: &v1alpha1.NameReference{Name: f.nodeType}},
	})
	f.answer("by-hand", f.claims)

	// The cache may not have it yet: Get finds it all the same.
	found, err := f.Get(f.ctx, nodeClaim.Status.ProviderID)
	if err != nil {
		t.Fatal(err)
	}
	if found.Name != "gpu-1" || found.UID != nodeClaim.UID || found.Status.ProviderID != nodeClaim.Status.ProviderID {
		t.Errorf("Get returns %s %s %s", found.Name, found.UID, found.Status.ProviderID)
	}
	f.eventually("the cache to have both", func() error {
		for _, name := range []string{"gpu-1", "by-hand"} {
			machine := &v1alpha1.Machine{}
			if err := f.management.Client.Get(f.ctx, f.machineKey(name), machine); err != nil {
				return err
			}
			if machine.Status.ProviderID == "" {
				return errNotSynced
			}
		}
		return nil
	})
	listed, err := f.List(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(listed) != 1 || listed[0].Name != "gpu-1" {
		t.Errorf("List returns %d NodeClaims, want gpu-1 alone: not what waits for a server, and not what was made by hand", len(listed))
	}
}

func TestOutageIsNeverNotFound(t *testing.T) {
	var down atomic.Bool
	f := newFixture(t, unreachable(down.Load))
	nodeClaim := f.launched("gpu-1")
	f.eventually("the cache to have it", func() error {
		if listed, err := f.List(f.ctx); err != nil || len(listed) != 1 {
			return errNotSynced
		}
		return nil
	})
	down.Store(true)
	if err := f.Delete(f.ctx, nodeClaim); err == nil || cloudprovider.IsNodeClaimNotFoundError(err) ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("Delete returns %v", err)
	}
	if _, err := f.Get(f.ctx, "metal3://metal3/a100-01/gpu-9"); err == nil || cloudprovider.IsNodeClaimNotFoundError(err) {
		t.Errorf("Get of what the cache does not have returns %v", err)
	}
	if listed, err := f.List(f.ctx); err != nil || len(listed) != 1 {
		t.Errorf("List returns %d NodeClaims and %v; it needs no API server", len(listed), err)
	}
	if found, err := f.GetInstanceTypes(f.ctx, nil); err != nil || len(found) != 1 {
		t.Errorf("GetInstanceTypes returns %d types and %v; it needs no API server", len(found), err)
	}
}

// Another tenant may have Machines in the same namespace. A user with the right to write NodeClaims in this tenant
// could point one at such a Machine and delete it.
func TestMachinesOfOtherTenants(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	other := f.options
	other.TenantCluster = "red"
	machine := machineFor(f.nodeClaim("gpu-2"), f.class, nil, func(string) bool { return true }, other)
	f.create(machine)
	f.answer("gpu-2", f.claims)

	nodeClaim := f.nodeClaim("mine")
	nodeClaim.Status.ProviderID = v1alpha1.ProviderID("metal3", "a100-01", "gpu-2")
	if err := f.Delete(f.ctx, nodeClaim); !cloudprovider.IsNodeClaimNotFoundError(err) {
		t.Errorf("Delete returns %v", err)
	}
	if _, err := f.Get(f.ctx, nodeClaim.Status.ProviderID); !cloudprovider.IsNodeClaimNotFoundError(err) {
		t.Errorf("Get returns %v", err)
	}
	f.launched("gpu-1")
	f.eventually("the cache", func() error {
		listed, err := f.List(f.ctx)
		if err == nil && len(listed) == 0 {
			err = errors.New("it has no machine yet")
		}
		for _, nodeClaim := range listed {
			if nodeClaim.Name == "gpu-2" {
				t.Errorf("List returns %s of the other tenant", nodeClaim.Name)
			}
		}
		return err
	})
	if err := environment.Client.Get(f.ctx, f.machineKey("gpu-2"), machine); err != nil || !machine.DeletionTimestamp.IsZero() {
		t.Errorf("the machine of the other tenant was deleted (%v)", err)
	}
}

// A Machine that was restored from a backup has no status until the manager has found its server. Were that taken for a
// server that is gone, core would stop draining its node.
func TestGetOfRestoredMachine(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	nodeClaim := f.nodeClaim("gpu-1")
	machine := machineFor(nodeClaim, f.class, nil, func(string) bool { return true }, f.options)
	machine.Annotations[v1alpha1.ClaimUIDAnnotationKey] = "0f0e0d0c-1111-2222-3333-444455556666"
	f.create(machine)
	const providerID = "metal3://metal3/a100-01/gpu-1"
	if _, err := f.Get(f.ctx, providerID); err == nil || cloudprovider.IsNodeClaimNotFoundError(err) {
		t.Errorf("Get returns %v", err)
	}
	f.answer("gpu-1", f.claims)
	if _, err := f.Get(f.ctx, providerID); err != nil {
		t.Error(err)
	}
}

// The NodeClaim of a restored Machine is not in the list either. Core would delete it while its node is not ready.
func TestListWithRestoredMachine(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	nodeClaim := f.nodeClaim("gpu-" + f.namespace) // NodeClaims have no namespace
	nodeClaim.UID = ""
	f.create(nodeClaim)
	f.create(machineFor(nodeClaim, f.class, nil, func(string) bool { return true }, f.options))
	f.eventually("the cache to have it", func() error {
		return f.management.Client.Get(f.ctx, f.machineKey(nodeClaim.Name), &v1alpha1.Machine{})
	})
	if _, err := f.List(f.ctx); err != nil {
		t.Errorf("a NodeClaim that is being launched: List returns %v", err)
	}
	nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
	f.updateStatus(nodeClaim)
	if listed, err := f.List(f.ctx); err == nil {
		t.Errorf("a NodeClaim whose node is there, and whose Machine does not say which server it has: List returns %d others", len(listed))
	}
}
