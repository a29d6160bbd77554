// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
)

// TestOwners: nothing that a provider writes in the management cluster holds what is not its own, of any kind that it may write:
// neither its namespace by a finalizer, nor an object of the platform by a dependent. What others have written there stays.
func TestOwners(t *testing.T) {
	namespace := environment.Namespace(t)
	environment.Grant(t, namespace, "provider-management.yaml", "provider-dra-management.yaml")
	policies, err := load("owners.yaml", Options{}.functions())
	if err != nil {
		t.Fatal(err)
	}
	owner := func(apiVersion, kind string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "x", UID: uid, BlockOwnerDeletion: ptr.To(true)}
	}
	owned := func(owners ...metav1.OwnerReference) []metav1.OwnerReference { return owners }
	held := func(finalizers ...string) []string { return finalizers }
	ours := v1alpha1.GroupVersion.String()
	kinds := map[string]func() client.Object{
		"machines": func() client.Object {
			machine := &v1alpha1.Machine{}
			machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "any"}
			return machine
		},
		"secrets":                func() client.Object { return &corev1.Secret{} },
		"resourceclaims":         func() client.Object { return copyOf(claims, "", resourcev1.ResourceClaimSpec{}) },
		"resourceclaimtemplates": func() client.Object { return copyOf(templates, "", resourcev1.ResourceClaimSpec{}) },
	}
	type attempt struct {
		reason     string
		finalizers []string
		owners     []metav1.OwnerReference
		admitted   map[string]bool
		refuse     string
	}
	copies := map[string]bool{claims: true, templates: true}
	secrets := map[string]bool{"secrets": true}
	cases := map[string]attempt{
		"Plain": {reason: "what it creates", admitted: map[string]bool{"machines": true, "secrets": true, "resourceclaims": true,
			"resourceclaimtemplates": true}},
		"Copy": {reason: "a copy and its origin hold each other", finalizers: held(v1alpha1.DRASyncFinalizer), admitted: copies,
			refuse: v1alpha1.DRASyncFinalizer},
		"Join": {reason: "the Secret goes with its Machine", owners: owned(owner(ours, "Machine")), admitted: secrets,
			refuse: "Machine x would own"},
		"Finalizer":    {reason: "its namespace would stay", finalizers: held("example.com/hold"), refuse: "example.com/hold would hold"},
		"OurFinalizer": {reason: "it is the manager's", finalizers: held(v1alpha1.MachineFinalizer), refuse: v1alpha1.MachineFinalizer},
		"Foreground": {reason: "its dependents would hold it", finalizers: held(metav1.FinalizerDeleteDependents),
			refuse: "foregroundDeletion"},
		"Image": {reason: "the platform could not delete it", owners: owned(owner(ours, "OSImage")), refuse: "OSImage x"},
		"Cluster": {reason: "the tenant could not be deleted",
			owners: owned(owner(ours, "TenantCluster")), refuse: "TenantCluster x"},
		"Pod":           {reason: "it makes none", owners: owned(owner("v1", "Pod")), refuse: "Pod x would own"},
		"OtherGroup":    {reason: "not our Machine", owners: owned(owner("cluster.x-k8s.io/v1beta1", "Machine")), refuse: "Machine x"},
		"AnotherAsWell": {reason: "one is enough", owners: owned(owner(ours, "Machine"), owner("v1", "Node")), refuse: "Node x"},
		"FinalizerAnd":  {reason: "one is enough", finalizers: held(v1alpha1.DRASyncFinalizer, "example.com/hold"), refuse: "example.com/hold"},
		"FinalizerOwner": {reason: "both", finalizers: held("example.com/hold"), owners: owned(owner("v1", "Node")),
			refuse: "example.com/hold"},
	}
	provider := environment.As(t, ProviderUser)
	each := func(try func(t *testing.T, kind string, tc attempt, create bool)) {
		for name, tc := range cases {
			for kind := range kinds {
				for _, create := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s/%s/%t", name, kind, create), func(t *testing.T) { try(t, kind, tc, create) })
				}
			}
		}
	}
	write := func(t *testing.T, kind string, tc attempt, create bool) error {
		t.Helper()
		object := kinds[kind]()
		object.SetNamespace(namespace)
		object.SetGenerateName("o-")
		if create {
			object.SetFinalizers(tc.finalizers)
			object.SetOwnerReferences(tc.owners)
			return provider.Create(t.Context(), object, client.DryRunAll)
		}
		if err := environment.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		before := object.DeepCopyObject().(client.Object)
		object.SetFinalizers(tc.finalizers)
		object.SetOwnerReferences(tc.owners)
		if kind == "secrets" { // it has no right to patch them
			return provider.Update(t.Context(), object, client.DryRunAll)
		}
		return provider.Patch(t.Context(), object, client.MergeFrom(before), client.DryRunAll)
	}
	refused := func() error { return write(t, "secrets", cases["Finalizer"], true) }
	withoutPolicies(t, refused, func() error { return write(t, "machines", cases["Finalizer"], true) })
	each(func(t *testing.T, kind string, tc attempt, create bool) {
		if err := write(t, kind, tc, create); err != nil {
			t.Errorf("without the policy there is nothing to refuse: %v", err)
		}
	})
	enforce(t, policies, refused)
	each(func(t *testing.T, kind string, tc attempt, create bool) {
		judge(t, tc.reason, write(t, kind, tc, create), tc.admitted[kind], tc.refuse, "ValidatingAdmissionPolicy 'karpenter-metal3-")
	})
	for kind := range copies {
		t.Run("Unlabelled/"+kind, func(t *testing.T) {
			object := copyOf(kind, namespace, resourcev1.ResourceClaimSpec{})
			object.SetLabels(map[string]string{"example.com/x": "y"})
			judge(t, "another policy matches by the label", provider.Create(t.Context(), object, client.DryRunAll), false, names.MarkerLabel)
			object.SetLabels(nil)
			judge(t, "another policy matches by the label", provider.Create(t.Context(), object, client.DryRunAll), false, names.MarkerLabel)
		})
	}
	for kind := range kinds {
		t.Run("Kept/"+kind, func(t *testing.T) {
			object := kinds[kind]()
			object.SetNamespace(namespace)
			object.SetGenerateName("o-")
			object.SetLabels(nil)
			object.SetFinalizers([]string{"example.com/theirs"})
			object.SetOwnerReferences([]metav1.OwnerReference{owner("v1", "Node")})
			if err := environment.Client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			object.SetAnnotations(map[string]string{"example.com/x": "y"})
			update := provider.Update
			if kind != "secrets" {
				before := object.DeepCopyObject().(client.Object)
				object.SetAnnotations(map[string]string{"example.com/x": "z"})
				update = func(ctx context.Context, object client.Object, _ ...client.UpdateOption) error {
					return provider.Patch(ctx, object, client.MergeFrom(before))
				}
			}
			if err := update(t.Context(), object); err != nil {
				t.Errorf("what another user has written keeps the provider from its object: %v", err)
			}
		})
	}
	// A client writes the managed fields as it likes, and the API server keeps them.
	fields := map[string]any{}
	for n := range 400 {
		fields[fmt.Sprintf("f:%0300d", n)] = map[string]any{}
	}
	raw, err := json.Marshal(map[string]any{"f:metadata": map[string]any{"f:labels": fields}})
	if err != nil {
		t.Fatal(err)
	}
	for kind := range kinds {
		for name, hoard := range map[string]func(client.Object){
			"Annotations": func(object client.Object) {
				object.SetAnnotations(map[string]string{"example.com/x": strings.Repeat("x", 100<<10)})
			},
			"ManagedFields": func(object client.Object) {
				version, err := environment.Client.GroupVersionKindFor(object)
				if err != nil {
					t.Fatal(err)
				}
				object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x", Operation: metav1.ManagedFieldsOperationUpdate,
					APIVersion: version.GroupVersion().String(), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw))}})
			},
		} {
			for _, create := range []bool{true, false} {
				t.Run(fmt.Sprintf("Hoard%s/%s/%t", name, kind, create), func(t *testing.T) {
					object := kinds[kind]()
					object.SetNamespace(namespace)
					object.SetGenerateName("o-")
					var err error
					if create {
						hoard(object)
						err = provider.Create(t.Context(), object, client.DryRunAll)
					} else {
						if err := environment.Client.Create(t.Context(), object); err != nil {
							t.Fatal(err)
						}
						hoard(object)
						if kind == "secrets" {
							err = provider.Update(t.Context(), object, client.DryRunAll)
						} else {
							object.SetResourceVersion("")
							patch, err2 := json.Marshal(map[string]any{"metadata": map[string]any{
								"annotations": object.GetAnnotations(), "managedFields": object.GetManagedFields()}})
							if err2 != nil {
								t.Fatal(err2)
							}
							err = provider.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, patch), client.DryRunAll)
						}
					}
					judge(t, "etcd is shared", err, false, "managed fields and the rest have", "a provider may write")
				})
			}
		}
	}
	machine := kinds["machines"]()
	machine.SetNamespace(namespace)
	machine.SetGenerateName("o-")
	if err := provider.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	if err := provider.Delete(t.Context(), machine, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Errorf("the provider cannot delete in the foreground: %v", err)
	}
}
