// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/preflight"
)

// The type of a Snapshot in a file. Load rejects another version.
const (
	SnapshotKind    = "FleetSnapshot"
	SnapshotVersion = "view." + v1alpha1.Group + "/v1"
)

// Snapshot is what was read from the clusters at one time, without parts that may hold a secret: user data, network
// data, values of unknown properties, and credentials in URLs. Of pods it has only what they need from a node. Text
// that others wrote is Plain.
type Snapshot struct {
	metav1.TypeMeta `json:",inline"`
	// Time is when reading began.
	Time       metav1.Time `json:"time"`
	Management Management  `json:"management"`
	// Tenant is the tenant cluster that was read, nil if none was. More are further tenant clusters.
	Tenant *Tenant   `json:"tenant,omitempty"`
	More   []*Tenant `json:"moreTenants,omitempty"`
	// Missing is what could not be read. Answers that depend on it are incomplete.
	Missing []Missing `json:"missing,omitempty"`
	// Issues are the issues that ReadChecks found. All other issues follow from the objects.
	Issues []Issue `json:"issues,omitempty"`
}

// Management is the content of the management cluster.
type Management struct {
	Hosts         []bmov1alpha1.BareMetalHost `json:"hosts"`
	NodeProviders []v1alpha1.NodeProvider     `json:"nodeProviders"`
	// NodeProfiles are read only by ReadPlanning.
	NodeProfiles   []v1alpha1.NodeProfile   `json:"nodeProfiles,omitempty"`
	NodeTypes      []v1alpha1.NodeType      `json:"nodeTypes"`
	TenantClusters []v1alpha1.TenantCluster `json:"tenantClusters"`
	Machines       []v1alpha1.Machine       `json:"machines"`
	// HostUsages are read only by ReadUsage.
	HostUsages []v1alpha1.HostUsage `json:"hostUsages,omitempty"`
}

// Tenant is the content of a tenant cluster.
type Tenant struct {
	// UID is the UID of the namespace kube-system. A TenantCluster identifies its cluster by this UID.
	UID         types.UID                 `json:"uid,omitempty"`
	Pods        []corev1.Pod              `json:"pods"`
	Nodes       []corev1.Node             `json:"nodes"`
	NodePools   []karpv1.NodePool         `json:"nodePools"`
	NodeClaims  []karpv1.NodeClaim        `json:"nodeClaims"`
	NodeClasses []v1alpha1.MetalNodeClass `json:"nodeClasses"`
	// DaemonSets are read only by ReadPlanning.
	DaemonSets []appsv1.DaemonSet `json:"daemonSets,omitempty"`
	// Events are read only by ReadEvents.
	Events []corev1.Event `json:"events,omitempty"`
}

// DeepCopy returns a copy that can be changed.
func (s *Snapshot) DeepCopy() *Snapshot {
	c, m := *s, &s.Management
	c.Management = Management{
		Hosts: copied(m.Hosts), NodeProviders: copied(m.NodeProviders), NodeProfiles: copied(m.NodeProfiles), NodeTypes: copied(m.NodeTypes),
		TenantClusters: copied(m.TenantClusters), Machines: copied(m.Machines), HostUsages: copied(m.HostUsages),
	}
	c.Tenant, c.More = nil, nil
	for _, part := range s.PerTenant() {
		t := part.Tenant
		c.addTenant(&Tenant{
			UID: t.UID, Pods: copied(t.Pods), Nodes: copied(t.Nodes), NodePools: copied(t.NodePools), NodeClaims: copied(t.NodeClaims),
			NodeClasses: copied(t.NodeClasses), DaemonSets: copied(t.DaemonSets), Events: copied(t.Events),
		})
	}
	c.Missing, c.Issues = slices.Clone(s.Missing), slices.Clone(s.Issues)
	return &c
}

func copied[T any, P interface {
	*T
	DeepCopyInto(*T)
}](from []T) []T {
	to := make([]T, len(from))
	for i := range from {
		P(&from[i]).DeepCopyInto(&to[i])
	}
	return to
}

// PerTenant returns a snapshot for each tenant cluster that was read, with only this tenant cluster. It shares
// everything with the original.
func (s *Snapshot) PerTenant() (all []*Snapshot) {
	if s.Tenant == nil {
		return nil
	}
	for _, tenant := range append([]*Tenant{s.Tenant}, s.More...) {
		part := *s
		part.Tenant, part.More = tenant, nil
		all = append(all, &part)
	}
	return all
}

func (s *Snapshot) addTenant(tenant *Tenant) {
	if s.Tenant == nil {
		s.Tenant = tenant
	} else {
		s.More = append(s.More, tenant)
	}
}

// addMissing adds what could not be read. If there are several tenant clusters, it names the tenant cluster of the
// part.
func (s *Snapshot) addMissing(part *Snapshot, missing ...Missing) {
	for _, absent := range missing {
		if tenant := part.TenantCluster(); len(s.More) > 0 && tenant != nil {
			absent.Tenant = nameOf(tenant)
		}
		s.Missing = append(s.Missing, absent)
	}
}

// TenantCluster returns the TenantCluster of the tenant cluster in the snapshot; nil if none has its identity.
func (s *Snapshot) TenantCluster() *v1alpha1.TenantCluster {
	if s.Tenant == nil || s.Tenant.UID == "" {
		return nil
	}
	for i := range s.Management.TenantClusters {
		if tenant := &s.Management.TenantClusters[i]; tenant.Status.ClusterUID == string(s.Tenant.UID) {
			return tenant
		}
	}
	return nil
}

// Missing is a kind that could not be read.
type Missing struct {
	// Cluster is "management" or "tenant".
	Cluster string `json:"cluster"`
	// Tenant is the namespace and name of the TenantCluster if several were read.
	Tenant   string `json:"tenant,omitempty"`
	Group    string `json:"group"`
	Resource string `json:"resource"`
	// NotInstalled: the cluster does not have the kind. Otherwise the right to list it is missing.
	NotInstalled bool `json:"notInstalled,omitempty"`
	// Live: the kind should be followed, which also needs the right to watch it.
	Live bool `json:"live,omitempty"`
}

// String says in one sentence what is missing and how to get it.
func (m Missing) String() string {
	name, cluster := strings.TrimSuffix(m.Resource+"."+m.Group, "."), m.Cluster+" cluster"
	if m.Tenant != "" {
		cluster += " of " + m.Tenant
	}
	if m.NotInstalled {
		return fmt.Sprintf("the %s has no %s: install its CRD, or name another cluster", cluster, name)
	}
	verbs, rule := "list", "list"
	if m.Live {
		verbs, rule = "list or not watch", "list, watch"
	}
	return fmt.Sprintf("you may not %s %s in the %s, and what depends on them is not shown: the rule that is missing is "+
		"apiGroups [%q], resources [%q], verbs [%s]", verbs, name, cluster, m.Group, m.Resource, rule)
}

// Scheme has the kinds of a snapshot.
func Scheme() *runtime.Scheme {
	scheme := operator.ManagementScheme()
	version := schema.GroupVersion{Group: karpenterapis.Group, Version: "v1"}
	scheme.AddKnownTypes(version, &karpv1.NodePool{}, &karpv1.NodePoolList{}, &karpv1.NodeClaim{}, &karpv1.NodeClaimList{})
	metav1.AddToGroupVersion(scheme, version)
	return scheme
}

type kind struct {
	cluster, group, resource string
	// namespace returns the namespace to list; nil for a cluster-scoped kind.
	namespace func(Scope) string
	// object is an empty object.
	object client.Object
	// list returns an empty list. Each page needs its own list: decoding into the list of the previous page would
	// overwrite objects that were already taken from it.
	list func() client.ObjectList
	// trim removes what people do not look at and what may hold a secret, and makes the rest Plain.
	trim func(client.Object)
	// add appends a copy of an object to the objects of a snapshot.
	add func(*Snapshot, client.Object)
}

const (
	managementCluster = "management"
	tenantCluster     = "tenant"
)

func kindOf[T any, P interface {
	*T
	client.Object
}](cluster, group, resource string, list func() client.ObjectList, field func(*Snapshot) *[]T, trim func(P)) kind {
	return kind{
		cluster: cluster, group: group, resource: resource, object: P(new(T)), list: list,
		trim: func(object client.Object) {
			object.SetManagedFields(nil)
			annotations := object.GetAnnotations()
			delete(annotations, corev1.LastAppliedConfigAnnotation)
			object.SetAnnotations(annotations)
			trim(object.(P))
			PlainAll(object)
		},
		add: func(s *Snapshot, object client.Object) { all := field(s); *all = append(*all, *object.(P)) },
	}
}

// Scope limits what is read from clusters. The less a command reads, the fewer rights it needs.
type Scope struct {
	// Machines is the namespace of Machines and TenantClusters, Hosts the namespace of BareMetalHosts, and Pods the
	// namespace of pods and their events in a tenant cluster. An empty namespace means all.
	Machines, Hosts, Pods string
	// Resources are the kinds to read from the management cluster, by their names in the API; nil means all.
	Resources []string
}

// reads reports whether the scope contains a kind.
func (s Scope) reads(kind kind) bool {
	return kind.cluster != managementCluster || s.Resources == nil || slices.Contains(s.Resources, kind.resource)
}

// listIn limits the list of a kind to its namespace in a scope.
func (k kind) listIn(namespace func(Scope) string) kind {
	k.namespace = namespace
	return k
}

func (k kind) options(scope Scope) []client.ListOption {
	if k.namespace == nil {
		return nil
	}
	return []client.ListOption{client.InNamespace(k.namespace(scope))}
}

// managementKinds returns the kinds that a snapshot has of the management cluster.
func managementKinds() []kind {
	return []kind{
		kindOf(managementCluster, bmov1alpha1.GroupVersion.Group, "baremetalhosts",
			func() client.ObjectList { return &bmov1alpha1.BareMetalHostList{} },
			func(s *Snapshot) *[]bmov1alpha1.BareMetalHost { return &s.Management.Hosts }, trimHost).listIn(hosts),
		kindOf(managementCluster, v1alpha1.Group, "nodeproviders",
			func() client.ObjectList { return &v1alpha1.NodeProviderList{} },
			func(s *Snapshot) *[]v1alpha1.NodeProvider { return &s.Management.NodeProviders }, trimProvider),
		kindOf(managementCluster, v1alpha1.Group, "nodetypes",
			func() client.ObjectList { return &v1alpha1.NodeTypeList{} },
			func(s *Snapshot) *[]v1alpha1.NodeType { return &s.Management.NodeTypes }, trimType),
		kindOf(managementCluster, v1alpha1.Group, "tenantclusters",
			func() client.ObjectList { return &v1alpha1.TenantClusterList{} },
			func(s *Snapshot) *[]v1alpha1.TenantCluster { return &s.Management.TenantClusters }, trimTenantCluster).listIn(machines),
		kindOf(managementCluster, v1alpha1.Group, "machines",
			func() client.ObjectList { return &v1alpha1.MachineList{} },
			func(s *Snapshot) *[]v1alpha1.Machine { return &s.Management.Machines }, trimMachine).listIn(machines),
	}
}

// tenantKinds returns the kinds that a snapshot has of a tenant cluster.
func tenantKinds() []kind {
	return []kind{
		kindOf(tenantCluster, "", "pods", func() client.ObjectList { return &corev1.PodList{} },
			func(s *Snapshot) *[]corev1.Pod { return &s.Tenant.Pods }, trimPod).listIn(pods),
		kindOf(tenantCluster, "", "nodes", func() client.ObjectList { return &corev1.NodeList{} },
			func(s *Snapshot) *[]corev1.Node { return &s.Tenant.Nodes }, trimNode),
		kindOf(tenantCluster, karpenterapis.Group, "nodepools", func() client.ObjectList { return &karpv1.NodePoolList{} },
			func(s *Snapshot) *[]karpv1.NodePool { return &s.Tenant.NodePools }, nothingElse[karpv1.NodePool]),
		kindOf(tenantCluster, karpenterapis.Group, "nodeclaims", func() client.ObjectList { return &karpv1.NodeClaimList{} },
			func(s *Snapshot) *[]karpv1.NodeClaim { return &s.Tenant.NodeClaims }, nothingElse[karpv1.NodeClaim]),
		kindOf(tenantCluster, v1alpha1.Group, "metalnodeclasses", func() client.ObjectList { return &v1alpha1.MetalNodeClassList{} },
			func(s *Snapshot) *[]v1alpha1.MetalNodeClass { return &s.Tenant.NodeClasses }, trimClass),
	}
}

// The namespaces of a scope, for listIn.
func machines(scope Scope) string { return scope.Machines }
func hosts(scope Scope) string    { return scope.Hosts }
func pods(scope Scope) string     { return scope.Pods }

// missing returns a Missing if the error means that the kind cannot be read, and otherwise nil.
func (k kind) missing(err error) *Missing {
	if !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil
	}
	return &Missing{Cluster: k.cluster, Group: k.group, Resource: k.resource, NotInstalled: !apierrors.IsForbidden(err)}
}

// pageSize is how many objects a request asks for.
const pageSize = 500

// MaxPages is how many pages of a list are read: a lying API server may announce a next page for ever.
const MaxPages = 2000

// NewSnapshot returns an empty snapshot.
func NewSnapshot(now metav1.Time) *Snapshot {
	return &Snapshot{TypeMeta: metav1.TypeMeta{Kind: SnapshotKind, APIVersion: SnapshotVersion}, Time: now}
}

// Read reads a snapshot of the management cluster and of tenant clusters. Missing has the kinds that the reader may
// not list, or that a cluster does not have.
func Read(ctx context.Context, management client.Reader, tenants []client.Reader, scope Scope, now metav1.Time) (*Snapshot, error) {
	s, err := newSnapshot(ctx, tenants, now)
	if err != nil {
		return nil, err
	}
	for _, kind := range managementKinds() {
		if !scope.reads(kind) {
			continue
		}
		if err := s.read(ctx, kind, management, scope); err != nil {
			return nil, err
		}
	}
	return s, s.readTenants(ctx, tenants, scope, tenantKinds()...)
}

// newSnapshot returns a snapshot without objects. It knows the identity of the tenant clusters.
func newSnapshot(ctx context.Context, tenants []client.Reader, now metav1.Time) (*Snapshot, error) {
	s := NewSnapshot(now)
	for _, reader := range tenants {
		tenant, system := &Tenant{}, &corev1.Namespace{}
		if err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err == nil {
			tenant.UID = system.UID
		} else if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reaching the tenant cluster, %w", err)
		}
		s.addTenant(tenant)
	}
	return s, nil
}

// readTenants reads kinds from the tenant clusters of the snapshot.
func (s *Snapshot) readTenants(ctx context.Context, tenants []client.Reader, scope Scope, kinds ...kind) error {
	parts := s.PerTenant()
	for i, reader := range tenants {
		parts[i].Missing = nil
		for _, kind := range kinds {
			if err := parts[i].read(ctx, kind, reader, scope); err != nil {
				return err
			}
		}
		s.addMissing(parts[i], parts[i].Missing...)
	}
	return nil
}

// ReadPlanning adds what only planning needs: the DaemonSets of the tenants, which take room on each node, and the
// NodeProfiles.
func (s *Snapshot) ReadPlanning(ctx context.Context, management client.Reader, tenants []client.Reader) error {
	if err := s.read(ctx, kindOf(managementCluster, v1alpha1.Group, "nodeprofiles",
		func() client.ObjectList { return &v1alpha1.NodeProfileList{} },
		func(s *Snapshot) *[]v1alpha1.NodeProfile { return &s.Management.NodeProfiles }, nothingElse[v1alpha1.NodeProfile]),
		management, Scope{}); err != nil {
		return err
	}
	if err := s.readTenants(ctx, tenants, Scope{}, kindOf(tenantCluster, appsv1.GroupName, "daemonsets",
		func() client.ObjectList { return &appsv1.DaemonSetList{} },
		func(s *Snapshot) *[]appsv1.DaemonSet { return &s.Tenant.DaemonSets }, trimDaemonSet)); err != nil {
		return err
	}
	// Without the kind, the cluster has no NodeProfiles, and nothing is missing.
	s.Missing = slices.DeleteFunc(s.Missing, func(missing Missing) bool { return missing.NotInstalled && missing.Resource == "nodeprofiles" })
	return nil
}

// ReadChecks adds the results of preflight that no object shows: NodeTypes without their OSImage, and whether others
// than the API server can call our webhook. If a check cannot find out, that is an issue, too.
func (s *Snapshot) ReadChecks(ctx context.Context, management client.Reader) {
	s.Issues = nil
	cluster := &preflight.Cluster{Reader: management}
	add := func(severity Severity, results []preflight.Result) {
		for _, result := range results {
			if result.Level != preflight.OK {
				s.Issues = append(s.Issues, Issue{severity, result.Check, result.Message, result.Remedy})
			}
		}
	}
	missing, unknown := lo.FilterReject(cluster.OSImages(ctx), func(result preflight.Result, _ int) bool {
		return result.Level == preflight.Fail
	})
	add(Critical, missing)
	add(Info, unknown)
	add(Info, cluster.Callers(ctx))
}

func (s *Snapshot) read(ctx context.Context, kind kind, from client.Reader, scope Scope) error {
	next := ""
	for range MaxPages {
		options := append(kind.options(scope), client.Limit(pageSize), client.Continue(next))
		list := kind.list()
		if err := from.List(ctx, list, options...); err != nil {
			if missing := kind.missing(err); missing != nil {
				s.Missing = append(s.Missing, *missing)
				return nil
			}
			return fmt.Errorf("listing %s in the %s cluster, %w", kind.resource, kind.cluster, err)
		}
		if err := meta.EachListItem(list, func(object runtime.Object) error {
			kind.trim(object.(client.Object))
			kind.add(s, object.(client.Object))
			return nil
		}); err != nil {
			return fmt.Errorf("reading the list of %s in the %s cluster, %w", kind.resource, kind.cluster, err)
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
	return fmt.Errorf("the list of %s in the %s cluster has more than %d pages of %d: no cluster has as many", kind.resource, kind.cluster,
		MaxPages, pageSize)
}

func nothingElse[T any](*T) {}

func trimHost(host *bmov1alpha1.BareMetalHost) {
	history := host.Status.OperationHistory
	var found bmov1alpha1.HardwareDetails
	if details := host.Status.HardwareDetails; details != nil {
		found = *details
	}
	inventory.TrimHost(host)
	host.Status.OperationHistory = history
	if details := host.Status.HardwareDetails; details != nil {
		details.SystemVendor, details.Firmware, details.CPU.Model = found.SystemVendor, found.Firmware, found.CPU.Model
	}
	host.Spec.BMC.Address = properties.PublicURL(host.Spec.BMC.Address)
	for _, image := range []*bmov1alpha1.Image{host.Spec.Image, &host.Status.Provisioning.Image} {
		if image != nil {
			image.URL, image.Checksum = properties.PublicURL(image.URL), properties.PublicURL(image.Checksum)
		}
	}
}

// shownProperties are the properties whose values a snapshot has, in the form of a status. Templates use the other
// properties, which may be secrets.
var shownProperties = sets.New(v1alpha1.PropertyOSImage, v1alpha1.PropertyServerName, v1alpha1.PropertyImageURL,
	v1alpha1.PropertyImageChecksum, v1alpha1.PropertyImageChecksumType, v1alpha1.PropertySSHKeys, v1alpha1.PropertyUserDataTemplate,
	v1alpha1.PropertyNetworkDataTemplate, v1alpha1.PropertyNetworkCIDR, v1alpha1.PropertyNetworkIPRange, v1alpha1.PropertyDNSServers,
	v1alpha1.PropertyNTPServers)

// trimProperties keeps the values of shownProperties, and replaces other values by their length.
func trimProperties(values map[string]string) {
	shown := properties.Merge(properties.Layer{Values: values})
	for key, value := range values {
		if shownProperties.Has(key) {
			values[key] = shown.Shown(key)
		} else if value != "" {
			values[key] = fmt.Sprintf("(%d bytes)", len(value))
		}
	}
}

func trimProvider(provider *v1alpha1.NodeProvider) {
	trimProperties(provider.Spec.Properties)
	for i := range provider.Spec.Metal3.NodeTypes {
		trimProperties(provider.Spec.Metal3.NodeTypes[i].Properties)
	}
}

func trimType(nodeType *v1alpha1.NodeType) { trimProperties(nodeType.Spec.Properties) }

func trimTenantCluster(tenant *v1alpha1.TenantCluster) {
	// The settings in PrivateNodes are for the user data of nodes.
	tenant.Spec.PrivateNodes = nil
}

func trimMachine(machine *v1alpha1.Machine) {
	trimProperties(machine.Spec.Properties)
	for i := range machine.Status.Properties {
		// The status already has the length of documents instead of their text.
		property := &machine.Status.Properties[i]
		if !shownProperties.Has(property.Key) && property.Key != v1alpha1.PropertyUserData && property.Key != v1alpha1.PropertyNetworkData {
			property.Value = fmt.Sprintf("(%d bytes)", len(property.Value))
		}
	}
}

func trimClass(class *v1alpha1.MetalNodeClass) { trimProperties(class.Spec.Properties) }

func trimPod(pod *corev1.Pod) {
	group := pod.Spec.SchedulingGroup
	pod.Spec = TrimPodSpec(&pod.Spec)
	pod.Spec.SchedulingGroup = group
	maps.DeleteFunc(pod.Annotations, func(key, _ string) bool {
		return key != karpv1.DoNotDisruptAnnotationKey && key != v1alpha1.GangMinCountAnnotationKey
	})
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, NominatedNodeName: pod.Status.NominatedNodeName}
}

// TrimPodSpec keeps what a pod needs from a node: no environment, no arguments, no images, no volumes.
func TrimPodSpec(from *corev1.PodSpec) corev1.PodSpec {
	spec := corev1.PodSpec{
		NodeName: from.NodeName, NodeSelector: from.NodeSelector, Affinity: from.Affinity, Tolerations: from.Tolerations,
		TopologySpreadConstraints: from.TopologySpreadConstraints, ResourceClaims: from.ResourceClaims,
		SchedulerName: from.SchedulerName, SchedulingGates: from.SchedulingGates, Priority: from.Priority,
		Resources: from.Resources, Overhead: from.Overhead,
	}
	needs := func(containers []corev1.Container) []corev1.Container {
		kept := make([]corev1.Container, len(containers))
		for i := range containers {
			kept[i] = corev1.Container{Name: containers[i].Name, Resources: containers[i].Resources, RestartPolicy: containers[i].RestartPolicy}
			for _, port := range containers[i].Ports {
				if port.HostPort != 0 {
					kept[i].Ports = append(kept[i].Ports, port)
				}
			}
		}
		return kept
	}
	spec.Containers, spec.InitContainers = needs(from.Containers), needs(from.InitContainers)
	return spec
}

func trimDaemonSet(set *appsv1.DaemonSet) {
	set.Annotations, set.Status = nil, appsv1.DaemonSetStatus{}
	set.Spec.Template.Annotations = nil
	set.Spec.Template.Spec = TrimPodSpec(&set.Spec.Template.Spec)
}

func trimNode(node *corev1.Node) {
	node.Annotations, node.Status.Images, node.Status.VolumesAttached, node.Status.VolumesInUse = nil, nil, nil, nil
}

// Save writes the snapshot as a file. In messages, annotations and other text, it blanks values that are named as a
// secret or look like one.
func (s *Snapshot) Save(to io.Writer) error {
	shown, err := Redacted(s)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", " ")
	return encoder.Encode(shown)
}

// Redacted returns the JSON form of an object, Plain and without possible secrets: see properties.RedactValue.
func Redacted(object any) (any, error) {
	content, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	value = properties.RedactValue(value)
	PlainAll(&value)
	return value, nil
}

// Load reads a snapshot from a file and makes it Plain. The error is one sentence.
func Load(from io.Reader) (*Snapshot, error) {
	s := &Snapshot{}
	err := json.NewDecoder(from).Decode(s)
	var wrongField *json.UnmarshalTypeError
	switch {
	case err == nil && s.Kind != SnapshotKind, errors.As(err, &wrongField) && s.Kind == "":
		return nil, fmt.Errorf("it is not a snapshot: its kind is %q, and would be %s: make one by kubectl metal3 snapshot", s.Kind, SnapshotKind)
	case err == nil && s.APIVersion != SnapshotVersion:
		return nil, fmt.Errorf("it is a snapshot of version %q, and this program reads %s: make it again by kubectl metal3 snapshot",
			s.APIVersion, SnapshotVersion)
	case err != nil:
		return nil, fmt.Errorf("it is not a snapshot: %w: make one by kubectl metal3 snapshot", err)
	}
	PlainAll(s)
	return s, nil
}
