// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package apis

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// spellings are the lists, and the strings, that the reference writes as objects too, by kind. The webhook changes these into what the
// schema says (pkg/webhooks/spelling.go). The API server prunes, or refuses as unknown, what the schema has no properties for, and it
// does so before it asks the webhook: without these properties, nothing of an object would be left.
var spellings = map[string]map[string]func(schema *apiextensionsv1.JSONSchemaProps) map[string]apiextensionsv1.JSONSchemaProps{
	"TenantCluster": {
		// autoNodes: {provider: a} for autoNodes: [{provider: a}]
		"spec.privateNodes.autoNodes": func(list *apiextensionsv1.JSONSchemaProps) map[string]apiextensionsv1.JSONSchemaProps {
			return shape(list.Items.Schema).Properties
		},
		// allowedNodeTypes: [{name: a}] for allowedNodeTypes: [a]
		"spec.allowedNodeTypes.[]": func(*apiextensionsv1.JSONSchemaProps) map[string]apiextensionsv1.JSONSchemaProps {
			return map[string]apiextensionsv1.JSONSchemaProps{"name": {Type: "string",
				Description: "Name of the other form {name: ...} of an entry, which is stored as a name."}}
		},
	},
}

// setSpellings adds the properties of other spellings. An error means that the kind has no such field. The type stays what it is, so that
// an object is refused if the webhook has not changed it.
func setSpellings(crd *apiextensionsv1.CustomResourceDefinition) error {
	for i := range crd.Spec.Versions {
		for path, properties := range spellings[crd.Spec.Names.Kind] {
			found := at(crd.Spec.Versions[i].Schema.OpenAPIV3Schema, strings.Split(path, "."), func(schema *apiextensionsv1.JSONSchemaProps) {
				schema.Properties = properties(schema)
			})
			if !found {
				return fmt.Errorf("adding a spelling of %s of %s: there is no such field", path, crd.Name)
			}
		}
	}
	return nil
}

// shape is what of a schema says which fields there are. The rules apply once, to what the webhook has made of it.
func shape(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	bare := &apiextensionsv1.JSONSchemaProps{Type: schema.Type, XIntOrString: schema.XIntOrString,
		XPreserveUnknownFields: schema.XPreserveUnknownFields}
	if schema.Items != nil {
		bare.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: shape(schema.Items.Schema)}
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		bare.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: shape(schema.AdditionalProperties.Schema)}
	}
	for name, field := range schema.Properties {
		if bare.Properties == nil {
			bare.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
		}
		bare.Properties[name] = *shape(&field)
	}
	return bare
}
