// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package apis

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// bound limits the length of a string, a list or a map, or removes its rules.
type bound struct {
	// path starts at the root of the object; [] is an item of a list and {} a value of a map.
	path                string
	length, items, keys int64
	// noRules removes the rules of the type: the API server estimates that rules in so many places cost too much.
	noRules bool
}

// Lengths of names and values in Kubernetes.
const (
	maxKey   = 317 // a DNS name, a slash and a name
	maxValue = 63
	maxName  = 253
)

// bounds limit fields whose types are not ours, and values of maps: no marker of controller-gen reaches them. Without a
// bound, a tenant, who writes them, could make the management cluster store and cache MiBs for each server.
var bounds = map[string][]bound{
	"Machine": slices.Concat(
		[]bound{
			{path: "spec.properties{}", length: v1alpha1.MaxPropertyLength},
			{path: "spec.labels{}", length: maxValue},
			{path: "spec.resources", keys: 64},
			{path: "spec.resources{}", length: maxValue},
			{path: "spec.node.resources", keys: 3},
			{path: "spec.node.resources{}", length: maxValue},
			{path: "spec.node.unhealthy.since", length: maxValue},
			{path: "spec.requirements[].key", length: maxKey},
			{path: "spec.requirements[].operator", length: maxValue},
			// Karpenter names up to 600 instance types.
			{path: "spec.requirements[].values", items: 1000},
			{path: "spec.requirements[].values[]", length: maxValue},
		},
		boundsOfTaints("spec.taints"), boundsOfTaints("spec.startupTaints"),
	),
	"MetalNodeClass": {{path: "spec.properties{}", length: v1alpha1.MaxPropertyLength}},
	// The webhook checks the rules, and so does the schema of the pool's MetalNodeClass.
	"TenantCluster": {
		{path: "spec.privateNodes.autoNodes[].static[].kubeletArgs{}", noRules: true},
		{path: "spec.privateNodes.autoNodes[].dynamic[].kubeletArgs{}", noRules: true},
	},
}

func boundsOfTaints(path string) []bound {
	return []bound{
		{path: path + "[].key", length: maxKey},
		{path: path + "[].value", length: maxValue},
		{path: path + "[].effect", length: maxValue},
		{path: path + "[].timeAdded", length: maxValue},
	}
}

// setBounds adds the bounds of a kind. An error means that the kind lacks one of the fields.
func setBounds(crd *apiextensionsv1.CustomResourceDefinition) error {
	for i := range crd.Spec.Versions {
		root := crd.Spec.Versions[i].Schema.OpenAPIV3Schema
		for _, bound := range bounds[crd.Spec.Names.Kind] {
			if !changeAt(root, pathOf(bound.path), bound.set) {
				return fmt.Errorf("bounding %s of %s: there is no such field", bound.path, crd.Name)
			}
		}
	}
	return nil
}

// pathOf splits a path as changeAt takes it.
func pathOf(path string) []string {
	return strings.Split(strings.NewReplacer("[]", ".[]", "{}", ".{}").Replace(path), ".")
}

func (b bound) set(schema *apiextensionsv1.JSONSchemaProps) {
	for bounded, limit := range map[**int64]int64{&schema.MaxLength: b.length, &schema.MaxItems: b.items, &schema.MaxProperties: b.keys} {
		if limit > 0 {
			*bounded = ptr.To(limit)
		}
	}
	if b.noRules {
		schema.XValidations = nil
	}
}

// changeAt changes the schema at a path ([] is an item of a list, {} a value of a map), and reports whether it exists.
func changeAt(schema *apiextensionsv1.JSONSchemaProps, path []string, change func(*apiextensionsv1.JSONSchemaProps)) bool {
	switch {
	case len(path) == 0:
		change(schema)
		return true
	case path[0] == "[]":
		return schema.Items != nil && changeAt(schema.Items.Schema, path[1:], change)
	case path[0] == "{}":
		return schema.AdditionalProperties != nil && changeAt(schema.AdditionalProperties.Schema, path[1:], change)
	}
	field, found := schema.Properties[path[0]]
	if found = found && changeAt(&field, path[1:], change); found {
		schema.Properties[path[0]] = field
	}
	return found
}
