// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/compat"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
)

// offeredType is a NodeType as tenants can select it.
type offeredType struct {
	name, provider string
	// madeBy is the provider, empty if the type was made by hand.
	madeBy string
	matching.Offered
}

// capacityTypeLabelKey is Karpenter's label. The NodePool determines which of the two values it has.
const capacityTypeLabelKey = "karpenter.sh/capacity-type"

func typesOf(cluster Cluster) []offeredType {
	var all []offeredType
	for _, nodeType := range cluster.NodeTypes() {
		offer := offeredType{name: nodeType.Name, provider: nodeType.Spec.ProviderRef.Name, madeBy: nodeType.MadeBy(), Offered: matching.Offered{
			// Known regardless of the servers.
			v1alpha1.NodeTypeLabelKey: {nodeType.Name}, corev1.LabelInstanceTypeStable: {nodeType.Name},
			capacityTypeLabelKey: {"on-demand", "reserved"},
		}}
		for _, offered := range cluster.Offered(nodeType.Name) {
			offer.Offered[offered.Key] = offered.Values
		}
		all = append(all, offer)
	}
	return all
}

// nodeTypeSelector validates the selector of a pool: first each entry, then all together.
func (r *Result) nodeTypeSelector(p pool, types []offeredType) {
	path := p.path.Child("nodeTypeSelector")
	before := r.errorCount()
	entries, parsed := r.selector(path, p, types)
	if r.errorCount() > before {
		return
	}
	if about, why := conflict(parsed); about != "" {
		r.deny(RuleNodeTypeSelector, field.Invalid(path, about, "no NodeType can match: "+why))
		return
	}
	r.namedTypes(path, p, entries, types)
	if r.errorCount() == before && !r.warningsFull() && len(types) > 0 {
		r.satisfied(path, p, parsed, types)
	}
}

// selector validates the entries one by one, and returns them, and their requirements together. The results are
// incomplete if entries are not valid.
func (r *Result) selector(path *field.Path, p pool, types []offeredType) (
	entries []corev1.NodeSelectorRequirement, parsed []labels.Requirement,
) {
	before := r.errorCount()
	for i := range p.template.NodeTypeSelector {
		if entry := r.selectorEntry(path.Index(i), p, &p.template.NodeTypeSelector[i], types); entry != nil {
			entries = append(entries, *entry)
		}
	}
	if r.errorCount() > before {
		return entries, nil
	}
	composed, err := matching.Compose(path, entries)
	if err != nil {
		r.deny(RuleNodeTypeSelector, err)
		return entries, nil
	}
	parsed, errs := matching.Requirements(path, composed)
	r.deny(RuleNodeTypeSelector, errs...)
	return entries, parsed
}

// selectorEntry validates one entry, and returns it converted; nil if it is not valid.
func (r *Result) selectorEntry(path *field.Path, p pool, entry *v1alpha1.NodeTypeSelectorRequirement,
	types []offeredType) *corev1.NodeSelectorRequirement {
	converted, err := matching.NodeTypeSelector(path, *entry)
	if err != nil {
		r.deny(RuleNodeTypeSelector, err)
		return nil
	}
	valid := r.syntax(RuleNodeTypeSelector, path.Child("property"), entry.Property, "cannot be the key of a property: ",
		validation.IsQualifiedName)
	for i, value := range converted.Values {
		valuePath := path.Child("value")
		if entry.Value == "" {
			valuePath = path.Child("values").Index(i)
		}
		valid = r.syntax(RuleNodeTypeSelector, valuePath, value, "cannot be the value of a property to select by: ",
			validation.IsValidLabelValue) && valid
	}
	if !valid {
		return nil
	}
	if matching.NamesTypes(converted.Key) {
		converted.Values = compat.TypeNames(converted.Values, p.entry.Provider, func(name string) bool {
			return slices.ContainsFunc(types, func(t offeredType) bool { return t.name == name })
		})
	}
	return &converted
}

// namedTypes refuses named types that the tenant may not have.
func (r *Result) namedTypes(path *field.Path, p pool, entries []corev1.NodeSelectorRequirement, offered []offeredType) {
	madeBy := map[string]string{}
	for i := range offered {
		madeBy[offered[i].name] = offered[i].madeBy
	}
	for i := range entries {
		if !matching.SelectsTypes(entries[i]) {
			continue
		}
		for _, name := range slices.Sorted(slices.Values(entries[i].Values)) {
			maker, exists := madeBy[name]
			if !exists {
				maker = p.entry.Provider
			}
			if !p.tenant.Allows(name, maker) {
				r.deny(RuleAllowed, field.Forbidden(path.Index(i),
					fmt.Sprintf("NodeType %s is not among the allowedNodeTypes of this TenantCluster: allow it, or select another", name)))
			}
		}
	}
}

// satisfied warns of properties that no type has, and of a selector that no type satisfies.
func (r *Result) satisfied(path *field.Path, p pool, parsed []labels.Requirement, offered []offeredType) {
	for i := range parsed {
		name := parsed[i].Key()
		known := slices.ContainsFunc(offered, func(t offeredType) bool { _, has := t.Offered[name]; return has })
		if !known && v1alpha1.IsTypeLabel(name) {
			r.warn(RuleNodeTypeSelector, path.Index(i),
				"no server matches this NodeType and another one too: label the BareMetalHosts that are meant")
			return
		}
		if !known {
			r.warn(RuleNodeTypeSelector, path.Index(i).Child("property"), "no NodeType has the property %q (there are: %s)", shown(name),
				orNone(offeredKeys(offered, name)))
			return
		}
	}
	parsed = append(parsed, p.narrowing(offered)...)
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

// fitting returns the types that the pool selects, even without a server; nil if its selector is not valid.
func (p pool) fitting(offered []offeredType) []string {
	scratch := &Result{}
	_, parsed := scratch.selector(p.path, p, offered)
	if scratch.errorCount() > 0 {
		return nil
	}
	parsed = append(parsed, p.narrowing(offered)...)
	fitting := []string{}
	for i := range offered {
		if p.misses(&offered[i], parsed) == "" {
			fitting = append(fitting, offered[i].name)
		}
	}
	return fitting
}

// narrowing returns what the properties of the pool require of NodeTypes.
func (p pool) narrowing(types []offeredType) []labels.Requirement {
	var ofProvider []matching.Offered
	for i := range types {
		if types[i].provider == p.entry.Provider {
			ofProvider = append(ofProvider, types[i].Offered)
		}
	}
	requirements, _ := matching.Requirements(nil, matching.Narrowing(lo.Assign(p.entry.Properties, p.template.Properties), ofProvider))
	return requirements
}

// misses returns why a type does not belong to the pool, "" if it does.
func (p pool) misses(t *offeredType, parsed []labels.Requirement) string {
	switch {
	case t.provider != p.entry.Provider:
		return "is of NodeProvider " + t.provider
	case !p.tenant.Allows(t.name, t.madeBy):
		return "is not allowed for this tenant"
	}
	for i := range parsed {
		if !t.Meets(&parsed[i]) {
			return fmt.Sprintf("does not meet %q", shown(parsed[i].String()))
		}
	}
	return ""
}

// offeredKeys returns the keys that types offer. For an unknown name, the more likely alternatives come first.
func offeredKeys(offered []offeredType, name string) []string {
	keys := map[string]bool{}
	for i := range offered {
		for name := range offered[i].Offered {
			keys[name] = true
		}
	}
	sorted := sortedKeys(keys)
	// A message lists only the first few. The author rarely means a size or an installation, unless the name is one.
	meant, others := lo.FilterReject(sorted, func(key string, _ int) bool {
		return v1alpha1.InDomain(key, v1alpha1.Group) == v1alpha1.InDomain(name, v1alpha1.Group)
	})
	return append(meant, others...)
}

func keyOf(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// conflict returns a key for which neither a value nor its absence meets all requirements, and why; "" if there is
// none. It only compares the requirements with each other.
func conflict(requirements []labels.Requirement) (about, why string) {
	byKey := lo.GroupBy(requirements, func(requirement labels.Requirement) string { return requirement.Key() })
	for _, key := range sortedKeys(byKey) {
		if !canBeMet(key, byKey[key]) {
			texts := lo.Map(byKey[key], func(requirement labels.Requirement, _ int) string { return shown(requirement.String()) })
			return key, list(texts) + " rule each other out: take one of them away"
		}
	}
	return "", ""
}

// canBeMet reports whether a value of a label, or its absence, meets all requirements. It checks each value once.
func canBeMet(key string, all []labels.Requirement) bool {
	var allowed sets.Set[string]                               // nil for all
	forbidden, candidates := sets.New[string](), sets.New("*") // "*" is in no requirement: no label has this value
	var others []labels.Requirement
	for i := range all {
		switch values := all[i].ValuesUnsorted(); all[i].Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if given := sets.New(values...); allowed == nil {
				allowed = given
			} else {
				allowed = allowed.Intersection(given)
			}
		case selection.NotIn, selection.NotEquals:
			forbidden.Insert(values...)
		default:
			others = append(others, all[i])
			for _, bound := range values {
				number, _ := strconv.ParseInt(bound, 10, 64) // a requirement with another one is not valid
				candidates.Insert(strconv.FormatInt(number+1, 10), strconv.FormatInt(number-1, 10))
			}
		}
	}
	if allowed != nil { // otherwise there are always more values than are forbidden
		candidates = allowed.Difference(forbidden)
	}
	meets := func(set labels.Set) bool {
		return !slices.ContainsFunc(others, func(requirement labels.Requirement) bool { return !requirement.Matches(set) })
	}
	return allowed == nil && meets(labels.Set{}) ||
		slices.ContainsFunc(candidates.UnsortedList(), func(value string) bool { return meets(labels.Set{key: value}) })
}
