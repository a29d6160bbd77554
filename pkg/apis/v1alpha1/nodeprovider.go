// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeProviderSpec describes a fleet of servers and the hardware profiles in it.
//
// +kubebuilder:validation:XValidation:rule="has(self.metal3)",message="metal3 is required: the servers of a NodeProvider are BareMetalHosts; for terraform, bcm, kubeVirt and clusterAPI run the Karpenter provider of that infrastructure in the tenant's cluster beside this one"
type NodeProviderSpec struct {
	// DisplayName is what people call this provider.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`
	// Description of its purpose, for people to read.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// Properties apply to every NodeType of this provider. The more specific value wins (NodeProvider < NodeType <
	// MetalNodeClass < Machine).
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.matches('metal3[.].+/server-name$'))",message="karpenter.metal3.io/server-name pins one Machine to one server: set it on the Machine, not on a NodeProvider"
	Properties Properties `json:"properties,omitempty"`
	// ImageHosts are the hosts that this provider's servers may fetch images and checksums from: a name or an address,
	// with a port to allow only that port (images.example.com:8443). They bind all layers of properties, and OSImages.
	// Redirects of these hosts are followed. If it is empty, all hosts are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=260
	ImageHosts []string `json:"imageHosts,omitempty"`
	// Mirrors are where servers fetch packages and container images from, in place of the internet. docs/air-gap.md
	// lists everything that a fleet without the internet needs.
	// +optional
	Mirrors *Mirrors `json:"mirrors,omitempty"`
	// Metal3 says where the servers are and how they are grouped. It is required.
	// +optional
	Metal3 Metal3Fleet `json:"metal3"`
}

// Metal3Fleet is a set of BareMetalHosts and the hardware profiles that select among them.
type Metal3Fleet struct {
	// ClusterRef says where the BareMetalHosts are.
	ClusterRef Metal3ClusterRef `json:"clusterRef"`
	// UncleanedServers says who may have a server that may still have a tenant's data on its disks, because its
	// spec.automatedCleaningMode is disabled, or because the manager has not seen Metal3 clean it since. SameTenant,
	// the default: Machines of the namespace that had it last. AnyTenant: all Machines, so each tenant can read what
	// the one before left; for servers that all belong to one owner, or that are erased by other means.
	// +optional
	// +kubebuilder:default=SameTenant
	UncleanedServers UncleanedServersPolicy `json:"uncleanedServers,omitempty"`
	// Topology says what servers of a domain share. BareMetalHosts with the same value of a label are a domain of that
	// label. Unless listed here, nvlink-domain has sharedFabric: Forbidden and all other labels have Allowed.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=16
	Topology []TopologyKey `json:"topology,omitempty"`
	// NodeTypes are the hardware profiles. Each becomes a NodeType of that name, owned by this NodeProvider.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	NodeTypes []NodeTypeTemplate `json:"nodeTypes,omitempty"`
}

// TopologyKey is a label of BareMetalHosts, and what the servers of one of its domains share.
type TopologyKey struct {
	// Key of the label of the BareMetalHosts: nvlink-domain.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Key string `json:"key"`
	// SharedFabric says whether several tenants may have servers in one domain. Forbidden: a domain with a server of
	// one namespace is for that namespace only, until its last server there is released and clean. A quarantined server
	// counts for the namespace that had it. If NodeProviders of one namespace disagree, Forbidden wins.
	SharedFabric SharedFabricPolicy `json:"sharedFabric"`
}

// SharedFabricPolicy says whether servers of several tenants may be in one domain.
// +kubebuilder:validation:Enum=Forbidden;Allowed
type SharedFabricPolicy string

// Whether servers of several tenants may be in one domain.
const (
	// SharedFabricForbidden: all servers of a domain are for one namespace at a time.
	SharedFabricForbidden SharedFabricPolicy = "Forbidden"
	// SharedFabricAllowed: any tenant can get any server.
	SharedFabricAllowed SharedFabricPolicy = "Allowed"
)

// ExclusiveTopology returns the keys of the labels of BareMetalHosts whose domains are for one tenant each, sorted.
func (f *Metal3Fleet) ExclusiveTopology() []string {
	policies := map[string]SharedFabricPolicy{NVLinkDomainLabelKey: SharedFabricForbidden}
	for _, topology := range f.Topology {
		policies[topology.Key] = topology.SharedFabric
	}
	maps.DeleteFunc(policies, func(_ string, policy SharedFabricPolicy) bool { return policy != SharedFabricForbidden })
	return slices.Sorted(maps.Keys(policies))
}

// UncleanedServersPolicy says who may have a server that was not cleaned.
// +kubebuilder:validation:Enum=SameTenant;AnyTenant
type UncleanedServersPolicy string

// Who may have a server that was not cleaned.
const (
	// UncleanedServersSameTenant: Machines of the namespace that had it last.
	UncleanedServersSameTenant UncleanedServersPolicy = "SameTenant"
	// UncleanedServersAnyTenant: all Machines.
	UncleanedServersAnyTenant UncleanedServersPolicy = "AnyTenant"
)

// Metal3ClusterRef says where BareMetalHosts are.
type Metal3ClusterRef struct {
	// Namespace of the BareMetalHosts in the management cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
}

// NodeTypeTemplate is a NodeType inside a NodeProvider.
type NodeTypeTemplate struct {
	// Name of the NodeType, unique across all NodeProviders, and the value of the label
	// node.kubernetes.io/instance-type of its nodes.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
	// Metadata of the NodeType.
	// +optional
	Metadata        *NodeTypeMetadata `json:"metadata,omitempty"`
	HardwareProfile `json:",inline"`
}

// NodeProviderStatus is the state of the provider's NodeTypes.
type NodeProviderStatus struct {
	// ObservedGeneration is the generation that the conditions describe. -1 until a controller has seen the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// NodeTypes is the number of NodeTypes that this provider owns.
	// +optional
	NodeTypes int32 `json:"nodeTypes"`
	// Conditions: Synced, and Ready, which follows from it; Stalled while it is not ready. FabricsSeparate, once
	// tenants have shared a fabric that must not be shared.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeProvider is a fleet of bare-metal servers that Metal3 manages, with its hardware profiles.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=kmp,categories=karpenter-metal3
// +kubebuilder:printcolumn:name="Display Name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="Hosts In",type=string,JSONPath=`.spec.metal3.clusterRef.namespace`
// +kubebuilder:printcolumn:name="Types",type=integer,JSONPath=`.status.nodeTypes`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type NodeProvider struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NodeProviderSpec `json:"spec"`
	// +kubebuilder:default:={"observedGeneration":-1}
	Status NodeProviderStatus `json:"status,omitempty"`
}

// NodeProviderList is a list of NodeProviders.
//
// +kubebuilder:object:root=true
type NodeProviderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeProvider `json:"items"`
}

// Makes reports whether the NodeProvider lists a NodeType and owns it. The owner alone does not count: an author of a
// NodeType could add an owner reference to the NodeProvider, which would count until the manager deletes it.
func (in *NodeProvider) Makes(nodeType *NodeType) bool {
	return nodeType.Spec.ProviderRef.Name == in.Name && metav1.IsControlledBy(nodeType, in) &&
		slices.ContainsFunc(in.Spec.Metal3.NodeTypes, func(template NodeTypeTemplate) bool { return template.Name == nodeType.Name })
}

// Maker returns the name of the NodeProvider, if it is not nil and makes a NodeType, else "", for TenantCluster.Allows.
func (in *NodeProvider) Maker(nodeType *NodeType) string {
	if in == nil || !in.Makes(nodeType) {
		return ""
	}
	return in.Name
}

// MadeBy returns the name of the NodeProvider that has made the NodeType, empty if the type was made by hand. It is for
// callers without the NodeProvider: the manager, which gives servers away, asks Makes.
func (in *NodeType) MadeBy() string {
	owner := metav1.GetControllerOf(in)
	if owner == nil || owner.APIVersion != GroupVersion.String() || owner.Kind != "NodeProvider" || owner.Name != in.Spec.ProviderRef.Name {
		return ""
	}
	return owner.Name
}
