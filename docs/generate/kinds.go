// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type schema = apiextensionsv1.JSONSchemaProps

// writeKind writes the section of a kind: its description, and a row for each field.
func writeKind(page *strings.Builder, crd *apiextensionsv1.CustomResourceDefinition) error {
	if len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Schema == nil {
		return fmt.Errorf("%s has not one version with a schema", crd.Name)
	}
	version := crd.Spec.Versions[0]
	root := version.Schema.OpenAPIV3Schema
	// With its group: other projects have machines and ipaddresses, too.
	names := append([]string{crd.Name}, crd.Spec.Names.ShortNames...)
	fmt.Fprintf(page, "\n### %s\n\n%s\n\n`apiVersion: %s/%s`; `kubectl get %s`; %s.\n\n| field | type | |\n|---|---|---|\n",
		crd.Spec.Names.Kind, sentences(root.Description), crd.Spec.Group, version.Name, strings.Join(names, "`, `"),
		map[apiextensionsv1.ResourceScope]string{apiextensionsv1.NamespaceScoped: "in a namespace",
			apiextensionsv1.ClusterScoped: "in no namespace"}[crd.Spec.Scope])
	for _, part := range []string{"spec", "status"} {
		if s, ok := root.Properties[part]; ok {
			writeField(page, part, s, slices.Contains(root.Required, part))
		}
	}
	return nil
}

func writeField(page *strings.Builder, path string, s schema, required bool) {
	fmt.Fprintf(page, "| `%s` | %s | %s |\n", path, typeOf(s), cell(strings.TrimSpace(sentences(s.Description)+constraints(s, required))))
	if standard(s) {
		return
	}
	inner := s
	switch {
	case s.Items != nil && s.Items.Schema != nil:
		path, inner = path+"[]", *s.Items.Schema
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		path, inner = path+"{}", *s.AdditionalProperties.Schema
	}
	for _, name := range slices.Sorted(maps.Keys(inner.Properties)) {
		writeField(page, path+"."+name, inner.Properties[name], slices.Contains(inner.Required, name))
	}
}

// standard returns whether a field has a well-known type of Kubernetes, whose fields are left out.
func standard(s schema) bool { return isSelector(s) || isConditions(s) }

func isSelector(s schema) bool {
	_, labels := s.Properties["matchLabels"]
	_, expressions := s.Properties["matchExpressions"]
	return labels && expressions
}

func isConditions(s schema) bool {
	if s.Items == nil || s.Items.Schema == nil {
		return false
	}
	_, transition := s.Items.Schema.Properties["lastTransitionTime"]
	_, reason := s.Items.Schema.Properties["reason"]
	return transition && reason
}

func typeOf(s schema) string {
	switch {
	case isSelector(s):
		return "LabelSelector"
	case isConditions(s):
		return "list of Condition"
	case s.XIntOrString:
		return "quantity"
	case s.Items != nil && s.Items.Schema != nil:
		return "list of " + typeOf(*s.Items.Schema)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(*s.AdditionalProperties.Schema)
	case s.Format == "date-time":
		return "time"
	}
	return s.Type
}

// constraints returns the validation of a field.
func constraints(s schema, required bool) string {
	var all []string
	if required {
		all = append(all, "required")
	}
	if s.Default != nil {
		all = append(all, "default `"+string(s.Default.Raw)+"`")
	}
	if len(s.Enum) > 0 {
		var values []string
		for _, value := range s.Enum {
			values = append(values, "`"+strings.Trim(string(value.Raw), `"`)+"`")
		}
		all = append(all, "one of "+strings.Join(values, ", "))
	}
	for what, bound := range map[string]*float64{"at least": s.Minimum, "at most": s.Maximum} {
		if bound != nil {
			all = append(all, what+" "+strconv.FormatFloat(*bound, 'f', -1, 64))
		}
	}
	for what, bound := range map[string]*int64{"characters": s.MaxLength, "entries": s.MaxItems, "keys": s.MaxProperties} {
		if bound != nil {
			all = append(all, fmt.Sprintf("at most %d %s", *bound, what))
		}
	}
	if additional := s.AdditionalProperties; additional != nil && additional.Schema != nil && additional.Schema.MaxLength != nil {
		all = append(all, fmt.Sprintf("values of at most %d characters", *additional.Schema.MaxLength))
	}
	if s.MinItems != nil && *s.MinItems > 0 {
		all = append(all, fmt.Sprintf("at least %d entries", *s.MinItems))
	}
	slices.Sort(all)
	text := ""
	if len(all) > 0 {
		text = " (" + strings.Join(all, "; ") + ")"
	}
	for _, rule := range s.XValidations {
		if rule.Message != "" {
			text += " Refused otherwise: *" + rule.Message + "*."
		}
	}
	return text
}

func sentences(text string) string { return strings.TrimSpace(spaces.ReplaceAllString(text, " ")) }
