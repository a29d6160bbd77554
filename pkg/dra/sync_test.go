// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// Point 1: everything is off by default, and nothing is watched.
func TestOffByDefault(t *testing.T) {
	w := newFixture(t, func(sync *v1alpha1.Sync) { *sync = v1alpha1.Sync{} })
	p := immortal()
	w.run(p)
	w.createClaim("gpu")
	// The controllers see the TenantCluster: they start once it is enabled, each kind for itself.
	w.setSync(func(sync *v1alpha1.Sync) { sync.ToHost.ResourceClaims.Enabled = true })
	w.awaitCondition(v1alpha1.ReasonNoDeviceClasses)
	if got := w.condition(); !strings.HasPrefix(got, "False ") || !strings.Contains(got, "resourceClaims") ||
		!strings.HasSuffix(got, "enable spec.sync.fromHost.deviceClasses") {
		t.Errorf("the condition is %q", got)
	}
	w.awaitEvent("DeviceClassNotAllowed", "gpu", "'sync.fromHost.deviceClasses' is not enabled")
	if written := p.written(); len(written) != 1 {
		t.Errorf("there were writes: %v, want the condition alone", written)
	}
	w.setSync(func(sync *v1alpha1.Sync) { sync.FromHost.DeviceClasses.Enabled = true })
	w.awaitHostClaim("gpu")
	w.awaitClass(w.class, nil)
	w.setSync(func(sync *v1alpha1.Sync) { *sync = v1alpha1.Sync{} })
	w.awaitCondition(v1alpha1.ReasonSyncDisabled)
	// What has been synced stays, and can be deleted all the same.
	if w.hostClaim("gpu") == nil {
		t.Fatal("the claim has left the host")
	}
	claim := w.tenantClaim("gpu")
	w.must(w.tenant.Delete(t.Context(), claim))
	w.awaitGone(w.tenant, claim)
	if w.hostClaim("gpu") != nil {
		t.Error("the claim is still on the host")
	}
}

// Where the API is not served nothing starts, and the condition says so.
func TestAPINotServed(t *testing.T) {
	w := newFixture(t)
	p := immortal()
	p.mapper = meta.NewDefaultRESTMapper(nil)
	w.run(p)
	w.awaitCondition(v1alpha1.ReasonAPINotServed)
	if got := w.condition(); !strings.Contains(got, "The tenant cluster does not serve resource.k8s.io/v1 DeviceClass") {
		t.Errorf("the condition is %q", got)
	}
	if written := p.written(); len(written) != 1 {
		t.Errorf("there were writes: %v, want the condition alone", written)
	}
}

// A cluster is not in sync with itself.
func TestSameCluster(t *testing.T) {
	w := newFixtureIn(t, hostEnvironment, hostEnvironment.Namespace(t), "blue")
	w.run()
	w.createClaim("gpu")
	w.awaitCondition(v1alpha1.ReasonSameCluster)
	if w.hostClaim("gpu") != nil {
		t.Error("the claim has been copied")
	}
}

// Point 5: nothing is deleted when a class leaves the tenant, and claims go on when it comes back.
func TestOrphans(t *testing.T) {
	w := newFixture(t)
	w.run()
	w.createClaim("gpu")
	copied := w.awaitHostClaim("gpu")
	tenantPod, hostPod := w.createPod("train")
	w.setSync(func(sync *v1alpha1.Sync) { sync.FromHost.DeviceClasses.Selector.MatchLabels["for"] = "others" })
	w.awaitEvent("DeviceClassGone", "gpu", w.class, "for=others", "stays here and on the host")
	w.awaitGone(w.tenant, w.classObject())

	// The status does not flow any more, and both sides stay.
	w.allocate(copied, "gpu-0", hostPod)
	w.createClaim("later")
	w.awaitEvent("DeviceClassNotAllowed", "later")
	if claim := w.tenantClaim("gpu"); claim.Status.Allocation != nil || !claim.DeletionTimestamp.IsZero() {
		t.Errorf("the claim is in sync, or being deleted: %v", claim)
	}
	if claim := w.hostClaim("gpu"); claim == nil || !claim.DeletionTimestamp.IsZero() {
		t.Error("the copy is gone or going")
	}
	w.setSync(func(sync *v1alpha1.Sync) { sync.FromHost.DeviceClasses.Selector.MatchLabels = w.labels() })
	w.awaitStatus("gpu", "", tenantPod)
	w.awaitHostClaim("later")
	w.awaitClass(w.class, nil)
}

// Point 7: two tenants with the same names, in one namespace of the host.
func TestIsolation(t *testing.T) {
	namespace := hostEnvironment.Namespace(t)
	blue := newFixtureIn(t, tenantEnvironment, namespace, "blue")
	other := env.NewEnvironment(t)
	red := newFixtureIn(t, other, namespace, "red")
	// The same namespace and names in both.
	red.namespace = "default"
	blue.namespace = "default"
	blue.run()
	red.run()
	blue.awaitCondition(v1alpha1.ReasonSynced)
	red.awaitCondition(v1alpha1.ReasonSynced)
	blue.createClaim("gpu")
	red.createClaim("gpu")
	ofBlue, ofRed := blue.awaitHostClaim("gpu"), red.awaitHostClaim("gpu")
	if ofBlue.Name == ofRed.Name {
		t.Fatalf("both are %s", ofBlue.Name)
	}
	// Neither gets the other's class.
	red.createClaim("theirs", exactly("gpu", blue.class))
	red.awaitEvent("DeviceClassNotAllowed", "theirs", blue.class)
	// Nor its status, nor its pods.
	bluePod, blueHostPod := blue.createPod("train")
	redPod, redHostPod := red.createPod("train")
	blue.allocate(ofBlue, "gpu-0", blueHostPod, redHostPod)
	blue.awaitStatus("gpu", "", bluePod)
	red.allocate(ofRed, "gpu-1", redHostPod)
	red.awaitStatus("gpu", "", redPod)
	if a, b := blue.tenantClaim("gpu").Status.Allocation,
		red.tenantClaim("gpu").Status.Allocation; a.Devices.Results[0].Pool == b.Devices.Results[0].Pool {
		t.Errorf("both can tell that they are on one server: pool %s", a.Devices.Results[0].Pool)
	}
	// Marks of another tenant, written by this one, do nothing.
	forged := blue.createClaim("forged")
	change(blue, blue.tenant, forged, func(claim *resourcev1.ResourceClaim) {
		claim.Labels["vcluster.loft.sh/managed-by"] = "red"
		claim.Annotations = map[string]string{"vcluster.loft.sh/object-name": "gpu",
			"vcluster.loft.sh/object-uid": string(red.tenantClaim("gpu").UID)}
	})
	if copied := blue.awaitHostClaim("forged"); copied.Labels["vcluster.loft.sh/managed-by"] != "blue" ||
		copied.Annotations["vcluster.loft.sh/object-name"] != "forged" {
		t.Errorf("the marks on the host are %v %v", copied.Labels, copied.Annotations)
	}
	// One tenant's deletion is not the other's.
	blue.must(blue.tenant.Delete(t.Context(), blue.tenantClaim("gpu")))
	blue.eventually("the claim of blue is being deleted on the host", func(context.Context) error {
		if claim := blue.hostClaim("gpu"); claim != nil && claim.DeletionTimestamp.IsZero() {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	if claim := red.hostClaim("gpu"); claim == nil || !claim.DeletionTimestamp.IsZero() {
		t.Error("red's claim is gone or going")
	}
}
