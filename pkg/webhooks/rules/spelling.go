// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Spelling returns the patches that give fields the form of the schema where the reference has several, and a warning for each field. An
// object that has the form of the schema gets none. It runs before the schema's validation, so that each value can be of any type: what is
// in no form of the reference stays as it is, and is refused by the schema.
func Spelling(kind Kind, object map[string]any) (Result, []jsonpatch.Operation) {
	r, spec := &Result{}, field.NewPath("spec")
	var patches []jsonpatch.Operation
	replace := func(pointer string, value any) {
		patches = append(patches, jsonpatch.NewOperation("replace", pointer, value))
	}
	switch kind {
	case KindTenantCluster:
		if one, is := at(object, "spec", "privateNodes", "autoNodes").(map[string]any); is {
			list := []any{}
			if len(one) > 0 {
				list = append(list, one)
			}
			replace("/spec/privateNodes/autoNodes", list)
			r.warn(RuleSpelling, spec.Child("privateNodes", "autoNodes"), "is stored as a list: write autoNodes: [{provider: ...}]")
		}
		entries, _ := at(object, "spec", "allowedNodeTypes").([]any)
		named := len(patches)
		for i := range entries {
			entry, _ := entries[i].(map[string]any)
			if name, is := entry["name"].(string); is && len(entry) == 1 {
				replace(fmt.Sprintf("/spec/allowedNodeTypes/%d", i), name)
			}
		}
		if len(patches) > named {
			r.warn(RuleSpelling, spec.Child("allowedNodeTypes"), "is stored as a list of names: write allowedNodeTypes: [...]")
		}
	case KindNodeType:
		if name, is := at(object, "spec", "providerRef").(string); is {
			replace("/spec/providerRef", map[string]any{"name": name})
			r.warn(RuleSpelling, spec.Child("providerRef"), "is stored as an object: write providerRef: {name: ...}")
		}
	}
	return r.done(), patches
}

// at returns the value of a field, nil if there is none or something above it is no object.
func at(object map[string]any, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	return value
}
