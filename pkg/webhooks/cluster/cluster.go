// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster gives admission a view of the management cluster: objects by name and by what they refer to, from
// caches with indexes, and servers by label, from the inventory. No request waits for the API server.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

// Cluster reads the management cluster. It is safe for concurrent use.
type Cluster struct {
	reader    client.Reader
	inventory *inventory.Inventory
}

// New returns a Cluster. reader reads from a cache that has the indexes of AddIndexes; what it returns is not changed, so
// it need not be copied.
func New(reader client.Reader, inventory *inventory.Inventory) *Cluster {
	return &Cluster{reader: reader, inventory: inventory}
}

// For returns the view of one request.
func (c *Cluster) For(ctx context.Context) *View {
	view := &View{cluster: c, ctx: ctx}
	if !c.inventory.Synced() {
		view.note(errNotSynced)
	}
	return view
}

// errNotSynced: a server that is not known yet would count as one that does not exist.
var errNotSynced = errors.New("the servers are not known yet")

// View is the cluster for one request. It implements rules.Cluster. It is not safe for concurrent use.
type View struct {
	cluster *Cluster
	ctx     context.Context
	errs    []error
}

var _ rules.Cluster = &View{}

// Err returns the errors of the cache. If there is one, what the view has returned is not complete.
func (v *View) Err() error { return errors.Join(v.errs...) }

func (v *View) note(err error) {
	if err != nil {
		v.errs = append(v.errs, err)
	}
}

// get reads an object, and reports whether there is one.
func (v *View) get(key types.NamespacedName, into client.Object) bool {
	err := v.cluster.reader.Get(v.ctx, key, into)
	v.note(client.IgnoreNotFound(err))
	return err == nil
}

// list reads all that the options select.
func (v *View) list(into client.ObjectList, options ...client.ListOption) {
	v.note(v.cluster.reader.List(v.ctx, into, append(options, client.UnsafeDisableDeepCopy)...))
}

// NodeProviders implements rules.Cluster.
func (v *View) NodeProviders() []*v1alpha1.NodeProvider {
	found := &v1alpha1.NodeProviderList{}
	v.list(found)
	return byName(found.Items)
}

// NodeTypes implements rules.Cluster.
func (v *View) NodeTypes() []*v1alpha1.NodeType {
	found := &v1alpha1.NodeTypeList{}
	v.list(found)
	return byName(found.Items)
}

// NodeType implements rules.Cluster.
func (v *View) NodeType(name string) *v1alpha1.NodeType {
	found := &v1alpha1.NodeType{}
	if !v.get(types.NamespacedName{Name: name}, found) {
		return nil
	}
	return found
}

// Exists implements rules.Cluster.
func (v *View) Exists(kind rules.Kind, name string) bool {
	into := map[rules.Kind]client.Object{
		rules.KindNodeProvider: &v1alpha1.NodeProvider{}, rules.KindNodeType: &v1alpha1.NodeType{}, rules.KindOSImage: &v1alpha1.OSImage{},
		rules.KindSSHKey: &v1alpha1.SSHKey{}, rules.KindMachineConfigTemplate: &v1alpha1.MachineConfigTemplate{},
	}[kind]
	return v.get(types.NamespacedName{Name: name}, into)
}

// TenantClusters implements rules.Cluster.
func (v *View) TenantClusters(namespace string) []*v1alpha1.TenantCluster {
	found := &v1alpha1.TenantClusterList{}
	v.list(found, client.InNamespace(namespace))
	return byName(found.Items)
}

// PinnedTo implements rules.Cluster.
func (v *View) PinnedTo(server string) []*v1alpha1.Machine {
	found := &v1alpha1.MachineList{}
	v.list(found, client.MatchingFields{pinnedTo: server})
	return byName(found.Items)
}

// Users implements rules.Cluster.
func (v *View) Users(kind rules.Kind, name string) []string {
	selects := client.MatchingFields{refersTo: reference(kind, name)}
	providers, nodeTypes := &v1alpha1.NodeProviderList{}, &v1alpha1.NodeTypeList{}
	machines, tenants := &v1alpha1.MachineList{}, &v1alpha1.TenantClusterList{}
	v.list(providers, selects)
	v.list(nodeTypes, selects)
	v.list(machines, selects)
	v.list(tenants, selects)
	var users []string
	users = append(users, named("Machine", machines.Items)...)
	users = append(users, named("NodeProvider", providers.Items)...)
	users = append(users, named("NodeType", nodeTypes.Items)...)
	return append(users, named("TenantCluster", tenants.Items)...)
}

// OverQuota implements rules.Cluster.
func (v *View) OverQuota(tenant *v1alpha1.TenantCluster, machine *v1alpha1.Machine, nodeType string) string {
	machines := &v1alpha1.MachineList{}
	v.list(machines, client.InNamespace(tenant.Namespace))
	err := quota.Check(tenant, quota.Used(tenant, machines.Items, machine.UID, nil), nodeType, func(name string) (int64, error) {
		if one := v.NodeType(name); one != nil {
			return one.Spec.CountAccelerators(), nil
		}
		return 0, nil
	})
	var exceeded *quota.ExceededError
	if errors.As(err, &exceeded) {
		return exceeded.Message
	}
	return ""
}

// Matching implements rules.Cluster.
func (v *View) Matching(namespace string, selector labels.Selector) inventory.Matching {
	return v.cluster.inventory.Matching(namespace, selector)
}

// Overlaps implements rules.Cluster.
func (v *View) Overlaps(namespace string, selectors []labels.Selector) map[[2]int]int {
	return v.cluster.inventory.Overlaps(namespace, selectors)
}

// TooSmall implements rules.Cluster.
func (v *View) TooSmall(namespace string, selector labels.Selector, resources corev1.ResourceList) ([]inventory.SmallServer, int) {
	return v.cluster.inventory.TooSmall(namespace, selector, resources)
}

// Server implements rules.Cluster.
func (v *View) Server(key types.NamespacedName) (inventory.Server, bool) {
	return v.cluster.inventory.Server(key)
}

// Offered implements rules.Cluster.
func (v *View) Offered(nodeType string) []v1alpha1.NodeTypeRequirement {
	summary, _ := v.cluster.inventory.Summary(nodeType)
	return summary.Requirements
}

// Choose implements rules.Cluster.
func (v *View) Choose(request inventory.Request) (inventory.Choice, error) {
	request.Machine = "" // a choice for no Machine assumes nothing
	return v.cluster.inventory.Choose(request)
}

// Object is a pointer to an object.
type Object[T any] interface {
	*T
	client.Object
}

// byName are pointers to items, sorted.
func byName[T any, P Object[T]](items []T) []P {
	sorted := make([]P, len(items))
	for i := range items {
		sorted[i] = P(&items[i])
	}
	slices.SortFunc(sorted, func(a, b P) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return sorted
}

// named are the names of items, sorted.
func named[T any, P Object[T]](kind string, items []T) []string {
	var names []string
	for _, one := range byName[T, P](items) {
		name := one.GetName()
		if namespace := one.GetNamespace(); namespace != "" {
			name = namespace + "/" + name
		}
		names = append(names, kind+" "+name)
	}
	return names
}
