// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
)

// offeredType is a NodeType as tenants can select it.
type offeredType struct {
	name, provider string
	matching.Offered
}

func typesOf(cluster Cluster) []offeredType {
	var all []offeredType
	for _, nodeType := range cluster.NodeTypes() {
		one := offeredType{name: nodeType.Name, provider: nodeType.Spec.ProviderRef.Name, Offered: matching.Offered{
			// Known whatever servers there are.
			v1alpha1.NodeTypeLabelKey: {nodeType.Name}, corev1.LabelInstanceTypeStable: {nodeType.Name},
		}}
		for _, offered := range cluster.Offered(nodeType.Name) {
			one.Offered[offered.Key] = offered.Values
		}
		all = append(all, one)
	}
	return all
}

// nodeTypeSelector validates what a pool selects by: first each entry, then all together.
func (r *Result) nodeTypeSelector(p pool, types []offeredType) {
	path := p.path.Child("nodeTypeSelector")
	before := r.errorCount()
	var parsed []labels.Requirement
	for i := range p.template.NodeTypeSelector {
		if one := r.selectorEntry(path.Index(i), &p.template.NodeTypeSelector[i]); one != nil {
			parsed = append(parsed, *one)
		}
	}
	if r.errorCount() > before {
		return
	}
	if about, why := conflict(parsed); about != "" {
		r.deny(RuleNodeTypeSelector, field.Invalid(path, about, "no NodeType can match: of this property, "+why+": take one of the two away"))
		return
	}
	r.namedTypes(path, p, parsed, types)
	if r.errorCount() == before && !r.warningsFull() && len(types) > 0 {
		r.satisfied(path, p, parsed, types)
	}
}

// selectorEntry validates one entry, and returns it parsed; nil if it is not valid.
func (r *Result) selectorEntry(path *field.Path, entry *v1alpha1.NodeTypeSelectorRequirement) *labels.Requirement {
	converted, err := matching.NodeTypeSelector(path, *entry)
	if err != nil {
		r.deny(RuleNodeTypeSelector, err)
		return nil
	}
	valid := r.syntax(RuleNodeTypeSelector, path.Child("property"), entry.Property, "cannot be the key of a property: ",
		validation.IsQualifiedName)
	for i, value := range converted.Values {
		at := path.Child("value")
		if entry.Value == "" {
			at = path.Child("values").Index(i)
		}
		valid = r.syntax(RuleNodeTypeSelector, at, value, "cannot be the value of a property to select by: ", validation.IsValidLabelValue) &&
			valid
	}
	if !valid {
		return nil
	}
	one, errs := matching.Requirement(path, converted)
	r.deny(RuleNodeTypeSelector, errs...)
	return one
}

// namedTypes refuses types that are named and that the tenant may not have.
func (r *Result) namedTypes(path *field.Path, p pool, parsed []labels.Requirement, offered []offeredType) {
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
				r.deny(RuleAllowed, field.Forbidden(path.Index(i),
					fmt.Sprintf("NodeType %s is not among the allowedNodeTypes of this TenantCluster: allow it, or select another", name)))
			}
		}
	}
}

// satisfied warns of properties that no type has, and of a selection that no type satisfies.
func (r *Result) satisfied(path *field.Path, p pool, parsed []labels.Requirement, offered []offeredType) {
	for i := range parsed {
		name := parsed[i].Key()
		if !slices.ContainsFunc(offered, func(t offeredType) bool { return t.Offered[name] != nil }) {
			r.warn(RuleNodeTypeSelector, path.Index(i).Child("property"), "no NodeType has the property %q%s", shown(name),
				didYouMean(closest(name, offeredKeys(offered))))
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
	r.warn(RuleNodeTypeSelector, path, "no NodeType satisfies it: %s", list(reasons))
}

// fitting are the types that the pool selects, also without a server; nil if its selector is not valid.
func (p pool) fitting(offered []offeredType) []string {
	var parsed []labels.Requirement
	for i := range p.template.NodeTypeSelector {
		one := (&Result{}).selectorEntry(p.path, &p.template.NodeTypeSelector[i])
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
		if !t.Meets(&parsed[i]) {
			return fmt.Sprintf("does not meet %q", shown(parsed[i].String()))
		}
	}
	return ""
}

func offeredKeys(offered []offeredType) []string {
	keys := map[string]bool{}
	for i := range offered {
		for name := range offered[i].Offered {
			keys[name] = true
		}
	}
	return sortedKeys(keys)
}

func keyOf(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
