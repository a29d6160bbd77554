// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// tenantKinds are what a tenant can write: MetalNodeClasses as its administrator, Machines through its provider.
var tenantKinds = []string{"Machine", "MetalNodeClass"}

// TestWhatATenantWritesIsBounded: each string, list and map in the spec of a kind that a tenant writes has a bound, so that no tenant
// fills the etcd of the management cluster and the memory of manager and webhook.
func TestWhatATenantWritesIsBounded(t *testing.T) {
	api := env.Fake(t)
	namespace := api.Namespace(t)
	for kind, schema := range specs(t) {
		unbounded(t, kind+".spec", schema)
		for field, property := range schema.Properties {
			if property.AdditionalProperties == nil {
				continue
			}
			object := smallest(kind, namespace)
			value := map[string]any{strings.Repeat("k", 400): "1"}
			if err := unstructured.SetNestedField(object.Object, value, "spec", field); err != nil {
				t.Fatal(err)
			}
			if err := api.Client.Create(t.Context(), object); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec."+field) {
				t.Errorf("%s.spec.%s takes a key of 400 characters: %v", kind, field, err)
			}
		}
	}
}

// TestPropertiesAreBoundedTogether: each value is short enough, and 64 of them are 4 MiB.
func TestPropertiesAreBoundedTogether(t *testing.T) {
	api := env.Fake(t)
	namespace := api.Namespace(t)
	for _, kind := range tenantKinds {
		for name, tc := range map[string]struct {
			reason string
			length int
			says   string
		}{
			"Document": {"user data and network data of the largest size", v1alpha1.MaxPropertyLength - 100, ""},
			"Value":    {"a value is too long", v1alpha1.MaxPropertyLength + 1, "spec.properties.a: Too long"},
			"Total":    {"the sum is too long", v1alpha1.MaxPropertyLength, "all keys and values have at most 131072 characters together"},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				object := smallest(kind, namespace)
				object.SetName(strings.ToLower(name))
				document := strings.Repeat("x", tc.length)
				if err := unstructured.SetNestedField(object.Object, map[string]any{"a": document, "b": document}, "spec", "properties"); err != nil {
					t.Fatal(err)
				}
				err := api.Client.Create(t.Context(), object)
				if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
					t.Errorf("%s: %.300v, want %q", tc.reason, err, tc.says)
				}
			})
		}
	}
}

// smallest is an object of the kind to which a test adds what it is about.
func smallest(kind, namespace string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	object.SetName("long")
	if kind == "Machine" {
		object.SetNamespace(namespace)
		object.Object["spec"] = map[string]any{"resources": map[string]any{"cpu": "1"}, "tenantClusterRef": map[string]any{"name": "tenant"}}
	}
	return object
}

func specs(t *testing.T) map[string]apiextensionsv1.JSONSchemaProps {
	t.Helper()
	found := map[string]apiextensionsv1.JSONSchemaProps{}
	for _, load := range []func() ([]*apiextensionsv1.CustomResourceDefinition, error){apis.ManagementCRDs, apis.TenantCRDs} {
		crds, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for _, crd := range crds {
			for _, kind := range tenantKinds {
				if crd.Spec.Names.Kind == kind {
					found[kind] = crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
				}
			}
		}
	}
	if len(found) != len(tenantKinds) {
		t.Fatalf("there are definitions of %d kinds, want those of %v", len(found), tenantKinds)
	}
	return found
}

// unbounded reports what has no bound at a path and below.
func unbounded(t *testing.T, path string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if (schema.Type == "string" || schema.XIntOrString) && schema.MaxLength == nil && len(schema.Enum) == 0 {
		t.Errorf("%s is a string of any length", path)
	}
	if schema.Type == "array" {
		if schema.MaxItems == nil {
			t.Errorf("%s is a list of any length", path)
		}
		unbounded(t, path+"[]", *schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil {
		if schema.MaxProperties == nil {
			t.Errorf("%s is a map of any size", path)
		}
		unbounded(t, path+"{}", *schema.AdditionalProperties.Schema)
	}
	// The webhook denies unknown fields in the spec of a Machine, and bounds the two of the reference: TestUnknownFields.
	if schema.XPreserveUnknownFields != nil && path != "Machine.spec" {
		t.Errorf("%s takes anything", path)
	}
	for name, field := range schema.Properties {
		unbounded(t, path+"."+name, field)
	}
}
