// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/nodeprofiles"
)

// NodeProfile validates a NodeProfile that is created, or updated from before. A single wrong key would make an API
// server refuse the whole Node.
func NodeProfile(cluster Cluster, before, after *v1alpha1.NodeProfile) Result {
	r := &Result{}
	spec := field.NewPath("spec")
	r.deny(RuleNodes, bootstrap.CheckLabels(spec.Child("nodeLabels"), after.Spec.NodeLabels)...)
	r.deny(RuleNodes, validation.ValidateAnnotations(after.Spec.NodeAnnotations, spec.Child("nodeAnnotations"))...)
	r.deny(RuleNodes, bootstrap.CheckTaints(spec.Child("taints"), after.Spec.Taints)...)
	r.deny(RuleNodes, bootstrap.CheckTaints(spec.Child("startupTaints"), after.Spec.StartupTaints)...)
	for i, startup := range after.Spec.StartupTaints {
		for _, taint := range after.Spec.Taints {
			if taint.MatchTaint(&startup) {
				r.deny(RuleNodes, field.Invalid(spec.Child("startupTaints").Index(i), startup.Key,
					"is one of the taints, too, which stay when the node is Ready: take it away from one of the two"))
			}
		}
	}
	return r.done()
}

// nodeProfiles validates the NodeProfiles that a tenant may have, and its defaults.
func (r *Result) nodeProfiles(cluster Cluster, spec *field.Path, tenant *v1alpha1.TenantCluster) {
	if allowed := tenant.Spec.AllowedNodeProfiles; allowed != nil {
		for i, entry := range *allowed {
			namePath := spec.Child("allowedNodeProfiles").Index(i).Child("name")
			if name, all := strings.CutSuffix(entry.Name, ".*"); strings.Contains(name, "*") {
				r.warn(RuleNodeProfile, namePath, "%q allows nothing: a name is exact, and only one that ends in .* stands for several",
					shown(entry.Name))
			} else if !all && !r.warningsFull() && !cluster.Exists(KindNodeProfile, name) {
				r.warn(RuleReferences, namePath, "there is no NodeProfile %q yet", shown(name))
			}
		}
	}
	r.nodeProfile(cluster, spec.Child("defaultNodeProfile"), tenant, tenant.Spec.DefaultNodeProfile)
	if tenant.Spec.PrivateNodes != nil {
		r.nodeProfile(cluster, spec.Child("privateNodes", "defaultProfile"), tenant, tenant.Spec.PrivateNodes.DefaultProfile)
	}
}

// machineProfile validates the NodeProfile that a Machine names.
func (r *Result) machineProfile(cluster Cluster, path *field.Path, machine *v1alpha1.Machine) {
	if machine.Spec.ProfileRef == nil {
		return
	}
	if machine.Spec.TenantClusterRef == nil {
		r.warn(RuleNodes, path, "has no effect: without tenantClusterRef the server becomes no node")
	} else if tenant := chargedTo(cluster, machine); tenant != nil {
		r.nodeProfile(cluster, path, tenant, machine.Spec.ProfileRef.Name)
	}
}

// nodeProfile denies a reference to a NodeProfile that the tenant may not have, and warns of a missing one.
func (r *Result) nodeProfile(cluster Cluster, path *field.Path, tenant *v1alpha1.TenantCluster, name string) {
	switch {
	case name == "":
	case !tenant.AllowsNodeProfile(name):
		r.deny(RuleNodeProfile, field.Invalid(path, name, nodeprofiles.NotAllowed(tenant, shown(name))))
	case !r.warningsFull() && !cluster.Exists(KindNodeProfile, name):
		r.warn(RuleReferences, path, "there is no NodeProfile %q yet: the nodes get no servers before there is", shown(name))
	}
}
