// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Form is another form of a field, as the reference writes it.
type Form struct {
	// Kind has the field, and Path leads to it.
	Kind string
	Path []string
	// other is the form in words, stored the form of the schema, and write an example of the stored form.
	other, stored, write string
	// convert returns the value in the form of the schema, and false if the value does not have the other form.
	convert func(value any) (any, bool)
	// properties adds the properties of the other form to the schema, nil if it has none. The API server prunes or
	// refuses what the schema has no properties for before it asks the webhook: without them, the webhook would get an
	// empty object.
	properties func(schema *apiextensionsv1.JSONSchemaProps)
}

// Forms lists every other form. Values may be of any type: the webhook sees them before the schema's validation.
var Forms = []Form{
	{
		Kind: "TenantCluster", Path: []string{"spec", "privateNodes", "autoNodes"},
		other: "a single entry", stored: "a list", write: "autoNodes: [{provider: ...}]",
		convert: func(value any) (any, bool) {
			entry, is := value.(map[string]any)
			if len(entry) == 0 {
				return []any{}, is
			}
			return []any{entry}, is
		},
		properties: func(list *apiextensionsv1.JSONSchemaProps) { list.Properties = shape(list.Items.Schema).Properties },
	},
	{
		Kind: "TenantCluster", Path: []string{"spec", "allowedNodeTypes"},
		other: "{name: ...} for an entry", stored: "a list of names", write: "allowedNodeTypes: [...]",
		convert: func(value any) (any, bool) {
			entries, _ := value.([]any)
			names, is := make([]any, len(entries)), false
			for i := range entries {
				entry, _ := entries[i].(map[string]any)
				name, named := entry["name"].(string)
				if names[i] = entries[i]; named && len(entry) == 1 {
					names[i], is = name, true
				}
			}
			return names, is
		},
		properties: func(list *apiextensionsv1.JSONSchemaProps) {
			list.Items.Schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{"name": {Type: "string",
				Description: "Other form: the name of an entry that is written as an object."}}
		},
	},
	{
		Kind: "NodeType", Path: []string{"spec", "providerRef"},
		other: "a name alone", stored: "an object", write: "providerRef: {name: ...}",
		convert: func(value any) (any, bool) {
			name, is := value.(string)
			return map[string]any{"name": name}, is
		},
	},
}

// Convert returns the value of the field in the form of the schema, and false if the object does not have the other
// form. If the value has neither form, the schema refuses it.
func (f *Form) Convert(object map[string]any) (any, bool) {
	value, _, _ := unstructured.NestedFieldNoCopy(object, f.Path...)
	return f.convert(value)
}

// Warning says how to write the field.
func (f *Form) Warning() string { return fmt.Sprintf("is stored as %s: write %s", f.stored, f.write) }

// Admit changes the schema of the field so that the other form reaches the webhook. The type stays the same, so the API
// server refuses an object that the webhook did not convert.
func (f *Form) Admit(schema *apiextensionsv1.JSONSchemaProps) {
	schema.Description += fmt.Sprintf("\nOther form: %s, which is stored as %s.", f.other, f.stored)
	if f.properties != nil {
		f.properties(schema)
	}
}

// shape returns the fields of a schema without its rules, which apply once: to the object after its conversion.
func shape(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	bare := &apiextensionsv1.JSONSchemaProps{Type: schema.Type, XIntOrString: schema.XIntOrString,
		XPreserveUnknownFields: schema.XPreserveUnknownFields}
	if schema.Items != nil {
		bare.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: shape(schema.Items.Schema)}
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		bare.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true,
			Schema: shape(schema.AdditionalProperties.Schema)}
	}
	for name, field := range schema.Properties {
		if bare.Properties == nil {
			bare.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
		}
		bare.Properties[name] = *shape(&field)
	}
	return bare
}

// TypeNames returns the names of the NodeTypes that a pool of a NodeProvider names. The reference writes PROVIDER.TYPE,
// even for the provider of the pool. A type whose full name is PROVIDER.TYPE wins.
func TypeNames(names []string, provider string, exists func(nodeType string) bool) []string {
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = name
		if cut, found := strings.CutPrefix(name, provider+"."); found && !exists(name) {
			short[i] = cut
		}
	}
	return short
}
