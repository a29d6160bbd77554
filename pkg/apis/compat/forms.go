// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Form is another form in which the reference writes a field.
type Form struct {
	// Kind that has the field, and Path of the field.
	Kind string
	Path []string
	// other is the form in words, stored the form of the schema, and write an example of it.
	other, stored, write string
	// convert returns the value in the form of the schema, and false if it is not in the other form.
	convert func(value any) (any, bool)
	// properties returns the schema's properties of the other form, nil if it has none. The API server prunes, or refuses
	// as unknown, what the schema has no properties for, before it asks the webhook: without them, nothing of an object
	// would be left.
	properties func(schema *apiextensionsv1.JSONSchemaProps)
}

// Forms are all of them. Values may be of any type: the webhook sees them before the schema's validation.
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
// form. A value that has neither form is left to the schema, which refuses it.
func (f *Form) Convert(object map[string]any) (any, bool) {
	value, _, _ := unstructured.NestedFieldNoCopy(object, f.Path...)
	return f.convert(value)
}

// Warning says how the field is to be written.
func (f *Form) Warning() string { return fmt.Sprintf("is stored as %s: write %s", f.stored, f.write) }

// Admit changes the schema of the field so that the other form reaches the webhook. The type stays what it is, so that
// the API server refuses an object that the webhook has not changed.
func (f *Form) Admit(schema *apiextensionsv1.JSONSchemaProps) {
	schema.Description += fmt.Sprintf("\nOther form: %s, which is stored as %s.", f.other, f.stored)
	if f.properties != nil {
		f.properties(schema)
	}
}

// shape is what of a schema says which fields there are. The rules apply once, to what the webhook has made of it.
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
// also for the provider that the pool has. A type that has such a name itself wins.
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
