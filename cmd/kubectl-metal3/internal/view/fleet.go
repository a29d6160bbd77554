// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Fleet answers questions about a snapshot. It is not safe for concurrent use.
type Fleet struct {
	snapshot  *Snapshot
	inventory *inventory.Inventory
	hosts     map[types.NamespacedName]*bmov1alpha1.BareMetalHost
	nodeTypes map[string]*v1alpha1.NodeType
	providers map[string]*v1alpha1.NodeProvider
	machines  map[types.NamespacedName]*v1alpha1.Machine
	// machineOf is the Machine that has a host, by the UID of the host.
	machineOf map[types.UID]*v1alpha1.Machine
	// tenants are the TenantClusters by namespace.
	tenants map[string][]*v1alpha1.TenantCluster
	// badTypes is why a NodeType has no servers, by name.
	badTypes map[string]string
	// topology is the default of --topology-labels: the API does not have the labels that the manager was given.
	topology topology.Mapping
	// servers are all servers, in the order of CompareServers.
	servers []Server
	// perTenant has a fleet for each tenant cluster that was read. That fleet answers only questions about its tenant
	// cluster. In it, tenant is the TenantCluster, nil if unknown. ofTenant names the TenantCluster in a sentence; it
	// is empty if only one was read.
	perTenant []*Fleet
	// plans are set by PlanWith.
	plans    map[types.NamespacedName]Plan
	tenant   *v1alpha1.TenantCluster
	ofTenant string
	// manager says that the manager does not answer. Its text is empty if the manager answers.
	manager Cause
	// nodes are the nodes of the tenant cluster, and podsOn the pods on them, both by the name of the node; nil until
	// first needed.
	nodes  map[string]*corev1.Node
	podsOn map[string][]*corev1.Pod
}

// New prepares the answers.
func New(snapshot *Snapshot) *Fleet {
	f := &Fleet{
		snapshot: snapshot, inventory: inventory.NewInventory(inventory.Options{}), topology: topology.Default(),
		hosts: map[types.NamespacedName]*bmov1alpha1.BareMetalHost{}, nodeTypes: map[string]*v1alpha1.NodeType{},
		providers: map[string]*v1alpha1.NodeProvider{}, machines: map[types.NamespacedName]*v1alpha1.Machine{},
		machineOf: map[types.UID]*v1alpha1.Machine{}, tenants: map[string][]*v1alpha1.TenantCluster{}, badTypes: map[string]string{},
	}
	m := &snapshot.Management
	for i := range m.NodeProviders {
		f.providers[m.NodeProviders[i].Name] = &m.NodeProviders[i]
	}
	for i := range m.TenantClusters {
		tenant := &m.TenantClusters[i]
		f.tenants[tenant.Namespace] = append(f.tenants[tenant.Namespace], tenant)
	}
	for i := range m.NodeTypes {
		f.addType(&m.NodeTypes[i])
	}
	for i := range m.Hosts {
		host := &m.Hosts[i]
		f.hosts[keyOf(host)] = host
		f.inventory.SetHost(host)
	}
	for i := range m.Machines {
		machine := &m.Machines[i]
		f.machines[keyOf(machine)] = machine
		if host, has := machine.Host(); has {
			f.machineOf[host.UID] = machine
		}
	}
	f.servers = make([]Server, 0, len(f.hosts))
	for _, host := range f.hosts {
		f.servers = append(f.servers, f.server(host))
	}
	slices.SortFunc(f.servers, CompareServers)
	f.manager = unanswered(m, snapshot.Time.Time)
	for _, part := range snapshot.PerTenant() {
		focused := *f
		focused.snapshot, focused.tenant = part, part.TenantCluster()
		if len(snapshot.More) > 0 {
			focused.ofTenant = " of TenantCluster " + focused.tenantName()
		}
		f.perTenant = append(f.perTenant, &focused)
	}
	return f
}

func (f *Fleet) addType(nodeType *v1alpha1.NodeType) {
	f.nodeTypes[nodeType.Name] = nodeType
	provider, known := f.providers[nodeType.Spec.ProviderRef.Name]
	if !known {
		f.badTypes[nodeType.Name] = fmt.Sprintf("its NodeProvider %q does not exist, or cannot be read: "+
			"correct spec.providerRef", nodeType.Spec.ProviderRef.Name)
		return
	}
	tenant := ""
	if tenants := f.tenants[provider.Spec.Metal3.ClusterRef.Namespace]; len(tenants) > 0 {
		tenant = tenants[0].Name
	}
	if invalid := f.inventory.AddType(nodeType, provider, tenant); invalid != nil {
		f.badTypes[nodeType.Name] = invalid.Message
	}
}

// State is the state of a server. Five states are the states of the metric karpenter_metal3_hosts. A claimed server
// has the phase of its Machine as its state.
type State string

// Metadata is the part of an object's metadata that people select and sort by.
type Metadata struct {
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	Created   metav1.Time       `json:"creationTimestamp,omitzero"`
}

// MetadataOf returns the metadata of an object. It shares the object's labels.
func MetadataOf(object metav1.Object) Metadata {
	return Metadata{Namespace: object.GetNamespace(), Name: object.GetName(), Labels: object.GetLabels(),
		Created: object.GetCreationTimestamp()}
}

// Server is one BareMetalHost.
type Server struct {
	Metadata `json:"metadata"`
	Rack     string `json:"rack,omitempty"`
	// Unit is the height unit or slot in the rack, from the label rack-unit.
	Unit string `json:"unit,omitempty"`
	Zone string `json:"zone,omitempty"`
	// Types are the NodeTypes that the server matches.
	Types []string `json:"types,omitempty"`
	// State is available, error, quarantined or unavailable. For a claimed server it is the phase of the Machine,
	// such as Provisioning or Joined, or claimed if no Machine has the server.
	State State `json:"state"`
	// Why is why the server cannot be claimed, or the message of its Machine; empty if it can be claimed.
	Why string `json:"why,omitempty"`
	// Metal3 is the provisioning state of the host.
	Metal3 string `json:"metal3,omitempty"`
	// Tenant is the namespace and name of the TenantCluster that is charged for the Machine.
	Tenant string `json:"tenant,omitempty"`
	// Machine is the namespace and name of its Machine.
	Machine string `json:"machine,omitempty"`
	Node    string `json:"node,omitempty"`
	// Since is when the Machine claimed the server.
	Since *metav1.Time `json:"since,omitempty"`
	// reason is why the server cannot be claimed; empty if it can, or if a Machine has it.
	reason inventory.Reason
}

// Key is the namespace and name of the host.
func (s *Server) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// CompareServers orders servers by zone, rack, unit and name. The highest unit comes first, as a person in front of
// the rack sees it.
func CompareServers(a, b Server) int {
	if a.Zone != b.Zone || a.Rack != b.Rack || a.Unit != b.Unit {
		return cmp.Or(CompareNames(a.Zone, b.Zone), CompareNames(a.Rack, b.Rack), CompareNames(b.Unit, a.Unit))
	}
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), CompareNames(a.Name, b.Name))
}

// Servers returns all servers, in the order of CompareServers.
func (f *Fleet) Servers() []Server { return slices.Clone(f.servers) }

func keyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

func (f *Fleet) server(host *bmov1alpha1.BareMetalHost) Server {
	known, _ := f.inventory.Server(keyOf(host))
	server := Server{
		Metadata: MetadataOf(host), Rack: host.Labels[v1alpha1.RackLabelKey], Unit: host.Labels[v1alpha1.RackUnitLabelKey],
		Zone: f.zone(host, known.Types), Types: known.Types, Metal3: string(host.Status.Provisioning.State),
	}
	if machine := f.MachineOn(host); machine != nil {
		ready := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionReady)
		server.State, server.Why = State(cmp.Or(machine.Status.Phase, v1alpha1.MachinePending)), ready.Message
		server.Machine, server.Node = machine.Namespace+"/"+machine.Name, machine.Status.NodeName
		if tenant := f.chargedTo(machine); tenant != nil {
			server.Tenant = tenant.Namespace + "/" + tenant.Name
		}
		if claimed := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionClaimed); claimed.Status == metav1.ConditionTrue {
			server.Since = &claimed.LastTransitionTime
		}
		return server
	}
	server.State, server.reason, server.Why = f.unclaimed(host, known)
	return server
}

// noType is the reason of a server that matches no NodeType.
const noType inventory.Reason = "NoNodeType"

// isRegisteredAnew reports whether a host has an image, but its Machine has a host of another name.
func (f *Fleet) isRegisteredAnew(host *bmov1alpha1.BareMetalHost) bool {
	consumer, claimed := usage.MachineOn(host)
	machine := f.machines[types.NamespacedName{Namespace: consumer.Namespace, Name: consumer.Name}]
	if !claimed || host.Spec.Image == nil || machine == nil || machine.ClaimUID() != consumer.UID {
		return false
	}
	has, known := machine.Host()
	return known && (has.Namespace != host.Namespace || has.Name != host.Name)
}

// unclaimed returns the state of a server that no Machine has. If it cannot be claimed, it also returns the reason
// and the end of a sentence about it.
func (f *Fleet) unclaimed(host *bmov1alpha1.BareMetalHost, known inventory.Server) (State, inventory.Reason, string) {
	eligibility := known.Eligibility
	switch {
	case f.isRegisteredAnew(host):
		return State(inventory.StateClaimed), inventory.ReasonRegisteredAnew, inventory.RegisteredAnew(host)
	case eligibility.Claimed:
		user := eligibility.UsedBy
		if user == "" {
			user = fmt.Sprintf("Machine %s/%s, which is not among those that were read", host.Spec.ConsumerRef.Namespace, host.Spec.ConsumerRef.Name)
		}
		return State(inventory.StateClaimed), inventory.ReasonClaimed, "is used by " + user
	case eligibility.Reason == inventory.ReasonError:
		return State(inventory.StateError), eligibility.Reason,
			eligibility.Message + ": " + cmp.Or(host.Status.ErrorMessage, "Metal3 says nothing about it")
	case eligibility.Reason == inventory.ReasonQuarantined:
		return State(inventory.StateQuarantined), eligibility.Reason, eligibility.Message
	}
	var reason inventory.Reason
	var because []string
	for _, name := range known.Types {
		switch state := known.States[name]; {
		case state.State == inventory.StateAvailable:
			return State(inventory.StateAvailable), "", ""
		case state.Reason == inventory.ReasonTooSmall:
			reason, because = state.Reason, append(because, tooSmall(name, state))
		case state.Reason == inventory.ReasonNotInspected:
			reason, because = state.Reason, append(because, fmt.Sprintf("has not been inspected, and NodeType %s leaves out cpu or memory", name))
		}
	}
	switch {
	case !eligibility.Claimable:
		return State(inventory.StateUnavailable), eligibility.Reason, eligibility.Message
	case len(known.Types) == 0:
		return State(inventory.StateUnavailable), noType, "matches no NodeType"
	}
	return State(inventory.StateUnavailable), reason, strings.Join(because, "; ")
}

// tooSmall returns the end of a sentence about a server.
func tooSmall(nodeType string, state inventory.TypeState) string {
	return fmt.Sprintf("is too small for NodeType %s (%s)", nodeType, state.Lacks)
}

// zone returns the zone that a node on the server would have, if the manager uses the default of --topology-labels.
func (f *Fleet) zone(host *bmov1alpha1.BareMetalHost, nodeTypes []string) string {
	for _, name := range nodeTypes {
		if zone := f.nodeTypes[name].Spec.Zone; zone != "" {
			return zone
		}
	}
	return f.topology.Zone(host.Labels)
}

func (f *Fleet) chargedTo(machine *v1alpha1.Machine) *v1alpha1.TenantCluster {
	return quota.ChargedTo(machine, f.tenants[machine.Namespace])
}

// Machine describes a Machine.
type Machine struct {
	Metadata `json:"metadata"`
	Phase    v1alpha1.MachinePhase `json:"phase"`
	NodeType string                `json:"nodeType,omitempty"`
	Server   string                `json:"server,omitempty"`
	Tenant   string                `json:"tenant,omitempty"`
	Node     string                `json:"node,omitempty"`
	// Progress is the progress on the way to the node, as in "3/5 writing image".
	Progress string `json:"progress,omitempty"`
	// Expected is when Machines of the type have usually joined; nil for a joined Machine, or without an estimate for
	// the type.
	Expected *metav1.Time `json:"expected,omitempty"`
	// Drifted is the reason of the condition Drifted while it is true.
	Drifted string `json:"drifted,omitempty"`
	// Message is the message of the condition Ready.
	Message string `json:"message,omitempty"`
}

// Machines returns all Machines, by namespace and name.
func (f *Fleet) Machines() []Machine {
	machines := make([]Machine, 0, len(f.machines))
	for _, machine := range f.machines {
		machines = append(machines, f.describe(machine))
	}
	slices.SortFunc(machines, func(a, b Machine) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return machines
}

func (f *Fleet) describe(machine *v1alpha1.Machine) Machine {
	described := Machine{
		Metadata: MetadataOf(machine), Phase: cmp.Or(machine.Status.Phase, v1alpha1.MachinePending), Node: machine.Status.NodeName,
		Message: conditions.Find(machine.Status.Conditions, v1alpha1.ConditionReady).Message,
	}
	if nodeType := cmp.Or(machine.Status.NodeTypeRef, machine.Spec.NodeTypeRef); nodeType != nil {
		described.NodeType = nodeType.Name
	}
	if host, has := machine.Host(); has {
		described.Server = host.Name
	}
	if tenant := f.chargedTo(machine); tenant != nil {
		described.Tenant = tenant.Name
	}
	if progress := machine.Status.Progress; progress != nil && machine.IsOnItsWay() {
		described.Progress = fmt.Sprintf("%d/%d %s", progress.Step, progress.Steps, progress.Description)
		described.Expected = progress.ExpectedReadyTime
	}
	if drifted := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionDrifted); drifted.Status == metav1.ConditionTrue {
		described.Drifted = drifted.Reason
	}
	return described
}

// TypeCapacity is what a NodeType has, and how much of it tenants have.
type TypeCapacity struct {
	Metadata     `json:"metadata"`
	NodeType     string `json:"nodeType"`
	Accelerators string `json:"accelerators,omitempty"`
	Cost         int64  `json:"cost"`
	v1alpha1.Capacity
	// NotReady is how many servers cannot be claimed for a reason that no other field counts.
	NotReady    int32  `json:"notReady"`
	MaxCapacity *int32 `json:"maxCapacity,omitempty"`
	// InTransit is the number of claimed servers whose Machine has not joined, or is being released.
	InTransit int32 `json:"inTransit"`
	// Tenants is how many servers each TenantCluster has, by namespace and name.
	Tenants map[string]int32 `json:"tenants,omitempty"`
	// TypicalSeconds is the usual time from the claim to the node; 0 until a server of the type has joined.
	TypicalSeconds int64 `json:"typicalSeconds,omitempty"`
}

// Capacity returns the capacity of each NodeType, by name.
func (f *Fleet) Capacity() []TypeCapacity {
	byType := map[string]*TypeCapacity{}
	all := make([]TypeCapacity, 0, len(f.nodeTypes))
	for name, nodeType := range f.nodeTypes {
		summary, _ := f.inventory.Summary(name)
		typeCapacity := TypeCapacity{
			Metadata: MetadataOf(nodeType), NodeType: name, Accelerators: capacity.Accelerators(&nodeType.Spec.HardwareProfile),
			Cost:     nodeType.EffectiveCost(),
			Capacity: summary.Capacity, NotReady: summary.NotReady, MaxCapacity: nodeType.Spec.MaxCapacity, Tenants: map[string]int32{},
		}
		if estimate := nodeType.Status.Provisioning; estimate != nil {
			typeCapacity.TypicalSeconds = estimate.TypicalSeconds
		}
		all = append(all, typeCapacity)
	}
	slices.SortFunc(all, func(a, b TypeCapacity) int { return strings.Compare(a.NodeType, b.NodeType) })
	for i := range all {
		byType[all[i].NodeType] = &all[i]
	}
	for _, machine := range f.machines {
		if machine.Status.NodeTypeRef == nil || machine.Status.HostRef == nil {
			continue
		}
		typeCapacity := byType[machine.Status.NodeTypeRef.Name]
		if typeCapacity == nil {
			continue
		}
		if machine.Status.Phase != v1alpha1.MachineJoined {
			typeCapacity.InTransit++
		}
		if tenant := f.chargedTo(machine); tenant != nil {
			typeCapacity.Tenants[tenant.Namespace+"/"+tenant.Name]++
		}
	}
	return all
}

// Missing is what could not be read.
func (f *Fleet) Missing() []Missing { return f.snapshot.Missing }

// HasTenant reports whether a tenant cluster was read.
func (f *Fleet) HasTenant() bool { return f.snapshot.Tenant != nil }

// Now is the time of the snapshot.
func (f *Fleet) Now() time.Time { return f.snapshot.Time.Time }

// tenantName returns the namespace and name of the TenantCluster, in a fleet of one tenant cluster.
func (f *Fleet) tenantName() string {
	if f.tenant == nil {
		return "unknown"
	}
	return nameOf(f.tenant)
}

func nodeClaim(tenant *Tenant, name string) *karpv1.NodeClaim {
	if index := slices.IndexFunc(tenant.NodeClaims, func(claim karpv1.NodeClaim) bool { return claim.Name == name }); index >= 0 {
		return &tenant.NodeClaims[index]
	}
	return nil
}
