// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// NoEffectMetal3Fleet has the fields for deployments and connections of the reference. A manager makes neither.
type NoEffectMetal3Fleet struct {
	// No effect: metal3, dhcp and multus, which the reference deploys. docs/metal3.md says how to install Metal3.
	// +optional
	Deploy *Opaque `json:"deploy,omitempty"`
	// No effect: OpenStack's network service in the reference. docs/network.md says how servers are moved into a network.
	// +optional
	NeutronEnabled bool `json:"neutronEnabled,omitempty"`
	// No effect: the network controller of that name in the reference. docs/network.md says how servers are moved into a network.
	// +optional
	Netris *Opaque `json:"netris,omitempty"`
}

// NoEffectClusterRef has the field about the cluster of the BareMetalHosts.
type NoEffectClusterRef struct {
	// No effect: the cluster of the BareMetalHosts in the reference. A manager serves the hosts of its own cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster,omitempty"`
}

// NoEffectNodeTypeTemplate has the field for the NodeProvider of a type: it is always the provider that lists it.
type NoEffectNodeTypeTemplate struct {
	// No effect: the name of this NodeProvider. A NodeType belongs to the NodeProvider that lists it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ProviderRef string `json:"providerRef,omitempty"`
}

// NoEffectNodeProvider has the kinds of infrastructure that the reference has besides Metal3.
type NoEffectNodeProvider struct {
	// No effect: servers that Terraform makes, in the reference.
	// +optional
	Terraform *Opaque `json:"terraform,omitempty"`
	// No effect: servers of NVIDIA Base Command Manager, in the reference.
	// +optional
	BCM *Opaque `json:"bcm,omitempty"`
	// No effect: virtual machines of KubeVirt, in the reference.
	// +optional
	KubeVirt *Opaque `json:"kubeVirt,omitempty"`
	// No effect: machines of Cluster API, in the reference.
	// +optional
	ClusterAPI *Opaque `json:"clusterAPI,omitempty"`
}
