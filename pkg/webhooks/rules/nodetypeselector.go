// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

var selectorOperators = map[v1alpha1.SelectorOperator]selection.Operator{
	"": selection.In, v1alpha1.SelectorIn: selection.In, v1alpha1.SelectorNotIn: selection.NotIn,
	v1alpha1.SelectorExists: selection.Exists, v1alpha1.SelectorNotExists: selection.DoesNotExist,
}

// offeredType is a NodeType as tenants can select it.
type offeredType struct {
	name, provider string
	// values by label; all that there are.
	values map[string][]string
}

func typesOf(fleet Fleet) []offeredType {
	var all []offeredType
	for _, nodeType := range fleet.NodeTypes() {
		one := offeredType{name: nodeType.Name, provider: nodeType.Spec.ProviderRef.Name, values: map[string][]string{
			// Known whatever servers there are.
			v1alpha1.NodeTypeLabelKey: {nodeType.Name}, corev1.LabelInstanceTypeStable: {nodeType.Name},
		}}
		for _, offered := range fleet.Offered(nodeType.Name) {
			one.values[offered.Key] = offered.Values
		}
		all = append(all, one)
	}
	return all
}

// nodeTypeSelector looks at what a pool selects by: first each entry, then what is left.
func (v *Verdict) nodeTypeSelector(p pool, types []offeredType) {
	path := p.path.Child("nodeTypeSelector")
	before := len(v.Errors) + v.omittedErrors
	var parsed []labels.Requirement
	for i := range p.template.NodeTypeSelector {
		if one := v.selectorEntry(path.Index(i), &p.template.NodeTypeSelector[i]); one != nil {
			parsed = append(parsed, *one)
		}
	}
	if len(v.Errors)+v.omittedErrors > before {
		return
	}
	if about, why := contradiction(parsed); about != "" {
		v.deny(RuleNodeTypeSelector, field.Invalid(path, shown(about), "no NodeType can match: of this property, "+why+": take one of the two away"))
		return
	}
	v.namedTypes(path, p, parsed, types)
	if len(v.Errors)+v.omittedErrors == before && !v.deaf() && len(types) > 0 {
		v.satisfied(path, p, parsed, types)
	}
}

// selectorEntry looks at one entry, and returns it parsed; nil if it is not valid.
func (v *Verdict) selectorEntry(path *field.Path, entry *v1alpha1.NodeTypeSelectorRequirement) *labels.Requirement {
	operator, known := selectorOperators[entry.Operator]
	if !known {
		v.deny(RuleNodeTypeSelector, field.NotSupported(path.Child("operator"), v1alpha1.SelectorOperator(shown(string(entry.Operator))),
			[]v1alpha1.SelectorOperator{v1alpha1.SelectorIn, v1alpha1.SelectorNotIn, v1alpha1.SelectorExists, v1alpha1.SelectorNotExists}))
		return nil
	}
	fault := func(err *field.Error) *labels.Requirement { v.deny(RuleNodeTypeSelector, err); return nil }
	if problems := validation.IsQualifiedName(entry.Property); len(problems) > 0 {
		return fault(field.Invalid(path.Child("property"), shown(entry.Property), "cannot be the key of a property: "+because(problems)))
	}
	values := entry.Values
	takesValues := operator == selection.In || operator == selection.NotIn
	switch {
	case takesValues && entry.Value != "" && len(values) > 0:
		return fault(field.Invalid(path.Child("value"), shown(entry.Value), "there are values too: write one of value and values"))
	case takesValues && entry.Value == "" && len(values) == 0:
		return fault(field.Required(path.Child("value"), "In and NotIn compare with values: write value or values"))
	case !takesValues && (entry.Value != "" || len(values) > 0):
		return fault(field.Invalid(path.Child("value"), shown(strings.Join(append([]string{entry.Value}, values...), " ")), "Exists and NotExists take neither value nor values: leave them out, or write In or NotIn"))
	case entry.Value != "":
		values = []string{entry.Value}
	}
	for i, value := range values {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			at := path.Child("value")
			if entry.Value == "" {
				at = path.Child("values").Index(i)
			}
			fault(field.Invalid(at, shown(value), "cannot be the value of a property to select by: "+because(problems)))
		}
	}
	one, err := labels.NewRequirement(entry.Property, operator, values)
	if err != nil {
		return nil // said already
	}
	return one
}

// namedTypes refuses types that are named and that the tenant may not have.
func (v *Verdict) namedTypes(path *field.Path, p pool, parsed []labels.Requirement, offered []offeredType) {
	providers := map[string]string{}
	for i := range offered {
		providers[offered[i].name] = offered[i].provider
	}
	for i := range parsed {
		names := parsed[i].Key() == v1alpha1.NodeTypeLabelKey || parsed[i].Key() == corev1.LabelInstanceTypeStable
		if !names || parsed[i].Operator() != selection.In {
			continue
		}
		for _, name := range parsed[i].Values().List() {
			provider, exists := providers[name]
			if !exists {
				provider = p.entry.Provider
			}
			if !p.tenant.Allows(name, provider) {
				v.deny(RuleAllowed, field.Forbidden(path.Index(i), fmt.Sprintf("NodeType %s is not among the allowedNodeTypes of this TenantCluster: allow it, or select another", name)))
			}
		}
	}
}

// satisfied warns of properties that no type has, and of a selection that no type satisfies.
func (v *Verdict) satisfied(path *field.Path, p pool, parsed []labels.Requirement, offered []offeredType) {
	for i := range parsed {
		name := parsed[i].Key()
		if !slices.ContainsFunc(offered, func(t offeredType) bool { return t.values[name] != nil }) {
			v.warn(RuleNodeTypeSelector, path.Index(i).Child("property"), "no NodeType has the property %q%s", shown(name), didYouMean(closest(name, offeredKeys(offered))))
			return
		}
	}
	var reasons []string
	for i := range offered {
		reason := p.misses(&offered[i], parsed)
		if reason == "" {
			return
		}
		reasons = append(reasons, offered[i].name+" "+reason)
	}
	v.warn(RuleNodeTypeSelector, path, "no NodeType satisfies it: %s", list(reasons))
}

// fitting are the types that the pool selects, also without a server; nil if its selector is not valid.
func (p pool) fitting(offered []offeredType) []string {
	var parsed []labels.Requirement
	for i := range p.template.NodeTypeSelector {
		one := (&Verdict{}).selectorEntry(p.path, &p.template.NodeTypeSelector[i])
		if one == nil {
			return nil
		}
		parsed = append(parsed, *one)
	}
	fitting := []string{}
	for i := range offered {
		if p.misses(&offered[i], parsed) == "" {
			fitting = append(fitting, offered[i].name)
		}
	}
	return fitting
}

// misses says why a type is none of the pool's; empty if it is.
func (p pool) misses(t *offeredType, parsed []labels.Requirement) string {
	switch {
	case t.provider != p.entry.Provider:
		return "is of NodeProvider " + t.provider
	case !p.tenant.Allows(t.name, t.provider):
		return "is not allowed for this tenant"
	}
	for i := range parsed {
		if !meets(t.values[parsed[i].Key()], &parsed[i]) {
			return fmt.Sprintf("does not meet %q", shown(parsed[i].String()))
		}
	}
	return ""
}

// meets tells whether some server with one of these values of a label, or with none, meets a requirement.
func meets(values []string, requirement *labels.Requirement) bool {
	if len(values) == 0 {
		return requirement.Matches(labels.Set{})
	}
	return slices.ContainsFunc(values, func(value string) bool {
		return requirement.Matches(labels.Set{requirement.Key(): value})
	})
}

func offeredKeys(offered []offeredType) []string {
	keys := map[string]bool{}
	for i := range offered {
		for name := range offered[i].values {
			keys[name] = true
		}
	}
	return sortedKeys(keys)
}

func keyOf(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
