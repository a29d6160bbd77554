// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster gives admission a view of the management cluster: objects by name and by references, from caches with
// indexes, and servers by label, from the inventory. No request waits for the API server or outlives its time.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

// Cluster reads the management cluster. It is safe for concurrent use.
type Cluster struct {
	reader    client.Reader
	inventory *inventory.Inventory
}

// New returns a Cluster. reader reads from a cache that has the indexes of AddIndexes. Its results are not modified, so
// they need not be copied.
func New(reader client.Reader, inventory *inventory.Inventory) *Cluster {
	return &Cluster{reader: reader, inventory: inventory}
}

// For returns the view of one request.
func (c *Cluster) For(ctx context.Context) *View {
	view := &View{Inventory: c.inventory, reader: c.reader, ctx: ctx}
	if !c.inventory.Synced() {
		view.note(errNotSynced)
	}
	return view
}

// errNotSynced: a server that is not known yet would seem not to exist.
var errNotSynced = errors.New("the servers are not known yet")

// View is the cluster for one request. It implements rules.Cluster. It is not safe for concurrent use.
type View struct {
	*inventory.Inventory
	reader client.Reader
	ctx    context.Context
	errs   []error
}

var _ rules.Cluster = &View{}

// Err returns the errors of the cache. If there is an error, the results of the view are incomplete.
func (v *View) Err() error { return errors.Join(v.errs...) }

func (v *View) note(err error) {
	if err != nil {
		v.errs = append(v.errs, err)
	}
}

// late reports whether the time of the request has run out, or its client has gone. Nothing more is read for it.
func (v *View) late() bool {
	err := v.ctx.Err()
	if len(v.errs) == 0 {
		v.note(err)
	}
	return err != nil
}

// get reads an object, and reports whether it exists.
func (v *View) get(key types.NamespacedName, object client.Object) bool {
	if v.late() {
		return false
	}
	err := v.reader.Get(v.ctx, key, object)
	v.note(client.IgnoreNotFound(err))
	return err == nil
}

// list reads all objects that the options select.
func (v *View) list(list client.ObjectList, options ...client.ListOption) {
	if v.late() {
		return
	}
	v.note(v.reader.List(v.ctx, list, append(options, client.UnsafeDisableDeepCopy)...))
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
	object := map[rules.Kind]client.Object{
		rules.KindNodeProvider: &v1alpha1.NodeProvider{}, rules.KindNodeType: &v1alpha1.NodeType{}, rules.KindOSImage: &v1alpha1.OSImage{},
		rules.KindNodeProfile: &v1alpha1.NodeProfile{}, rules.KindSSHKey: &v1alpha1.SSHKey{},
		rules.KindMachineConfigTemplate: &v1alpha1.MachineConfigTemplate{},
	}[kind]
	return v.get(types.NamespacedName{Name: name}, object)
}

// TenantClusters implements rules.Cluster.
func (v *View) TenantClusters(namespace string) []*v1alpha1.TenantCluster {
	found := &v1alpha1.TenantClusterList{}
	v.list(found, client.InNamespace(namespace))
	return byName(found.Items)
}

// TenantCluster returns the TenantCluster with the name, nil if there is none.
func (c *Cluster) TenantCluster(ctx context.Context, key types.NamespacedName) (*v1alpha1.TenantCluster, error) {
	found := &v1alpha1.TenantCluster{}
	err := c.reader.Get(ctx, key, found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found, err
}

// Metadata returns the metadata of a claim or template, as Trim leaves it, or nil if there is no such object or kind.
func (c *Cluster) Metadata(ctx context.Context, kind schema.GroupVersionKind,
	key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	found := kube.MetadataOf(kind)
	err := c.reader.Get(ctx, key, found)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	return found, err
}

// DeviceClasses returns all device classes, as TrimClass leaves them. There are none if the API server serves none.
func (c *Cluster) DeviceClasses(ctx context.Context) ([]resourcev1.DeviceClass, error) {
	found := &resourcev1.DeviceClassList{}
	if err := c.reader.List(ctx, found, client.UnsafeDisableDeepCopy); err != nil && !meta.IsNoMatchError(err) {
		return nil, err
	}
	return found.Items, nil
}

// Claims returns how many claims of a namespace count in the limit of a tenant.
func (c *Cluster) Claims(ctx context.Context, namespace, tenant string) (count int, err error) {
	found := &metav1.PartialObjectMetadataList{}
	found.SetGroupVersionKind(names.ClaimKind.GroupVersion().WithKind(names.ClaimKind.Kind + "List"))
	err = c.reader.List(ctx, found, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	if err != nil && !meta.IsNoMatchError(err) {
		return 0, err
	}
	return lo.CountBy(found.Items, func(claim metav1.PartialObjectMetadata) bool { return names.Counts(&claim, tenant) }), nil
}

// TrimClass keeps only the labels of a device class, which select its tenants, and the resource that the class serves.
func TrimClass(class *resourcev1.DeviceClass) {
	class.Spec = resourcev1.DeviceClassSpec{ExtendedResourceName: class.Spec.ExtendedResourceName}
}

// maxOrigin is the longest value kept of the annotations with a claim's origin. No name in Kubernetes is longer.
const maxOrigin = 253

// Trim keeps only the metadata that names a claim's origin, and the annotation that makes a claim count. Others write
// the rest, up to 256 KiB.
func Trim(claim *metav1.PartialObjectMetadata) {
	claim.ObjectMeta = metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
		ResourceVersion: claim.ResourceVersion, Labels: lo.PickByKeys(claim.Labels, []string{names.MarkerLabel}),
		Annotations: lo.PickBy(claim.Annotations, func(key, value string) bool {
			return (slices.Contains(names.OriginAnnotations, key) || key == resourcev1.ExtendedResourceClaimAnnotation) && len(value) <= maxOrigin
		})}
}

// NamespaceLabels implements rules.Cluster.
func (v *View) NamespaceLabels(name string) map[string]string {
	namespace := kube.NamespaceMetadata()
	v.get(types.NamespacedName{Name: name}, namespace)
	return namespace.Labels
}

// PinnedTo implements rules.Cluster.
func (v *View) PinnedTo(server string) []*v1alpha1.Machine {
	found := &v1alpha1.MachineList{}
	v.list(found, client.MatchingFields{pinnedTo: server})
	return byName(found.Items)
}

// Users implements rules.Cluster.
func (v *View) Users(kind rules.Kind, name string) []string {
	if kind == rules.KindTenantCluster {
		namespace, tenant, _ := strings.Cut(name, "/")
		return named("Machine", lo.FromSlicePtr(v.Charged(types.NamespacedName{Namespace: namespace, Name: tenant})))
	}
	providers, nodeTypes := &v1alpha1.NodeProviderList{}, &v1alpha1.NodeTypeList{}
	machines, tenants := &v1alpha1.MachineList{}, &v1alpha1.TenantClusterList{}
	for _, list := range []client.ObjectList{providers, nodeTypes, machines, tenants} {
		v.list(list, client.MatchingFields{refersTo: reference(kind, name)})
	}
	if kind == rules.KindOSImage || kind == rules.KindSSHKey || kind == rules.KindMachineConfigTemplate {
		// An object can be deleted even if a tenant names it without permission.
		machines.Items = lo.Filter(machines.Items, func(machine v1alpha1.Machine, _ int) bool { return v.mayName(&machine) })
	}
	if kind == rules.KindNodeProfile {
		machines.Items = lo.Filter(machines.Items, func(machine v1alpha1.Machine, _ int) bool {
			tenant := quota.ChargedTo(&machine, v.TenantClusters(machine.Namespace))
			return tenant != nil && tenant.AllowsNodeProfile(name)
		})
	}
	return slices.Concat(named("Machine", machines.Items), named("NodeProvider", providers.Items), named("NodeType", nodeTypes.Items),
		named("TenantCluster", tenants.Items))
}

// mayName reports whether the tenant of a Machine may name the objects in the Machine's properties.
func (v *View) mayName(machine *v1alpha1.Machine) bool {
	tenants := v.TenantClusters(machine.Namespace)
	tenant := quota.ChargedTo(machine, tenants)
	if tenant == nil {
		return quota.Unbound(machine, tenants, v.NamespaceLabels(machine.Namespace))
	}
	layer := properties.OfMachine(machine)
	layer.Values = lo.PickByKeys(layer.Values, []string{v1alpha1.PropertyOSImage, v1alpha1.PropertySSHKeys,
		v1alpha1.PropertyUserDataTemplate, v1alpha1.PropertyNetworkDataTemplate})
	return len(properties.CheckTenant(layer, tenant, v.NodeTypes(), v.NodeProviders())) == 0
}

// QuotaRest implements rules.Cluster.
func (v *View) QuotaRest(tenant *v1alpha1.TenantCluster, machine *v1alpha1.Machine) quota.Rest {
	used := quota.Used(v.Charged(client.ObjectKeyFromObject(tenant)), machine.UID, nil)
	return quota.RestOf(tenant, used, func(name string) int64 {
		if nodeType := v.NodeType(name); nodeType != nil {
			return nodeType.Spec.CountAccelerators()
		}
		return 0
	})
}

// Charged implements rules.Cluster.
func (v *View) Charged(tenant types.NamespacedName) []*v1alpha1.Machine {
	machines := &v1alpha1.MachineList{}
	v.list(machines, client.InNamespace(tenant.Namespace))
	return quota.Charged(tenant.Name, v.TenantClusters(tenant.Namespace), machines.Items)
}

// Offered implements rules.Cluster.
func (v *View) Offered(nodeType string) []v1alpha1.NodeTypeRequirement {
	summary, _ := v.Summary(nodeType)
	return summary.Requirements
}

// Choose implements rules.Cluster.
func (v *View) Choose(request inventory.Request) (inventory.Choice, error) {
	if v.late() {
		return inventory.Choice{}, nil
	}
	request.Machine = "" // a choice without a Machine assumes nothing
	return v.Inventory.Choose(request)
}

// Object is a pointer to an object.
type Object[T any] interface {
	*T
	client.Object
}

// byName returns pointers to items, sorted.
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

// named returns the names of items with their kind, sorted.
func named[T any, P Object[T]](kind string, items []T) []string {
	var names []string
	for _, object := range byName[T, P](items) {
		name := object.GetName()
		if namespace := object.GetNamespace(); namespace != "" {
			name = namespace + "/" + name
		}
		names = append(names, kind+" "+name)
	}
	return names
}

const (
	// refersTo is the index of objects by their references: "OSImage/ubuntu".
	refersTo = "refersTo"
	// pinnedTo is the index of Machines by the name of the server that they are pinned to.
	pinnedTo = "pinnedTo"
)

// AddIndexes adds the indexes that a Cluster needs to a cache.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		object client.Object
		field  string
		values client.IndexerFunc
	}{
		{&v1alpha1.NodeProvider{}, refersTo, indexed(ofProvider)},
		{&v1alpha1.NodeType{}, refersTo, indexed(ofType)},
		{&v1alpha1.Machine{}, refersTo, indexed(ofMachine)},
		{&v1alpha1.TenantCluster{}, refersTo, indexed(ofTenant)},
		{&v1alpha1.Machine{}, pinnedTo, indexed(func(machine *v1alpha1.Machine) []string {
			if server := machine.Spec.Properties[v1alpha1.PropertyServerName]; server != "" {
				return []string{server}
			}
			return nil
		})},
	} {
		if err := indexer.IndexField(ctx, index.object, index.field, index.values); err != nil {
			return fmt.Errorf("adding the index %s of %T, %w", index.field, index.object, err)
		}
	}
	return nil
}

// indexed returns an indexer for one type. It removes duplicate values.
func indexed[T client.Object](values func(T) []string) client.IndexerFunc {
	return kube.Of(func(object T) []string { return slices.Compact(slices.Sorted(slices.Values(values(object)))) })
}

func reference(kind rules.Kind, name string) string { return string(kind) + "/" + name }

func ofProvider(provider *v1alpha1.NodeProvider) []string {
	named := inProperties(provider.Spec.Properties)
	for i := range provider.Spec.Metal3.NodeTypes {
		named = append(named, inProperties(provider.Spec.Metal3.NodeTypes[i].Properties)...)
	}
	return named
}

// ofType returns the references of a NodeType that a user wrote. A generated type's count for its NodeProvider.
func ofType(nodeType *v1alpha1.NodeType) []string {
	if len(nodeType.OwnerReferences) > 0 {
		return nil
	}
	return inProperties(nodeType.Spec.Properties)
}

// ofMachine returns the references of a Machine, including the type that was chosen for it.
func ofMachine(machine *v1alpha1.Machine) []string {
	named := inProperties(machine.Spec.Properties)
	if machine.Spec.ProfileRef != nil {
		named = append(named, ofProfile(machine.Spec.ProfileRef.Name)...)
	}
	for _, typeRef := range []*v1alpha1.NameReference{machine.Spec.NodeTypeRef, machine.Status.NodeTypeRef} {
		if typeRef != nil {
			named = append(named, reference(rules.KindNodeType, typeRef.Name))
		}
	}
	return named
}

// ofTenant returns the references of a tenant and its pools, including the types that they select by name.
func ofTenant(tenant *v1alpha1.TenantCluster) []string {
	named := ofProfile(tenant.Spec.DefaultNodeProfile)
	if tenant.Spec.PrivateNodes == nil {
		return named
	}
	named = append(named, ofProfile(tenant.Spec.PrivateNodes.DefaultProfile)...)
	for i := range tenant.Spec.PrivateNodes.AutoNodes {
		entry := &tenant.Spec.PrivateNodes.AutoNodes[i]
		named = append(named, inProperties(entry.Properties)...)
		for j := range entry.Static {
			named = append(named, ofPool(entry.Provider, &entry.Static[j].NodesTemplate)...)
		}
		for j := range entry.Dynamic {
			named = append(named, ofPool(entry.Provider, &entry.Dynamic[j].NodesTemplate)...)
		}
	}
	return named
}

// ofProfile returns the reference to a NodeProfile, none for an empty name.
func ofProfile(name string) []string {
	if name == "" {
		return nil
	}
	return []string{reference(rules.KindNodeProfile, name)}
}

func ofPool(provider string, pool *v1alpha1.NodesTemplate) []string {
	named := append(inProperties(pool.Properties), ofProfile(pool.Profile)...)
	for i := range pool.NodeTypeSelector {
		requirement := &pool.NodeTypeSelector[i]
		if !matching.NamesTypes(requirement.Property) || requirement.Operator != "" && requirement.Operator != v1alpha1.SelectorIn {
			continue
		}
		for _, name := range append([]string{requirement.Value}, requirement.Values...) {
			if name == "" {
				continue
			}
			named = append(named, reference(rules.KindNodeType, name))
			if short, ofProvider := strings.CutPrefix(name, provider+"."); ofProvider {
				named = append(named, reference(rules.KindNodeType, short))
			}
		}
	}
	return named
}

// inProperties returns the references in properties. A template counts as used even if a document replaces it.
func inProperties(values map[string]string) []string {
	return lo.Map(properties.Merge(properties.Layer{Values: values}).References(),
		func(named properties.Reference, _ int) string { return named.String() })
}
