// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// Kind is a kind that others refer to.
type Kind string

// Kinds that others refer to.
const (
	KindNodeProvider          Kind = "NodeProvider"
	KindNodeType              Kind = "NodeType"
	KindOSImage               Kind = "OSImage"
	KindSSHKey                Kind = "SSHKey"
	KindMachineConfigTemplate Kind = "MachineConfigTemplate"
	// KindTenantCluster has a namespace: its names are namespace/name.
	KindTenantCluster Kind = "TenantCluster"
)

// Cluster is what rules see of the management cluster. What it returns is shared and must not be changed.
type Cluster interface {
	// NodeProviders are all of them, by name.
	NodeProviders() []*v1alpha1.NodeProvider
	// NodeTypes are all of them, by name.
	NodeTypes() []*v1alpha1.NodeType
	// NodeType of that name, nil if there is none.
	NodeType(name string) *v1alpha1.NodeType
	// Exists returns whether there is an object of that name.
	Exists(kind Kind, name string) bool
	// TenantClusters of a namespace.
	TenantClusters(namespace string) []*v1alpha1.TenantCluster
	// PinnedTo are the Machines that are pinned to a server of that name.
	PinnedTo(server string) []*v1alpha1.Machine
	// Users are the objects that refer to one, by kind and name, sorted.
	Users(kind Kind, name string) []string
	// OverQuota says in a sentence why the tenant may not have another server of a type, empty if it may. The name of
	// the type may be empty if it is not known.
	OverQuota(tenant *v1alpha1.TenantCluster, machine *v1alpha1.Machine, nodeType string) string

	// Matching counts the servers of a namespace that a selector selects.
	Matching(namespace string, selector labels.Selector) inventory.Matching
	// Overlaps counts the servers that two of the selectors have in common, by the later and the earlier of each pair. A
	// nil selector selects nothing.
	Overlaps(namespace string, selectors []labels.Selector) map[[2]int]int
	// TooSmall are the first of the servers that a selector selects and that have less than the resources say, and how many
	// there are.
	TooSmall(namespace string, selector labels.Selector, resources corev1.ResourceList) ([]inventory.SmallServer, int)
	// Server is what is known of a server, if it is known.
	Server(key types.NamespacedName) (inventory.Server, bool)
	// Offered are the labels that nodes of a type can have, with all values there are.
	Offered(nodeType string) []v1alpha1.NodeTypeRequirement
	// Choose returns the server that a Machine would get now. It reserves nothing.
	Choose(request inventory.Request) (inventory.Choice, error)
}

// Deleted validates the deletion of a object, and refuses while others refer to it.
func Deleted(cluster Cluster, kind Kind, name string) Result {
	r := &Result{}
	if users := cluster.Users(kind, name); len(users) > 0 {
		r.refuse(RuleInUse, "it is in use by %s: have them use something else, or delete them first", list(users))
	}
	return *r
}

// ProviderDeleted validates the deletion of a NodeProvider: its NodeTypes would go with it.
func ProviderDeleted(cluster Cluster, name string) Result {
	r := &Result{}
	for _, nodeType := range cluster.NodeTypes() {
		if nodeType.Spec.ProviderRef.Name != name {
			continue
		}
		if users := cluster.Users(KindNodeType, nodeType.Name); len(users) > 0 {
			r.refuse(RuleInUse, "its NodeType %s is in use by %s: delete them first", nodeType.Name, list(users))
			return *r
		}
	}
	return *r
}

// TenantDeleted validates the deletion of a TenantCluster: its Machines would go with it, and the drain of their
// nodes is bounded.
func TenantDeleted(cluster Cluster, tenant client.Object) Result {
	r := &Result{}
	machines := cluster.Users(KindTenantCluster, client.ObjectKeyFromObject(tenant).String())
	confirmed := strconv.Itoa(len(machines))
	if len(machines) > 0 && tenant.GetDeletionTimestamp().IsZero() &&
		tenant.GetAnnotations()[v1alpha1.DeleteMachinesAnnotationKey] != confirmed {
		r.refuse(RuleInUse, "%s of its servers would be released, and their nodes drained for no longer than spec.drainTimeout: %s. "+
			"Delete the tenant's NodePools first, or confirm: kubectl annotate --overwrite tenantcluster -n %s %s %s=%s", confirmed, list(machines),
			tenant.GetNamespace(), tenant.GetName(), v1alpha1.DeleteMachinesAnnotationKey, confirmed)
	}
	return *r
}
