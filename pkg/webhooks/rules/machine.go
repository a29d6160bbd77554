// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// Machine validates a Machine that is created, or updated from before.
func Machine(cluster Cluster, before, after *v1alpha1.Machine) Result {
	r := &Result{}
	spec := field.NewPath("spec")
	// The provider writes the present properties of its class, also for a server. The condition Drifted says if they are
	// invalid.
	if before == nil || before.Status.HostRef == nil && !equality.Semantic.DeepEqual(before.Spec.Properties, after.Spec.Properties) {
		r.ownProperties(cluster, spec.Child("properties"), after)
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
	if before == nil || !equality.Semantic.DeepEqual(before.Spec.ProfileRef, after.Spec.ProfileRef) {
		r.machineProfile(cluster, spec.Child("profileRef", "name"), after)
	}
	if before != nil {
		r.machineChanged(cluster, spec, before, after)
		return r.done()
	}
	r.sameNamespace(spec, after)
	r.standAlone(cluster, spec, after)
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

// standAlone refuses a Machine that must name a TenantCluster and does not: no quota, types or network would apply to
// it.
func (r *Result) standAlone(cluster Cluster, spec *field.Path, machine *v1alpha1.Machine) {
	tenants := cluster.TenantClusters(machine.Namespace)
	if problem := quota.StandAloneProblem(machine, tenants, cluster.NamespaceLabels(machine.Namespace)); problem != "" {
		r.deny(RuleAllowed, field.Forbidden(spec.Child("tenantClusterRef"), problem))
	}
}

func isUnbound(cluster Cluster, machine *v1alpha1.Machine) bool {
	return quota.Unbound(machine, cluster.TenantClusters(machine.Namespace), cluster.NamespaceLabels(machine.Namespace))
}

// sameNamespace refuses names that include another namespace.
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

func (r *Result) requirements(path *field.Path, requirements []corev1.NodeSelectorRequirement) {
	valid, errs := matching.Requirements(path, requirements)
	for _, err := range errs {
		err.Detail = properties.Because([]string{err.Detail})
	}
	r.deny(RuleNodeTypeSelector, errs...)
	if about, why := conflict(valid); about != "" {
		r.deny(RuleNodeTypeSelector, field.Invalid(path, about, "no server can match: "+why))
	}
}

// chargedTo returns the TenantCluster that the Machine is charged to, nil if there is none.
func chargedTo(cluster Cluster, machine *v1alpha1.Machine) *v1alpha1.TenantCluster {
	return quota.ChargedTo(machine, cluster.TenantClusters(machine.Namespace))
}

// requestOf returns the request for what a Machine would get, ignoring what it already has.
func requestOf(machine *v1alpha1.Machine, tenant *v1alpha1.TenantCluster) inventory.Request {
	request := inventory.RequestOf(machine, tenant)
	request.Machine, request.ChosenHost, request.ChosenAs = "", v1alpha1.HostReference{}, ""
	return request
}

// choose returns what a Machine would get now. none says why it would get nothing, nil if it would get something.
func choose(
	cluster Cluster, machine *v1alpha1.Machine, tenant *v1alpha1.TenantCluster,
) (choice inventory.Choice, none *inventory.NoHostError) {
	choice, err := cluster.Choose(requestOf(machine, tenant))
	if errors.As(err, &none) {
		return inventory.Choice{}, none
	}
	return choice, nil
}

// server validates what the Machine would get: whether its type exists, whether its tenant may have it, and whether
// there is such a server at all.
func (r *Result) server(cluster Cluster, spec *field.Path, machine *v1alpha1.Machine) {
	tenant := chargedTo(cluster, machine)
	if tenant != nil && !tenant.DeletionTimestamp.IsZero() {
		// The deletion of the tenant waits for its Machines. With more Machines, it would wait for ever.
		r.deny(RuleQuota, field.Forbidden(spec, fmt.Sprintf("TenantCluster %s/%s is being deleted and gets no more servers", tenant.Namespace,
			tenant.Name)))
		return
	}
	about := spec.Child("requirements")
	if machine.Spec.NodeTypeRef != nil {
		about = spec.Child("nodeTypeRef", "name")
		if cluster.NodeType(machine.Spec.NodeTypeRef.Name) == nil {
			return
		}
	}
	if machine.Spec.TenantClusterRef != nil && tenant == nil {
		return // what it may have is not known, and the result would tell of servers that it may not have
	}
	_, none := choose(cluster, machine, tenant)
	switch {
	case none != nil && none.Reason == v1alpha1.ReasonNotAllowed:
		r.deny(RuleAllowed, field.Forbidden(about, notAllowed(tenant, none)))
	case machine.Spec.Properties[v1alpha1.PropertyServerName] != "":
		r.pin(cluster, spec, machine, none)
	}
	if tenant == nil {
		return
	}
	request, rest := requestOf(machine, tenant), cluster.QuotaRest(tenant, machine)
	err := rest.Check(request.NodeType)
	if none == nil {
		_, err = inventory.ChooseWithin(request, cluster.Choose, rest.Check)
	}
	var exceeded *quota.ExceededError
	if errors.As(err, &exceeded) {
		r.deny(RuleQuota, field.Forbidden(spec, exceeded.Message))
	}
}

// notAllowed says which types the tenant may have.
func notAllowed(tenant *v1alpha1.TenantCluster, none *inventory.NoHostError) string {
	allowed := "none"
	if tenant.Spec.AllowedNodeTypes == nil {
		allowed = "all that NodeProviders list"
	}
	if types := tenant.Spec.AllowedNodeTypes; types != nil && len(*types) > 0 {
		allowed = list(*types)
	}
	return fmt.Sprintf("%s: allowedNodeTypes of TenantCluster %s are: %s: ask for one of these, or have them extended",
		oneLine(none.Error(), maxReason), tenant.Name, allowed)
}

func typeNames(cluster Cluster) []string {
	return lo.Map(cluster.NodeTypes(), func(nodeType *v1alpha1.NodeType, _ int) string { return nodeType.Name })
}

func (r *Result) ownProperties(cluster Cluster, path *field.Path, machine *v1alpha1.Machine) {
	layer, tenant := properties.OfMachine(machine), chargedTo(cluster, machine)
	if isUnbound(cluster, machine) {
		r.properties(cluster, path, layer)
		return
	}
	r.propertiesOfTenant(cluster, path, layer, tenant)
}

// machineChanged denies changes that a Machine with a server must not have, and warns of changes that no longer affect
// it.
func (r *Result) machineChanged(cluster Cluster, spec *field.Path, before, after *v1alpha1.Machine) {
	old, pin := before.Spec.Properties[v1alpha1.PropertyServerName], after.Spec.Properties[v1alpha1.PropertyServerName]
	path := key(spec.Child("properties"), v1alpha1.PropertyServerName)
	switch host, chosen := before.Host(); {
	case old != pin && chosen:
		r.deny(RuleImmutable, field.Invalid(path, pin,
			fmt.Sprintf("the Machine has claimed server %s: delete it and make another", host.Name)))
	case old != pin && r.Allowed():
		if tenant := chargedTo(cluster, after); tenant != nil || isUnbound(cluster, after) {
			_, none := choose(cluster, after, tenant)
			r.pin(cluster, spec, after, none)
		}
	}
	if !meta.IsStatusConditionTrue(before.Status.Conditions, v1alpha1.ConditionProvisioned) {
		return
	}
	// Karpenter replaces the Machine of a NodeClaim if it differs from its class.
	replaced := before.Labels[v1alpha1.NodeClaimLabelKey] != ""
	for _, change := range []struct {
		field    string
		old, now any
		drifts   bool
	}{
		{"properties", before.Spec.Properties, after.Spec.Properties, true},
		{"labels", before.Spec.Labels, after.Spec.Labels, false},
		{"taints", before.Spec.Taints, after.Spec.Taints, false},
		{"startupTaints", before.Spec.StartupTaints, after.Spec.StartupTaints, false},
		{"kubeletArgs", before.Spec.KubeletArgs, after.Spec.KubeletArgs, false},
	} {
		if !equality.Semantic.DeepEqual(change.old, change.now) && !(change.drifts && replaced) {
			r.warn(RuleImmutable, spec.Child(change.field), "the server is installed and has registered with what was there before: delete the "+
				"Machine and make another for the change to have an effect")
		}
	}
}

// pin validates the server that a Machine is pinned to. It must exist, be of the Machine's type, and be big enough. No
// other Machine of the namespace may be pinned to it, and no Machine of another namespace may have it. A server that is
// not available now may become so.
func (r *Result) pin(cluster Cluster, spec *field.Path, machine *v1alpha1.Machine, none *inventory.NoHostError) {
	server := machine.Spec.Properties[v1alpha1.PropertyServerName]
	if server == "" {
		return
	}
	path := key(spec.Child("properties"), v1alpha1.PropertyServerName)
	namespaces := hostNamespaces(cluster, machine)
	if len(namespaces) == 0 {
		return // the server is not known
	}
	known := func(namespace string) bool {
		_, known := cluster.Server(keyOf(namespace, server))
		return known
	}
	if !slices.ContainsFunc(namespaces, known) {
		r.deny(RulePinning, field.Invalid(path, server, "there is no BareMetalHost of this name in namespace "+list(namespaces)+
			": correct it, or register the server first"))
		return
	}
	for _, other := range cluster.PinnedTo(server) {
		if other.Namespace == machine.Namespace && other.Name == machine.Name || !lo.Some(namespaces, hostNamespaces(cluster, other)) {
			continue
		}
		holder := "a Machine of another tenant"
		if other.Namespace == machine.Namespace {
			holder = "Machine " + other.Name
		} else if has := other.Status.HostRef; has == nil || has.Name != server {
			// Waiting pins cost no quota. If they denied others, one tenant could keep all servers from the others.
			r.warn(RulePinning, path, "%s waits for this server, too: one of the two gets it", holder)
			continue
		}
		if other.DeletionTimestamp.IsZero() {
			r.deny(RulePinning, field.Invalid(path, server,
				holder+" is pinned to this server already: choose another, or delete that Machine first"))
			return
		}
	}
	// The server may be of several types, and one of them may fit. The condition Claimed says why it is not claimed now.
	if none != nil && !slices.ContainsFunc(none.Considered, inventory.Candidate.Fits) {
		r.deny(RulePinning, field.Invalid(path, server, none.Error()+": pin to another server, or ask for another type"))
	}
}

// hostNamespaces returns the namespaces that can have the server of a Machine.
func hostNamespaces(cluster Cluster, machine *v1alpha1.Machine) []string {
	var only string
	if reference := machine.Spec.NodeTypeRef; reference != nil {
		nodeType := cluster.NodeType(reference.Name)
		if nodeType == nil {
			return nil
		}
		only = nodeType.Spec.ProviderRef.Name
	}
	var namespaces []string
	for _, provider := range cluster.NodeProviders() {
		if namespace := provider.Spec.Metal3.ClusterRef.Namespace; (only == "" || provider.Name == only) &&
			!slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces
}
