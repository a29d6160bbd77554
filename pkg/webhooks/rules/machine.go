// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// Machine validates a Machine that is created, or updated from before.
func Machine(cluster Cluster, before, after *v1alpha1.Machine) Result {
	r := &Result{}
	spec := field.NewPath("spec")
	if before == nil || !equality.Semantic.DeepEqual(before.Spec.Properties, after.Spec.Properties) {
		r.machineProperties(cluster, spec.Child("properties"), before, after)
	}
	if before == nil || !equality.Semantic.DeepEqual(before.Spec.Labels, after.Spec.Labels) {
		r.deny(RuleNodes, bootstrap.CheckLabels(spec.Child("labels"), after.Spec.Labels)...)
	}
	if before == nil || !equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) {
		r.deny(RuleNodes, bootstrap.CheckTaints(spec.Child("taints"), after.Spec.Taints)...)
	}
	if before == nil || !equality.Semantic.DeepEqual(before.Spec.StartupTaints, after.Spec.StartupTaints) {
		r.deny(RuleNodes, bootstrap.CheckTaints(spec.Child("startupTaints"), after.Spec.StartupTaints)...)
	}
	if before == nil || !equality.Semantic.DeepEqual(before.Spec.KubeletArgs, after.Spec.KubeletArgs) {
		r.kubeletArgs(spec.Child("kubeletArgs"), after.Spec.KubeletArgs)
	}
	if before != nil {
		r.machineChanged(cluster, spec, before, after)
		return r.done()
	}
	r.sameNamespace(spec, after)
	if after.Spec.TenantClusterRef == nil && r.Allowed() {
		set := map[string]int{"labels": len(after.Spec.Labels), "taints": len(after.Spec.Taints), "startupTaints": len(after.Spec.StartupTaints)}
		for _, name := range sortedKeys(set) {
			if set[name] > 0 {
				r.warn(RuleNodes, spec.Child(name), "has no effect: without tenantClusterRef the server becomes no node")
			}
		}
	}
	r.quantities(spec.Child("resources"), after.Spec.Resources, false)
	r.requirements(spec.Child("requirements"), after.Spec.Requirements)
	r.drivers(spec.Child("requestedDrivers"), after.Spec.RequestedDrivers)
	if r.Allowed() { // the inventory takes well-formed requests only
		r.server(cluster, spec, after)
	}
	return r.done()
}

// sameNamespace refuses names that are meant to be of another namespace.
func (r *Result) sameNamespace(spec *field.Path, machine *v1alpha1.Machine) {
	name := func(path *field.Path, name string) {
		if strings.Contains(name, "/") {
			r.deny(RuleNamespaces,
				field.Invalid(path, name, "what a Machine refers to is in its own namespace, "+machine.Namespace+": write the name alone"))
		}
	}
	if reference := machine.Spec.TenantClusterRef; reference != nil {
		name(spec.Child("tenantClusterRef", "name"), reference.Name)
	}
	name(spec.Child("bootstrap", "dataSecretName"), machine.Spec.Bootstrap.DataSecretName)
}

// requirements validates a Machine's requirements.
func (r *Result) requirements(path *field.Path, requirements []corev1.NodeSelectorRequirement) {
	valid, errs := matching.Requirements(path, requirements)
	for _, err := range errs {
		err.Detail = properties.Because([]string{err.Detail})
	}
	r.deny(RuleNodeTypeSelector, errs...)
	if about, why := conflict(valid); about != "" {
		r.deny(RuleNodeTypeSelector, field.Invalid(path, about, "no server can match: of this label, "+why+": take one of the two away"))
	}
}

// allowedTypes returns which types the Machine may have; nil if that is not known because its tenant does not exist.
func allowedTypes(cluster Cluster, machine *v1alpha1.Machine) func(typeName, provider string) bool {
	tenants := cluster.TenantClusters(machine.Namespace)
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

// choice is what a Machine would get now.
type choice struct {
	choice inventory.Choice
	// none says why it would get nothing; nil if it would get something.
	none *inventory.NoHostError
}

func (r *Result) choose(cluster Cluster, machine *v1alpha1.Machine, allowed func(typeName, provider string) bool) choice {
	request := inventory.Request{
		Requirements: machine.Spec.Requirements,
		Resources:    machine.Spec.Resources,
		KubeletArgs:  machine.Spec.KubeletArgs,
		Drivers:      machine.Spec.RequestedDrivers,
		Allowed:      allowed,
		ServerName:   machine.Spec.Properties[v1alpha1.PropertyServerName],
	}
	if machine.Spec.NodeTypeRef != nil {
		request.NodeType = machine.Spec.NodeTypeRef.Name
	}
	var result choice
	choice, err := cluster.Choose(request)
	if !errors.As(err, &result.none) {
		result.choice = choice
	}
	return result
}

// server validates what the Machine would get: whether its type exists, whether its tenant may have it, whether there is
// such a server at all.
func (r *Result) server(cluster Cluster, spec *field.Path, machine *v1alpha1.Machine) {
	var tenant *v1alpha1.TenantCluster
	if reference := machine.Spec.TenantClusterRef; reference != nil {
		if tenant = tenantNamed(cluster.TenantClusters(machine.Namespace), reference.Name); tenant == nil {
			r.warn(RuleReferences, spec.Child("tenantClusterRef", "name"),
				"there is no TenantCluster %q in namespace %s yet: the Machine gets no server before there is", reference.Name, machine.Namespace)
		}
	}
	about := spec.Child("requirements")
	if machine.Spec.NodeTypeRef != nil {
		about = spec.Child("nodeTypeRef", "name")
		if cluster.NodeType(machine.Spec.NodeTypeRef.Name) == nil {
			r.warn(RuleReferences, about, "there is no NodeType %q yet: the Machine gets no server before there is (there are: %s)",
				machine.Spec.NodeTypeRef.Name, orNone(typeNames(cluster)))
			return
		}
	}
	would := r.choose(cluster, machine, allowedTypes(cluster, machine))
	switch {
	case would.none != nil && would.none.Reason == v1alpha1.ReasonNotAllowed:
		r.deny(RuleAllowed, field.Forbidden(about, notAllowed(machine, tenant, would.none)))
	case machine.Spec.Properties[v1alpha1.PropertyServerName] != "":
		r.pin(cluster, spec, machine, would)
	case would.none != nil && would.none.Reason == v1alpha1.ReasonNoMatchingType:
		r.warn(RuleNodeTypeSelector, about, "%s", would.none.Error())
	}
	nodeType := would.choice.NodeType
	if machine.Spec.NodeTypeRef != nil {
		nodeType = machine.Spec.NodeTypeRef.Name
	}
	if tenant != nil {
		if problem := cluster.OverQuota(tenant, machine, nodeType); problem != "" {
			r.deny(RuleQuota, field.Forbidden(spec, problem))
		}
	}
}

// notAllowed returns which types the tenant may have.
func notAllowed(machine *v1alpha1.Machine, tenant *v1alpha1.TenantCluster, none *inventory.NoHostError) string {
	whose := "the TenantClusters in namespace " + machine.Namespace
	allowed := "none of them"
	if tenant != nil {
		whose = "TenantCluster " + tenant.Name
		allowed = "none"
		if types := tenant.Spec.AllowedNodeTypes; types != nil && len(*types) > 0 {
			allowed = list(*types)
		}
	}
	return fmt.Sprintf("%s: allowedNodeTypes of %s are: %s: ask for one of these, or have them extended", oneLine(none.Error(), maxReason),
		whose, allowed)
}

func typeNames(cluster Cluster) []string {
	var names []string
	for _, nodeType := range cluster.NodeTypes() {
		names = append(names, nodeType.Name)
	}
	return names
}
