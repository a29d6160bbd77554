// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// generatedOnBothSides makes a pod with a claim from a template. The resourceclaim controllers of the tenant and of the host
// have both generated it, and the tenant's pod names the tenant's. Ours start between the two, so that their caches have it.
func (w *fixture) generatedOnBothSides() (tenantPod *corev1.Pod, early, made *resourcev1.ResourceClaim) {
	w.Helper()
	tenantPod = pod(w.namespace, "serve", corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: ptr.To("one-gpu")})
	w.must(w.tenant.Create(w.Context(), tenantPod))
	early = w.generatedClaim(w.namespace, "serve-gpu-7ztvz", tenantPod)
	w.must(w.tenant.Create(w.Context(), early))
	w.nameClaim(tenantPod, early.Name)
	w.run()
	hostPod := w.createHostPod(tenantPod)
	made = w.generatedClaim(w.cluster.Namespace, hostPod.Name+"-gpu-abcde", hostPod)
	w.must(w.host.Create(w.Context(), made))
	w.allocate(made, "gpu-0", hostPod)
	w.awaitStatus(early.Name, "", tenantPod)
	return tenantPod, early, made
}

// nameClaim writes the name of the pod's claim into its status, as the tenant's resourceclaim controller and vCluster do.
func (w *fixture) nameClaim(pod *corev1.Pod, name string) {
	w.Helper()
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &name}}
	w.must(w.tenant.Status().Update(w.Context(), pod))
}

// awaitOnly waits until one claim is all that the tenant has, allocated to the pod.
func (w *fixture) awaitOnly(name string, pod *corev1.Pod) {
	w.Helper()
	w.eventually("claim "+name+" is the only one in the tenant", func(ctx context.Context) error {
		claims := &resourcev1.ResourceClaimList{}
		if err := w.tenant.List(ctx, claims, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		var shown []string
		for _, claim := range claims.Items {
			shown = append(shown, fmt.Sprintf("%s allocated=%v", claim.Name, claim.Status.Allocation != nil))
		}
		if want := []string{name + " allocated=true"}; !slices.Equal(shown, want) {
			return fmt.Errorf("claims are %v, want %v", shown, want)
		}
		return nil
	})
	w.awaitStatus(name, "", pod)
}

// vCluster overwrites the pod's status with the host's. What the tenant's resourceclaim controller has generated before that
// goes: both would show one device.
func TestTenantHasGeneratedTheClaimToo(t *testing.T) {
	w := newFixture(t)
	tenantPod, early, made := w.generatedOnBothSides()
	w.nameClaim(tenantPod, made.Name)
	w.awaitOnly(made.Name, tenantPod)

	// The tenant's controller works from caches: it may write the name of its claim again, and vCluster the host's again. The
	// claim that both end with stays: a controller that saw none would generate another.
	shown := w.tenantClaim(made.Name)
	w.nameClaim(tenantPod, early.Name)
	again := w.generatedClaim(w.namespace, "serve-gpu-again", tenantPod)
	w.must(w.tenant.Create(t.Context(), again))
	w.awaitGone(w.tenant, again)
	w.nameClaim(tenantPod, made.Name)
	w.awaitOnly(made.Name, tenantPod)
	if now := w.tenantClaim(made.Name); now.UID != shown.UID {
		t.Errorf("claim %s was deleted and made again", made.Name)
	}
}

// A claim with the finalizer of the API stays until its status is clear. The controller that sets the finalizer removes it then.
func TestTenantHasProtectedItsClaim(t *testing.T) {
	w := newFixture(t)
	tenantPod, early, made := w.generatedOnBothSides()
	change(w, w.tenant, early, func(claim *resourcev1.ResourceClaim) { claim.Finalizers = append(claim.Finalizers, protection) })
	w.nameClaim(tenantPod, made.Name)
	w.eventually("the claim can go", func(context.Context) error {
		claim := w.tenantClaim(early.Name)
		if claim.DeletionTimestamp.IsZero() || claim.Status.Allocation != nil || len(claim.Status.ReservedFor) > 0 {
			return fmt.Errorf("deletion %v, status %v", claim.DeletionTimestamp, claim.Status)
		}
		return nil
	})
	change(w, w.tenant, early, func(claim *resourcev1.ResourceClaim) { claim.Finalizers = nil })
	w.awaitOnly(made.Name, tenantPod)
}

// Claims of the pod that are not the one from the template stay, and so do those of other pods.
func TestOtherClaimsOfThePodStay(t *testing.T) {
	w := newFixture(t)
	tenantPod, early, made := w.generatedOnBothSides()
	other := w.generatedClaim(w.namespace, "serve-nic", tenantPod)
	other.Annotations["resource.kubernetes.io/pod-claim-name"] = "nic"
	byHand := w.generatedClaim(w.namespace, "by-hand", tenantPod)
	byHand.OwnerReferences[0].Controller = nil
	for _, claim := range []*resourcev1.ResourceClaim{other, byHand} {
		w.must(w.tenant.Create(t.Context(), claim))
	}
	w.nameClaim(tenantPod, made.Name)
	w.awaitGone(w.tenant, early)
	for _, claim := range []*resourcev1.ResourceClaim{other, byHand} {
		if now := w.tenantClaim(claim.Name); !now.DeletionTimestamp.IsZero() {
			t.Errorf("claim %s is being deleted", claim.Name)
		}
	}
}
