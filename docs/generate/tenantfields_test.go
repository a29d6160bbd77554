// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
)

// TestTenantFieldsAreDecided: each field and key that a tenant writes has a row, and a new one, or one that has gone, is an error.
func TestTenantFieldsAreDecided(t *testing.T) {
	load := func() (vocabulary, []*apiextensionsv1.CustomResourceDefinition) {
		words, err := constants("../../pkg/apis/v1alpha1", "../../pkg/inventory", "../../pkg/webhooks/rules")
		if err != nil {
			t.Fatal(err)
		}
		management, err := apis.ManagementCRDs()
		if err != nil {
			t.Fatal(err)
		}
		tenant, err := apis.TenantCRDs()
		if err != nil {
			t.Fatal(err)
		}
		return words, append(management, tenant...)
	}
	spec := func(crds []*apiextensionsv1.CustomResourceDefinition, kind, part string) map[string]apiextensionsv1.JSONSchemaProps {
		for _, crd := range crds {
			if crd.Spec.Names.Kind == kind {
				return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[part].Properties
			}
		}
		t.Fatalf("there is no kind %s", kind)
		return nil
	}
	for name, tc := range map[string]struct {
		reason string
		change func(*vocabulary, []*apiextensionsv1.CustomResourceDefinition)
		want   string
	}{
		"as it is": {reason: "all is decided on"},
		"new field of a Machine": {reason: "a provider writes it", want: "field spec.favourite of Machine",
			change: func(_ *vocabulary, crds []*apiextensionsv1.CustomResourceDefinition) {
				spec(crds, "Machine", "spec")["favourite"] = apiextensionsv1.JSONSchemaProps{}
			}},
		"new field of a status": {reason: "a provider writes it", want: "field status.favourite of TenantCluster",
			change: func(_ *vocabulary, crds []*apiextensionsv1.CustomResourceDefinition) {
				spec(crds, "TenantCluster", "status")["favourite"] = apiextensionsv1.JSONSchemaProps{}
			}},
		"new key": {reason: "who writes it is not said", want: "constant FavouriteAnnotationKey",
			change: func(words *vocabulary, _ []*apiextensionsv1.CustomResourceDefinition) {
				words.keys = append(words.keys, constant{name: "FavouriteAnnotationKey"})
			}},
		"field gone": {reason: "the row is about nothing", want: `remove ["Machine spec.node"]`,
			change: func(_ *vocabulary, crds []*apiextensionsv1.CustomResourceDefinition) {
				delete(spec(crds, "Machine", "spec"), "node")
			}},
		"key gone": {reason: "the row is about nothing", want: "which are gone",
			change: func(words *vocabulary, _ []*apiextensionsv1.CustomResourceDefinition) { words.keys = words.keys[1:] }},
	} {
		t.Run(name, func(t *testing.T) {
			words, crds := load()
			if tc.change != nil {
				tc.change(&words, crds)
			}
			page, err := tenantFields(words, crds)
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
			if err == nil && strings.Count(page, "\n| ") < len(fields)+len(keysOfTenants) {
				t.Errorf("rows are missing on the page:\n%s", page)
			}
		})
	}
}
