// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/nodeclass"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// TestAnyMetadataOfClasses validates and finalizes MetalNodeClasses with anything in their labels, annotations, finalizers, owner
// references and properties. Nothing panics, each class is ready or says why not, an error names the class, and finalizers of others
// are kept.
func TestAnyMetadataOfClasses(t *testing.T) {
	api := env.Fake(t)
	clusters := tenanttest.ClustersOf(tenanttest.TenantCluster(t, api), api.Client, api.Client)
	controller := nodeclass.NewController(clock.RealClock{}, clusters, events.NewRecorder(record.NewFakeRecorder(1000)))
	texts := []string{"", "/", "a", ",", "\x00", "€", strings.Repeat("x", 400), v1alpha1.TenantPoolLabelKey, v1alpha1.PropertyServerName,
		v1alpha1.PropertyOSImage, v1alpha1.NodeClassTerminationFinalizer, "example.com/mine"}
	ready := map[bool]int{}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 13))
		text := func() string { return texts[random.IntN(len(texts))] }
		some := func() map[string]string {
			all := map[string]string{}
			for range random.IntN(3) {
				all[text()] = text()
			}
			return all
		}
		class := &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("class-%d", seed), Labels: some(), Annotations: some()}}
		class.Spec.Properties = some()
		for range random.IntN(3) {
			class.Finalizers = append(class.Finalizers, text())
			class.OwnerReferences = append(class.OwnerReferences, metav1.OwnerReference{APIVersion: text(), Kind: text(), Name: text()})
		}
		if api.Client.Create(t.Context(), class) != nil {
			continue // its schema refuses it
		}
		look := func() bool {
			t.Helper()
			if _, err := controller.Reconcile(t.Context(), class); err != nil && !strings.Contains(err.Error(), class.Name) {
				t.Fatalf("seed %d: the error does not name the class: %v", seed, err)
			}
			return api.Client.Get(t.Context(), client.ObjectKeyFromObject(class), class) == nil
		}
		if !look() {
			t.Fatalf("seed %d: the class is gone", seed)
		}
		validated := class.StatusConditions().Get(v1alpha1.ConditionValidationSucceeded)
		if validated.IsUnknown() || validated.IsFalse() && (validated.Message == "" || validated.Reason == "") {
			t.Fatalf("seed %d: %+v says %+v", seed, class, validated)
		}
		ready[validated.IsTrue()]++
		ours := func(finalizer string) bool { return finalizer == v1alpha1.NodeClassTerminationFinalizer }
		others := slices.DeleteFunc(slices.Clone(class.Finalizers), ours)
		if err := api.Client.Delete(t.Context(), class); err != nil {
			t.Fatal(err)
		}
		if api.Client.Get(t.Context(), client.ObjectKeyFromObject(class), class) == nil && look() && !slices.Equal(class.Finalizers, others) {
			t.Fatalf("seed %d: finalizers %v are left of a deleted class, want %v", seed, class.Finalizers, others)
		}
	}
	if ready[true] == 0 || ready[false] == 0 {
		t.Errorf("of the classes %v are ready: the test tests nothing", ready)
	}
}
