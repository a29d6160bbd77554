// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
)

// Machine looks at a Machine that is created, or changed from what it was before.
func Machine(fleet Fleet, before, after *v1alpha1.Machine) Verdict {
	v := &Verdict{}
	spec := field.NewPath("spec")
	if before == nil || !equality.Semantic.DeepEqual(before.Spec.Properties, after.Spec.Properties) {
		v.machineProperties(fleet, spec.Child("properties"), before, after)
	}
	if before == nil || !equality.Semantic.DeepEqual(before.Spec.Labels, after.Spec.Labels) {
		v.nodeLabels(spec.Child("labels"), after.Spec.Labels)
	}
	if before == nil || !equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) {
		v.taints(spec.Child("taints"), after.Spec.Taints)
	}
	if before == nil || !equality.Semantic.DeepEqual(before.Spec.StartupTaints, after.Spec.StartupTaints) {
		v.taints(spec.Child("startupTaints"), after.Spec.StartupTaints)
	}
	if before == nil || !equality.Semantic.DeepEqual(before.Spec.KubeletArgs, after.Spec.KubeletArgs) {
		v.kubeletArgs(spec.Child("kubeletArgs"), after.Spec.KubeletArgs)
	}
	if before != nil {
		v.machineChanged(fleet, spec, before, after)
		return v.done()
	}
	v.sameNamespace(spec, after)
	v.quantities(spec.Child("resources"), after.Spec.Resources, false)
	v.requirements(spec.Child("requirements"), after.Spec.Requirements)
	v.drivers(spec.Child("requestedDrivers"), after.Spec.RequestedDrivers)
	if v.Allowed() { // the inventory takes well-formed requests only
		v.server(fleet, spec, after)
	}
	return v.done()
}

// sameNamespace refuses names that are meant to be of another namespace.
func (v *Verdict) sameNamespace(spec *field.Path, machine *v1alpha1.Machine) {
	name := func(path *field.Path, name string) {
		if strings.Contains(name, "/") {
			v.deny(RuleNamespaces, field.Invalid(path, shown(name), "what a Machine refers to is in its own namespace, "+machine.Namespace+": write the name alone"))
		}
	}
	if reference := machine.Spec.TenantClusterRef; reference != nil {
		name(spec.Child("tenantClusterRef", "name"), reference.Name)
	}
	name(spec.Child("bootstrap", "dataSecretName"), machine.Spec.Bootstrap.DataSecretName)
}

// nodeLabels looks at labels that nodes are to have.
func (v *Verdict) nodeLabels(path *field.Path, set map[string]string) {
	for _, name := range sortedKeys(set) {
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			v.deny(RuleNodes, field.Invalid(key(path, name), shown(name), "cannot be the key of a label: "+because(problems)))
		}
		if problems := validation.IsValidLabelValue(set[name]); len(problems) > 0 {
			v.deny(RuleNodes, field.Invalid(key(path, name), shown(set[name]), "cannot be the value of a label: "+because(problems)))
		}
	}
}

var effects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

// taints looks at taints that nodes are to have.
func (v *Verdict) taints(path *field.Path, taints []corev1.Taint) {
	type identity struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[identity]bool{}
	for i := range taints {
		at, taint := path.Index(i), &taints[i]
		if problems := validation.IsQualifiedName(taint.Key); len(problems) > 0 {
			v.deny(RuleNodes, field.Invalid(at.Child("key"), shown(taint.Key), "cannot be the key of a taint: "+because(problems)))
		}
		if problems := validation.IsValidLabelValue(taint.Value); len(problems) > 0 {
			v.deny(RuleNodes, field.Invalid(at.Child("value"), shown(taint.Value), "cannot be the value of a taint: "+because(problems)))
		}
		if !slices.Contains(effects, taint.Effect) {
			v.deny(RuleNodes, field.NotSupported(at.Child("effect"), corev1.TaintEffect(shown(string(taint.Effect))), effects))
		}
		if same := (identity{taint.Key, taint.Effect}); seen[same] {
			v.deny(RuleNodes, field.Duplicate(at, fmt.Sprintf("%s:%s", shown(taint.Key), taint.Effect)))
		} else {
			seen[same] = true
		}
	}
}

var machineOperators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
	corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

// requirements looks at a Machine's requirements.
func (v *Verdict) requirements(path *field.Path, requirements []corev1.NodeSelectorRequirement) {
	var parsed []labels.Requirement
	for i := range requirements {
		at := path.Index(i)
		operator, known := machineOperators[requirements[i].Operator]
		if !known {
			v.deny(RuleNodeTypeSelector, field.NotSupported(at.Child("operator"), corev1.NodeSelectorOperator(shown(string(requirements[i].Operator))), sortedKeys(machineOperators)))
			continue
		}
		one, err := labels.NewRequirement(requirements[i].Key, operator, requirements[i].Values, field.WithPath(at))
		var aggregate interface{ Errors() []error }
		switch {
		case err == nil:
			parsed = append(parsed, *one)
		case errors.As(err, &aggregate):
			for _, one := range aggregate.Errors() {
				var wrong *field.Error
				if errors.As(one, &wrong) {
					v.deny(RuleNodeTypeSelector, field.Invalid(at, shown(requirements[i].Key+" "+string(requirements[i].Operator)), because([]string{wrong.Detail})))
				}
			}
		default:
			v.deny(RuleNodeTypeSelector, field.Invalid(at, shown(requirements[i].Key), shown(err.Error())))
		}
	}
	if about, why := contradiction(parsed); about != "" {
		v.deny(RuleNodeTypeSelector, field.Invalid(path, shown(about), "no server can match: of this label, "+why+": take one of the two away"))
	}
}

// allowedTypes returns which types the Machine may have; nil if that is not known because its tenant does not exist.
func allowedTypes(fleet Fleet, machine *v1alpha1.Machine) func(typeName, provider string) bool {
	tenants := fleet.TenantClusters(machine.Namespace)
	if machine.Spec.TenantClusterRef == nil {
		return func(typeName, provider string) bool { return v1alpha1.AllowsStandAlone(tenants, typeName, provider) }
	}
	if tenant := tenantNamed(tenants, machine.Spec.TenantClusterRef.Name); tenant != nil {
		return tenant.Allows
	}
	return nil
}

func tenantNamed(tenants []*v1alpha1.TenantCluster, name string) *v1alpha1.TenantCluster {
	for _, tenant := range tenants {
		if tenant.Name == name {
			return tenant
		}
	}
	return nil
}

// outcome is what a Machine would get now.
type outcome struct {
	choice hosts.Choice
	// none says why it would get nothing; nil if it would get something.
	none *hosts.NoHostError
}

func (v *Verdict) choose(fleet Fleet, machine *v1alpha1.Machine, allowed func(typeName, provider string) bool) outcome {
	request := hosts.Request{
		Requirements: machine.Spec.Requirements,
		Resources:    machine.Spec.Resources,
		Drivers:      machine.Spec.RequestedDrivers,
		Allowed:      allowed,
		ServerName:   machine.Spec.Properties[v1alpha1.PropertyServerName],
	}
	if machine.Spec.NodeTypeRef != nil {
		request.NodeType = machine.Spec.NodeTypeRef.Name
	}
	var result outcome
	choice, err := fleet.Choose(request)
	if !errors.As(err, &result.none) {
		result.choice = choice
	}
	return result
}

// server looks at what the Machine would get: whether its type exists, whether its tenant may have it, whether there is
// such a server at all.
func (v *Verdict) server(fleet Fleet, spec *field.Path, machine *v1alpha1.Machine) {
	var tenant *v1alpha1.TenantCluster
	if reference := machine.Spec.TenantClusterRef; reference != nil {
		if tenant = tenantNamed(fleet.TenantClusters(machine.Namespace), reference.Name); tenant == nil {
			v.warn(RuleReferences, spec.Child("tenantClusterRef", "name"), "there is no TenantCluster %q in namespace %s yet: the Machine gets no server before there is", reference.Name, machine.Namespace)
		}
	}
	about := spec.Child("requirements")
	if machine.Spec.NodeTypeRef != nil {
		about = spec.Child("nodeTypeRef", "name")
		if fleet.NodeType(machine.Spec.NodeTypeRef.Name) == nil {
			v.warn(RuleReferences, about, "there is no NodeType %q yet%s: the Machine gets no server before there is", machine.Spec.NodeTypeRef.Name,
				didYouMean(closest(machine.Spec.NodeTypeRef.Name, typeNames(fleet))))
			return
		}
	}
	would := v.choose(fleet, machine, allowedTypes(fleet, machine))
	switch {
	case would.none != nil && would.none.Reason == v1alpha1.ReasonNotAllowed:
		v.deny(RuleAllowed, field.Forbidden(about, notAllowed(machine, tenant, would.none)))
	case machine.Spec.Properties[v1alpha1.PropertyServerName] != "":
		v.pin(fleet, spec, machine, would)
	case would.none != nil && would.none.Reason == v1alpha1.ReasonNoMatchingType:
		v.warn(RuleNodeTypeSelector, about, "%s", would.none.Error())
	}
	nodeType := would.choice.NodeType
	if machine.Spec.NodeTypeRef != nil {
		nodeType = machine.Spec.NodeTypeRef.Name
	}
	if tenant != nil {
		if problem := fleet.OverQuota(tenant, machine, nodeType); problem != "" {
			v.deny(RuleQuota, field.Forbidden(spec, problem))
		}
	}
}

// notAllowed says which types the tenant may have.
func notAllowed(machine *v1alpha1.Machine, tenant *v1alpha1.TenantCluster, none *hosts.NoHostError) string {
	whose := "the TenantClusters in namespace " + machine.Namespace
	allowed := "none of them"
	if tenant != nil {
		whose = "TenantCluster " + tenant.Name
		allowed = "none"
		if types := tenant.Spec.AllowedNodeTypes; types != nil && len(*types) > 0 {
			allowed = list(*types)
		}
	}
	return fmt.Sprintf("%s: allowedNodeTypes of %s are: %s: ask for one of these, or have them extended", oneLine(none.Error(), maxReason), whose, allowed)
}

func typeNames(fleet Fleet) []string {
	var names []string
	for _, nodeType := range fleet.NodeTypes() {
		names = append(names, nodeType.Name)
	}
	return names
}

func didYouMean(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", word)
}
