// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// NodeProvider validates a NodeProvider that is created, or updated from before.
func NodeProvider(cluster Cluster, before, after *v1alpha1.NodeProvider) Result {
	r := &Result{}
	spec := field.NewPath("spec")
	namespace := after.Spec.Metal3.ClusterRef.Namespace
	r.properties(cluster, spec.Child("properties"), properties.OfProvider(after))
	if err := properties.Merge(properties.OfProvider(after)).CheckImageHosts(after); err != nil {
		r.wrongProperty(spec.Child("properties"), err)
	}
	r.readByAll(spec.Child("properties"), properties.OfProvider(after))
	r.deny(RuleMirrors, bootstrap.CheckMirrors(spec.Child("mirrors"), after.Spec.Mirrors)...)
	r.hostNamespace(cluster, spec.Child("metal3", "clusterRef", "namespace"), namespace)
	r.topology(cluster, spec.Child("metal3", "topology"), after.Spec.Metal3.Topology)

	types := after.Spec.Metal3.NodeTypes
	owners := ownersOf(cluster)
	for i := range types {
		path := spec.Child("metal3", "nodeTypes").Index(i)
		r.templateMetadata(path.Child("metadata"), types[i].Metadata)
		r.uniqueName(path.Child("name"), owners, types[i].Name, after.Name)
		r.profile(path, &types[i].HardwareProfile)
		layer := properties.Layer{Source: "NodeType " + types[i].Name, Values: types[i].Properties}
		r.properties(cluster, path.Child("properties"), layer)
		r.precedence(path.Child("properties"), layer, after)
		if err := properties.Merge(layer).CheckImageHosts(after); err != nil {
			r.wrongProperty(path.Child("properties"), err)
		}
		r.readByAll(path.Child("properties"), layer)
		r.hostSelector(path.Child("bareMetalHosts"), after, &types[i].HardwareProfile, types[i].Name)
	}
	if before != nil {
		r.dropped(cluster, spec.Child("metal3", "nodeTypes"), before, after)
		r.moved(cluster, spec.Child("metal3", "clusterRef", "namespace"), before, namespace)
	}
	return r.done()
}

// topology warns of domains that a tenant cannot tell from others: it is offered servers there, and refused. It also
// warns of NVLink domains that tenants without a network share, because nothing makes partitions for them.
func (r *Result) topology(cluster Cluster, path *field.Path, topology []v1alpha1.TopologyKey) {
	for i := range topology {
		if topology[i].Key == v1alpha1.NVLinkDomainLabelKey && topology[i].SharedFabric == v1alpha1.SharedFabricAllowed {
			if tenants := withoutNetwork(cluster); len(tenants) > 0 {
				r.warn(RuleTopology, path.Index(i).Child("sharedFabric"), "no partition of an NVLink domain is made for a TenantCluster without "+
					"spec.network, so other tenants there can reach the memory of its GPUs (%s): set it there first", list(tenants))
			}
		}
		if topology[i].SharedFabric == v1alpha1.SharedFabricForbidden && !cluster.Inherits(topology[i].Key) {
			r.warn(RuleTopology, path.Index(i).Child("key"), "nodes do not inherit the label %q, so tenants plan with servers in domains of "+
				"others, and are refused: add it to topologyLabels of both charts", topology[i].Key)
		}
	}
}

// withoutNetwork returns the TenantClusters whose servers are not moved into a network.
func withoutNetwork(cluster Cluster) []string {
	return lo.FilterMap(cluster.TenantClusters(metav1.NamespaceAll), func(tenant *v1alpha1.TenantCluster, _ int) (string, bool) {
		return "TenantCluster " + client.ObjectKeyFromObject(tenant).String(), tenant.Spec.Network == nil
	})
}

func templateNames(provider *v1alpha1.NodeProvider) []string {
	return lo.Map(provider.Spec.Metal3.NodeTypes, func(template v1alpha1.NodeTypeTemplate, _ int) string { return template.Name })
}

// ownersOf returns the NodeProvider of each NodeType: the NodeProvider that lists it, or has created it.
func ownersOf(cluster Cluster) map[string]string {
	owners := map[string]string{}
	for _, nodeType := range cluster.NodeTypes() {
		owners[nodeType.Name] = nodeType.Spec.ProviderRef.Name
	}
	for _, provider := range cluster.NodeProviders() {
		for _, name := range templateNames(provider) {
			if _, made := owners[name]; !made {
				owners[name] = provider.Name
			}
		}
	}
	return owners
}

func (r *Result) uniqueName(path *field.Path, owners map[string]string, name, provider string) {
	if owner, taken := owners[name]; taken && owner != provider {
		r.deny(RuleNames, field.Invalid(path, name,
			fmt.Sprintf("a NodeType of this name belongs to NodeProvider %s: names are unique across providers, so choose another", owner)))
	}
}

// hostNamespace refuses servers in the namespace of a tenant. The tenant's provider may read the Secrets there, and
// they would hold the credentials of the BMCs.
func (r *Result) hostNamespace(cluster Cluster, path *field.Path, namespace string) {
	if len(cluster.TenantClusters(namespace)) > 0 {
		r.deny(RuleNamespaces,
			field.Invalid(path, namespace, "is the namespace of a TenantCluster, whose provider may read the Secrets there, and so the BMC "+
				"credentials: keep the servers in one of their own"))
	}
}

// dropped denies the removal of a type that is in use.
func (r *Result) dropped(cluster Cluster, path *field.Path, before, after *v1alpha1.NodeProvider) {
	for _, name := range lo.Without(templateNames(before), templateNames(after)...) {
		if users := cluster.Users(KindNodeType, name); len(users) > 0 {
			r.deny(RuleInUse, field.Forbidden(path,
				fmt.Sprintf("NodeType %s is in use by %s: it cannot be taken away before they are gone", name, list(users))))
		}
	}
}

// moved denies a change of the hosts' namespace while Machines have some of the hosts: these hosts would have no type.
func (r *Result) moved(cluster Cluster, path *field.Path, before *v1alpha1.NodeProvider, namespace string) {
	if before.Spec.Metal3.ClusterRef.Namespace == namespace {
		return
	}
	var machines []string
	for _, name := range templateNames(before) {
		for _, user := range cluster.Users(KindNodeType, name) {
			if strings.HasPrefix(user, "Machine ") && !slices.Contains(machines, user) {
				machines = append(machines, user)
			}
		}
	}
	if len(machines) > 0 {
		r.deny(RuleImmutable, field.Invalid(path, namespace,
			fmt.Sprintf("Machines have servers in namespace %s (%s): delete them first, or make another NodeProvider for these servers",
				before.Spec.Metal3.ClusterRef.Namespace, list(machines))))
	}
}

// NodeType validates a NodeType that is created, or updated from before.
func NodeType(cluster Cluster, before, after *v1alpha1.NodeType) Result {
	r := &Result{}
	spec := field.NewPath("spec")
	r.profile(spec, &after.Spec.HardwareProfile)
	r.properties(cluster, spec.Child("properties"), properties.OfType(after))
	r.readByAll(spec.Child("properties"), properties.OfType(after))
	r.hostSelector(spec.Child("bareMetalHosts"), after, &after.Spec.HardwareProfile, after.Name)
	provider := providerNamed(cluster, after.Spec.ProviderRef.Name)
	if provider != nil {
		r.precedence(spec.Child("properties"), properties.OfType(after), provider)
	}
	if before == nil {
		r.uniqueName(field.NewPath("metadata", "name"), ownersOf(cluster), after.Name, after.Spec.ProviderRef.Name)
	}
	if provider != nil && !provider.Makes(after) {
		r.warn(RuleAllowed, field.NewPath("metadata", "name"), "NodeProvider %s does not list this type: a tenant gets it only if its "+
			"allowedNodeTypes name it, and is then installed with what its author writes here", provider.Name)
	}
	return r.done()
}

func providerNamed(cluster Cluster, name string) *v1alpha1.NodeProvider {
	provider, _ := lo.Find(cluster.NodeProviders(), func(nodeProvider *v1alpha1.NodeProvider) bool { return nodeProvider.Name == name })
	return provider
}

// listed is how many names a sentence lists.
const listed = 5

func list(names []string) string { return conditions.List(names, listed) }
