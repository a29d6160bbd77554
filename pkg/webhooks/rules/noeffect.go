// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// maxOpaque is how long a field is, in bytes, whose content is kept and not read. Each controller has it in memory.
const maxOpaque = 64 << 10

// noEffect warns of a field of the reference that does nothing here, if it is set. The text says what to do instead.
func (r *Result) noEffect(path *field.Path, set bool, instead string) {
	if set {
		r.warn(RuleNoEffect, path, "has no effect here: %s", instead)
	}
}

// opaque is noEffect for an object that is kept as it was written.
func (r *Result) opaque(path *field.Path, value *v1alpha1.Opaque, instead string) {
	if value != nil && len(value.Raw) > maxOpaque {
		r.deny(RuleNoEffect, field.Invalid(path, bytesOf(string(value.Raw)), "it is kept in memory and has no effect here: leave it out"))
		return
	}
	r.noEffect(path, value != nil, instead)
}

// ownership warns of rights that are not given.
func (r *Result) ownership(path *field.Path, ownership *v1alpha1.Ownership) {
	owners := lo.Map(sortedKeys(ownership.Owner), func(kind string, _ int) string { return kind + " " + ownership.Owner[kind] })
	r.noEffect(path.Child("owner"), len(owners) > 0,
		fmt.Sprintf("say by Kubernetes RBAC what %s may do", shown(strings.Join(owners, ", "))))
	rules := lo.Map(ownership.Access, func(rule v1alpha1.AccessRule, _ int) string { return rule.String() })
	r.noEffect(path.Child("access"), len(rules) > 0, fmt.Sprintf("give rights by Kubernetes RBAC, and say in spec.tenantProperties of a "+
		"TenantCluster what its tenant may name (%s)", shown(strings.Join(rules, "; "))))
}

// unknownProperties warns of properties in the reference's domains that have no meaning here. They become labels of nodes, as
// properties of one's own do.
func (r *Result) unknownProperties(path *field.Path, layer properties.Layer) {
	for _, name := range sortedKeys(layer.Values) {
		switch {
		case !properties.ReferenceOnly(name):
		case name == networkEnvironment:
			r.noEffect(key(path, name), true, "there are no NodeEnvironments: write its properties into the pool, the NodeType or the "+
				"NodeProvider")
		default:
			r.noEffect(key(path, name), true, "it is a label of the nodes at most: for a property of your own use a domain of your own")
		}
	}
}

// networkEnvironment names a NodeEnvironment in the reference.
const networkEnvironment = "vcluster.com/network-environment"

// metal3 warns of what a manager does not deploy or drive.
func (r *Result) metal3(path *field.Path, fleet *v1alpha1.Metal3Fleet) {
	r.noEffect(path.Child("clusterRef", "cluster"), fleet.ClusterRef.Cluster != "",
		"a manager serves the BareMetalHosts of the cluster that it runs in: install one in the cluster that has them")
	r.opaque(path.Child("deploy"), fleet.Deploy, "install Metal3, and DHCP where you need it, as docs/metal3.md says. Remove it if it has "+
		"secrets: the providers of all tenants read it")
	const network = "a hook or an HTTP endpoint moves servers into the network of a TenantCluster, see docs/network.md"
	r.noEffect(path.Child("neutronEnabled"), fleet.NeutronEnabled, network)
	r.opaque(path.Child("netris"), fleet.Netris, network)
}

// reserved is said of labels and annotations that a NodeProvider does not write.
const reserved = "the domain is reserved, and it is not written: use another domain"

// template validates what only a template of a NodeType has.
func (r *Result) template(path *field.Path, template *v1alpha1.NodeTypeTemplate, provider string) {
	r.noEffect(path.Child("providerRef"), template.ProviderRef != "" && template.ProviderRef != provider,
		"a NodeType is of the NodeProvider that lists it: list it there, or leave providerRef out")
	if template.Metadata == nil {
		return
	}
	metadata := path.Child("metadata")
	r.deny(RuleNodes, metav1validation.ValidateLabels(template.Metadata.Labels, metadata.Child("labels"))...)
	r.deny(RuleNodes, validation.ValidateAnnotations(template.Metadata.Annotations, metadata.Child("annotations"))...)
	for _, name := range sortedKeys(template.Metadata.Labels) {
		r.noEffect(key(metadata.Child("labels"), name), v1alpha1.IsReservedMetadata(name), reserved)
	}
	for _, name := range sortedKeys(template.Metadata.Annotations) {
		r.noEffect(key(metadata.Child("annotations"), name), v1alpha1.IsReservedMetadata(name), reserved)
	}
}

// privateNodes warns of what a vcluster.yaml says of nodes and vCluster does on them.
func (r *Result) privateNodes(path *field.Path, nodes *v1alpha1.PrivateNodes) {
	upgrade := &nodes.AutoUpgrade.InPlaceUpgrade
	set := map[string]bool{"image": upgrade.Image != "", "imagePullPolicy": upgrade.ImagePullPolicy != "",
		"nodeSelector": len(upgrade.NodeSelector) > 0, "binariesPath": upgrade.BinariesPath != "",
		"cniBinariesPath": upgrade.CNIBinariesPath != "", "concurrency": upgrade.Concurrency != 0}
	for _, name := range sortedKeys(set) {
		r.noEffect(path.Child("autoUpgrade", name), set[name], "servers are installed again, within the budgets of their pools")
	}
	r.opaque(path.Child("joinNode"), nodes.JoinNode, "write commands into runcmd of the property vcluster.com/user-data, which run before "+
		"the join, and prepare containerd in the image")
	r.opaque(path.Child("kubelet"), nodes.Kubelet, "write kubeletArgs into a MetalNodeClass of a NodePool of your own, or prepare the "+
		"kubelet in the image")
	r.opaque(path.Child("vpn"), nodes.VPN, "there is no VPN: servers reach spec.apiServerEndpoint through their own network")
}
