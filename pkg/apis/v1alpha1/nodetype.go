// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HardwareProfile is a kind of server: its resources, its cost, and the selector of its hosts.
type HardwareProfile struct {
	// DisplayName is what people call this type.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`
	// Description of its purpose, for people to read.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// Zone is the value of topology.kubernetes.io/zone for all servers of this type. If unset, it is the value of the
	// host's datacenter label, or "global" for a host without one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// Resources are the capacity of one server: cpu in cores, memory in bytes, and accelerators by the name that their
	// device plugin advertises (nvidia.com/gpu). A server that Metal3 has inspected and found smaller is not claimed:
	// with fewer cpus (threads), with more than 3 % or 1 GiB less memory, whichever is more, or with less disk than
	// ephemeral-storage. What inspection does not find, such as accelerators, is not compared. If cpu or memory is left
	// out, it is the least that Metal3 has found in the servers of the type, and a server that Metal3 has not inspected
	// is not claimed. Accelerators that are left out are not there for pods that request them.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, type(self[k]) == int ? self[k] > 0 : (!self[k].startsWith('-') && (!self[k].startsWith('0') || ['0.', '00', '01', '02', '03', '04', '05', '06', '07', '08', '09'].exists(p, self[k].startsWith(p)))))",message="every resource must be greater than zero: leave out what a server does not have"
	//
	// (The type is spelled out because the schema of corev1.ResourceList cannot be given a greatest size, without
	// which the API server takes the rules above for too expensive. It is assignable to one.)
	Resources map[corev1.ResourceName]resource.Quantity `json:"resources,omitempty"`
	// Overhead is the part of the resources that is not for pods.
	// +optional
	Overhead *NodeTypeOverhead `json:"overhead,omitempty"`
	// Cost of one server, relative to other types and without a unit. The cheapest type that fits is chosen. If unset:
	// 10 per cpu core, 2 per GiB of memory, 10000 per accelerator.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000
	Cost *int64 `json:"cost,omitempty"`
	// MaxCapacity is the greatest number of servers of this type that may be claimed at a time. If unset, all may be.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxCapacity *int32 `json:"maxCapacity,omitempty"`
	// Properties of this type. They win over the properties of the NodeProvider.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.matches('metal3[.].+/server-name$'))",message="karpenter.metal3.io/server-name pins one Machine to one server: set it on the Machine, not on a NodeType"
	Properties Properties `json:"properties,omitempty"`
	// ProvisioningDeadline is how long a Machine of this type may make no progress, from the claim until its node has
	// registered, before it is given up: a duration such as 90m. Default 60m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="provisioningDeadline must be greater than zero, for example 60m"
	ProvisioningDeadline *metav1.Duration `json:"provisioningDeadline,omitempty"`
	// OnError decides what happens to a Machine when Metal3 reports an error of its server: Hold keeps it for
	// inspection, Replace gives the claim up and quarantines the server. It applies until the node has joined: later
	// errors are only reported. Default Hold.
	// +optional
	OnError OnErrorPolicy `json:"onError,omitempty"`
	// Devices that DRA drivers publish for each server of this type.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Devices []NodeTypeDevice `json:"devices,omitempty"`
	// BareMetalHosts selects the servers of this type. If it is left out, the type has none, or all if the annotation
	// karpenter.metal3.io/select-all-hosts of the NodeProvider, or of a NodeType that was made by hand, names it.
	// +optional
	BareMetalHosts *HostSelection `json:"bareMetalHosts,omitempty"`
}

// HostSelection selects BareMetalHosts.
type HostSelection struct {
	// Selector over the labels of the BareMetalHosts. An empty selector matches every host of the provider. A missing
	// selector counts as missing bareMetalHosts.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// NodeTypeOverhead is the part of a server's resources that is not for pods.
type NodeTypeOverhead struct {
	// KubeReserved is set aside for kubelet and the container runtime (kubelet's --kube-reserved).
	// +optional
	KubeReserved corev1.ResourceList `json:"kubeReserved,omitempty"`
}

// NodeTypeSpec is the desired state of a NodeType.
type NodeTypeSpec struct {
	// ProviderRef names the NodeProvider that the hosts and the inherited properties come from.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="providerRef is immutable: delete the NodeType and create it again"
	ProviderRef     NameReference `json:"providerRef"`
	HardwareProfile `json:",inline"`
}

// Capacity counts hosts.
type Capacity struct {
	// Total is the number of hosts that match the selector.
	Total int32 `json:"total"`
	// Claimed is the number of these hosts that have a consumer, of any kind.
	Claimed int32 `json:"claimed"`
	// Available is the number of these hosts that can be claimed now and are as big as resources says.
	Available int32 `json:"available"`
	// Error is the number of these hosts that have no consumer, and that Metal3 reports an error for.
	Error int32 `json:"error"`
	// Quarantined is the number of these hosts with a quarantine annotation and no consumer. They wait for an operator.
	// +optional
	Quarantined int32 `json:"quarantined,omitempty"`
	// Maintenance is the number of these hosts with a maintenance annotation and no consumer. They wait for a person.
	// +optional
	Maintenance int32 `json:"maintenance,omitempty"`
	// TooSmall is the number of these hosts that have less than resources says. They are not claimed; the condition
	// HardwareFits names the first of them.
	// +optional
	TooSmall int32 `json:"tooSmall,omitempty"`
	// NotCleaned is the number of these hosts that could be claimed if data of a tenant were not still on their disks.
	// They are not available, although Machines of that tenant may get them.
	// +optional
	NotCleaned int32 `json:"notCleaned,omitempty"`
}

// ZoneCapacity counts the hosts of one zone.
type ZoneCapacity struct {
	// Name of the zone, the value of topology.kubernetes.io/zone.
	Name     string `json:"name"`
	Capacity `json:",inline"`
}

// NodeTypeRequirement is a label of the servers of a type, with all its values.
type NodeTypeRequirement struct {
	// Key of the label.
	Key string `json:"key"`
	// Values of the label on servers of this type, sorted. Hosts in use count too. Empty if a node can have any value.
	// +listType=atomic
	Values []string `json:"values"`
}

// NodeTypeStatus is the observed state of a NodeType.
type NodeTypeStatus struct {
	// ObservedGeneration is the generation that the conditions describe. -1 until a controller has seen the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Cost in effect: spec.cost, or the computed one.
	// +optional
	Cost int64 `json:"cost"`
	// Accelerators in one server, for people to read: "nvidia.com/gpu=8".
	// +optional
	Accelerators string `json:"accelerators,omitempty"`
	// FoundAccelerators are signs of accelerators in the servers of a type that names no resources and no devices:
	// labels of its BareMetalHosts, such as gpu-model=a100. Karpenter plans no pods for this type: it is not for pods
	// without accelerators, and nobody has said how many accelerators it has for the others.
	// +optional
	// +listType=atomic
	FoundAccelerators []string `json:"foundAccelerators,omitempty"`
	// Resources of one server: spec.resources, and for cpu and memory that it leaves out, the least that Metal3 has
	// found in the servers of the type. Both are missing until Metal3 has inspected a server.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// Capacity of the whole type.
	// +optional
	Capacity Capacity `json:"capacity"`
	// CountedUntil is the number of the last claim that the counts include (status.claimNumber of a Machine). The
	// counts also include all earlier claims that concern this type.
	// +optional
	CountedUntil int64 `json:"countedUntil,omitempty"`
	// Zones is the capacity by zone.
	// +optional
	// +listType=map
	// +listMapKey=name
	Zones []ZoneCapacity `json:"zones,omitempty"`
	// Domains is the capacity by zone and topology labels. It is empty if there are more than 1000: the condition
	// Synced then has a message.
	// +optional
	// +listType=atomic
	Domains []DomainCapacity `json:"domains,omitempty"`
	// EphemeralStorage is the disk to plan with for nodes of this type if resources does not say: what fits on the
	// smallest disk found in its servers, or the manager's --ephemeral-storage if Metal3 has inspected none.
	// +optional
	EphemeralStorage *resource.Quantity `json:"ephemeralStorage,omitempty"`
	// Provisioning is how long it takes to provision servers of this type. Unset until the first has joined.
	// +optional
	Provisioning *ProvisioningEstimate `json:"provisioning,omitempty"`
	// Requirements are what tenants can select on: labels of the type, its properties, and the topology labels of its
	// hosts.
	// +optional
	// +listType=atomic
	Requirements []NodeTypeRequirement `json:"requirements,omitempty"`
	// Conditions: Synced, HasCapacity, HardwareFits, and Ready, which follows from Synced alone: a type without a free
	// server is ready. Reconciling or Stalled while it is not ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeType is a hardware profile. NodeProviders make them; its name is the instance type that Karpenter sees.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=kmt,categories=karpenter-metal3
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name is the value of a label of the nodes: it has at most 63 characters"
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.providerRef.name`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.status.resources.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.status.resources.memory`
// +kubebuilder:printcolumn:name="Accelerators",type=string,JSONPath=`.status.accelerators`
// +kubebuilder:printcolumn:name="Cost",type=integer,JSONPath=`.status.cost`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.capacity.total`
// +kubebuilder:printcolumn:name="Claimed",type=integer,JSONPath=`.status.capacity.claimed`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.capacity.available`
// +kubebuilder:printcolumn:name="Error",type=integer,JSONPath=`.status.capacity.error`
// +kubebuilder:printcolumn:name="Quarantined",type=integer,priority=1,JSONPath=`.status.capacity.quarantined`
// +kubebuilder:printcolumn:name="Too-Small",type=integer,priority=1,JSONPath=`.status.capacity.tooSmall`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="HasCapacity")].message`
type NodeType struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NodeTypeSpec `json:"spec"`
	// +kubebuilder:default:={"observedGeneration":-1}
	Status NodeTypeStatus `json:"status,omitempty"`
}

// NodeTypeList is a list of NodeTypes.
//
// +kubebuilder:object:root=true
type NodeTypeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeType `json:"items"`
}

// DomainCapacity counts the hosts of a type that have the same zone and the same topology labels, and that match the
// same types. The maxCapacity of the type limits each count on its own.
type DomainCapacity struct {
	// Zone of the hosts, the value of topology.kubernetes.io/zone.
	Zone string `json:"zone"`
	// Labels are the topology labels of the hosts (rack, nvlink-domain and datacenter by default; a flag of the manager
	// changes the list). A label that the hosts do not have is left out.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// SharedWith names the other NodeTypes that these hosts match, sorted. A host is available in each of the types
	// until it is claimed as one of them.
	// +optional
	// +listType=atomic
	SharedWith []string `json:"sharedWith,omitempty"`
	// Held are the keys of the labels, sorted, whose domains are for one tenant only now: its servers are there, and
	// the NodeProvider forbids a shared fabric. Other tenants get none of these hosts, even if they are available.
	// +optional
	// +listType=atomic
	Held     []string `json:"held,omitempty"`
	Capacity `json:",inline"`
}

// KubeReserved returns the type's overhead as the value of kubelet's flag --kube-reserved, in a stable order; empty if
// there is none.
func (in *NodeType) KubeReserved() string {
	if in.Spec.Overhead == nil {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(in.Spec.Overhead.KubeReserved)) {
		quantity := in.Spec.Overhead.KubeReserved[name]
		parts = append(parts, string(name)+"="+quantity.String())
	}
	return strings.Join(parts, ",")
}

// LeftOut returns cpu and memory if the profile does not name them. Inspection says how much there is.
func (p *HardwareProfile) LeftOut() []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, named := p.Resources[name]; !named {
			names = append(names, name)
		}
	}
	return names
}

// NamesNothing reports whether the profile has neither resources nor devices of a server.
func (p *HardwareProfile) NamesNothing() bool { return len(p.Resources) == 0 && len(p.Devices) == 0 }

// Undeclared returns the accelerators in servers of a type whose spec names nothing. Metal3's inspection reports none.
func (in *NodeType) Undeclared() []string {
	if !in.Spec.NamesNothing() {
		return nil
	}
	return in.Status.FoundAccelerators
}

// EffectiveResources returns the resources of one server from the spec. If the spec leaves out cpu or memory, they come
// from the status, which has neither until Metal3 has inspected a server. The caller owns the result.
func (in *NodeType) EffectiveResources() corev1.ResourceList {
	resources := corev1.ResourceList{}
	for name, quantity := range in.Spec.Resources {
		resources[name] = quantity.DeepCopy()
	}
	for _, name := range in.Spec.LeftOut() {
		if found, known := in.Status.Resources[name]; known {
			resources[name] = found.DeepCopy()
		}
	}
	return resources
}

// HostSelector returns the selector of the servers of a type. The object is the NodeType itself, or the NodeProvider
// that has the profile. The selector is nil if it is left out, and empty if the object says that all servers are meant.
func (p *HardwareProfile) HostSelector(object metav1.Object, name string) *metav1.LabelSelector {
	if p.BareMetalHosts != nil && p.BareMetalHosts.Selector != nil {
		return p.BareMetalHosts.Selector
	}
	if SelectsAllHosts(object, name) {
		return &metav1.LabelSelector{}
	}
	return nil
}

// SelectsAllHosts reports whether the annotation of an object gives all servers to a type that selects nothing.
func SelectsAllHosts(object metav1.Object, name string) bool {
	named := strings.Split(object.GetAnnotations()[SelectAllHostsAnnotationKey], ",")
	return slices.ContainsFunc(named, func(entry string) bool { return strings.TrimSpace(entry) == name })
}

// NodeTypeMetadata has labels and annotations of a NodeType, not of its nodes. Keys in the domains karpenter.metal3.io,
// kubernetes.io and k8s.io are not applied: they have a meaning for the manager, the webhook or kubectl.
type NodeTypeMetadata struct {
	// Labels of the NodeType.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the NodeType.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// IsReservedMetadata reports whether a key has a meaning for other programs, so that NodeProviders do not write it.
func IsReservedMetadata(key string) bool { return InDomain(key, Group, "kubernetes.io", "k8s.io") }

// InDomain reports whether the key of a label or an annotation is in one of the domains, or in a subdomain.
func InDomain(key string, domains ...string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	return qualified && slices.ContainsFunc(domains, func(parent string) bool {
		return domain == parent || strings.HasSuffix(domain, "."+parent)
	})
}
