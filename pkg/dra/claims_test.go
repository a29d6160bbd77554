// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/claims"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
)

// Point 3: claims flow to the host, with what they may have.
func TestClaims(t *testing.T) {
	w := newFixture(t)
	p := immortal()
	w.run(p)
	claim := w.createClaim("gpu")
	copied := w.awaitHostClaim("gpu")
	if copied.Name != w.hostName("gpu") || !names.IsCopyOf(copied, claim, names.ClaimKind, "blue") {
		t.Errorf("the copy is not one that a tenant's pod refers to: %s %v %v", copied.Name, copied.Labels, copied.Annotations)
	}
	if copied.Labels["app"] != "train" {
		t.Errorf("its labels are %v", copied.Labels)
	}
	// Labels flow on, in both directions of change.
	stored := w.tenantClaim("gpu")
	changed := stored.DeepCopy()
	changed.Labels = map[string]string{"team": "a"}
	w.must(w.tenant.Patch(t.Context(), changed, client.MergeFrom(stored)))
	w.eventually("the labels are on the host", func(context.Context) error {
		if labels := w.hostClaim("gpu").Labels; labels["team"] != "a" || labels["app"] != "" || labels[names.MarkerLabel] != "blue" {
			return fmt.Errorf("they are %v", labels)
		}
		return nil
	})
	w.must(w.tenant.Delete(t.Context(), claim))
	w.awaitGone(w.tenant, claim)
	w.awaitGone(w.host, copied)
	t.Log("writes:", p.written())
}

func TestClassNotAllowed(t *testing.T) {
	w := newFixture(t)
	w.createClass("vip", func(class *resourcev1.DeviceClass) { class.Labels = nil })
	w.run()
	w.createClaim("exact", exactly("a", w.class), exactly("b", "vip"))
	w.createClaim("alternative", firstOf("a", w.class, "vip"))
	w.createClaim("unknown", exactly("a", "nothing"))
	for name, class := range map[string]string{"exact": "vip", "alternative": "vip", "unknown": "nothing"} {
		// The sentence of vCluster's reference, word by word.
		w.awaitEvent(claims.ReasonClassNotAllowed, name, fmt.Sprintf("did not sync resourceclaim %q to host. Failures : Device class %s "+
			"does not match the selector under 'sync.fromHost.deviceClasses.selector' (for=%s)", name, class, w.labels()["for"]))
	}
	w.createClaim("good", firstOf("a", w.class, w.class))
	w.awaitHostClaim("good")
	for _, name := range []string{"exact", "alternative", "unknown"} {
		if w.hostClaim(name) != nil {
			t.Errorf("claim %s is on the host", name)
		}
	}
	// Once it is allowed, it goes.
	class := &resourcev1.DeviceClass{}
	w.must(w.host.Get(t.Context(), client.ObjectKey{Name: "vip"}, class))
	class.Labels = w.labels()
	w.must(w.host.Update(t.Context(), class))
	w.awaitHostClaim("exact")
	w.awaitHostClaim("alternative")
}

func TestAdminAccessIsRemoved(t *testing.T) {
	w := newFixture(t)
	for c, namespace := range map[client.Client]string{w.tenant: w.namespace, w.host: w.cluster.Namespace} {
		// Even where both namespaces are for administrators.
		w.allowAdmins(c, namespace)
	}
	w.run()
	request := exactly("gpu", w.class)
	request.Exactly.AdminAccess = ptr.To(true)
	w.createClaim("admin", request)
	if got := w.awaitHostClaim("admin").Spec.Devices.Requests[0].Exactly.AdminAccess; got != nil {
		t.Errorf("admin access is %v on the host", *got)
	}
	w.awaitEvent(claims.ReasonNoAdminAccess, "admin")
}

func TestTemplates(t *testing.T) {
	w := newFixture(t)
	w.run()
	template := w.createTemplate("one-gpu")
	copied := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster.Namespace, Name: w.hostName("one-gpu")}}
	w.eventually("the template is on the host", func(ctx context.Context) error {
		return w.host.Get(ctx, client.ObjectKeyFromObject(copied), copied)
	})
	if labels := copied.Spec.Labels; labels["app"] != "train" || labels[names.MarkerLabel] != "" {
		t.Errorf("claims would have labels %v", labels)
	}
	w.must(w.tenant.Delete(t.Context(), template))
	w.awaitGone(w.tenant, template)
	w.awaitGone(w.host, copied)
}

// Deletion flows both ways, and a claim that is in use stays on both sides.
func TestDeletionOfClaimsInUse(t *testing.T) {
	for name, remove := range map[string]func(*fixture, *resourcev1.ResourceClaim, *resourcev1.ResourceClaim) error{
		"InTenant": func(w *fixture, claim, _ *resourcev1.ResourceClaim) error { return w.tenant.Delete(w.Context(), claim) },
		"OnHost":   func(w *fixture, _, copied *resourcev1.ResourceClaim) error { return w.host.Delete(w.Context(), copied) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.run()
			claim := w.createClaim("gpu")
			copied := w.awaitHostClaim("gpu")
			tenantPod, hostPod := w.createPod("train")
			w.allocate(copied, "gpu-0", hostPod)
			w.awaitStatus("gpu", "", tenantPod)
			w.must(remove(w, claim, copied))
			w.eventually("both sides are being deleted", func(context.Context) error {
				here, there := w.tenantClaim("gpu"), w.hostClaim("gpu")
				if there == nil || here.DeletionTimestamp.IsZero() || there.DeletionTimestamp.IsZero() {
					return fmt.Errorf("the tenant's is deleted at %v, the host's is %v", here.DeletionTimestamp, there)
				}
				if !slices.Contains(here.Finalizers, v1alpha1.DRASyncFinalizer) || here.Status.Allocation == nil {
					return fmt.Errorf("the tenant's claim was let go: %v", here.Finalizers)
				}
				return nil
			})
			w.deallocate(copied)
			w.awaitGone(w.host, copied)
			w.awaitGone(w.tenant, claim)
		})
	}
}

// Copies that were made before copies had vCluster's short names are deleted, those of objects that are gone from the tenant
// too. Objects of others are not.
func TestLongNamedCopies(t *testing.T) {
	w := newFixture(t)
	long := func(origin client.Object, finalizers ...string) *resourcev1.ResourceClaim {
		name, err := names.HostName(origin.GetName(), origin.GetNamespace(), w.cluster.Name)
		w.must(err)
		key := client.ObjectKey{Namespace: w.cluster.Namespace, Name: name}
		metadata := names.HostMetadata(origin, names.ClaimKind, key, w.cluster.Name, names.Metadata{})
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Finalizers: finalizers,
			Labels: metadata.Labels, Annotations: metadata.Annotations},
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{exactly("gpu", "gpu")}}}}
		w.must(w.host.Create(t.Context(), claim))
		return claim
	}
	here := long(w.createClaim("here"), v1alpha1.DRASyncFinalizer)
	gone := long(&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "gone", UID: "u1"}},
		v1alpha1.DRASyncFinalizer)
	others := long(w.createClaim("others"))
	w.run()
	w.awaitGone(w.host, here)
	w.awaitGone(w.host, gone)
	for _, name := range []string{"here", "others"} {
		w.awaitHostClaim(name)
	}
	w.must(w.host.Get(t.Context(), client.ObjectKeyFromObject(others), others))
	if !others.DeletionTimestamp.IsZero() {
		t.Errorf("the claim of another syncer is being deleted: %v", others.ObjectMeta)
	}
}
