// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Sync says which objects of Dynamic Resource Allocation are in sync between the host, which is the management cluster,
// and the tenant. It is the block of the same name of a vcluster.yaml; what is not about Dynamic Resource Allocation has
// no place here. Everything is off by default.
type Sync struct {
	// FromHost flows from the host to the tenant.
	// +optional
	FromHost SyncFromHost `json:"fromHost,omitempty"`
	// ToHost flows from the tenant to the host.
	// +optional
	ToHost SyncToHost `json:"toHost,omitempty"`
}

// SyncFromHost is what flows from the host to the tenant.
type SyncFromHost struct {
	// DeviceClasses are the classes that the tenant may ask for. While they are not enabled, it may ask for none.
	// +optional
	DeviceClasses DeviceClassSync `json:"deviceClasses,omitempty"`
	// Nodes tells whether the tenant sees the host's Nodes under their names. Where it does not, the status of a claim
	// has pseudonyms in the place of pools and devices, and does not name nodes.
	// +optional
	Nodes SyncSwitch `json:"nodes,omitempty"`
}

// SyncToHost is what flows from the tenant to the host.
type SyncToHost struct {
	// ResourceClaims flow if every class that they name is allowed. Their status flows back.
	// +optional
	ResourceClaims SyncSwitch `json:"resourceClaims,omitempty"`
	// ResourceClaimTemplates flow if every class that they name is allowed. The claims that the host makes of them
	// flow back.
	// +optional
	ResourceClaimTemplates SyncSwitch `json:"resourceClaimTemplates,omitempty"`
}

// SyncSwitch turns the sync of one kind on.
type SyncSwitch struct {
	// Enabled turns it on.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
}

// DeviceClassSync says which DeviceClasses of the host exist in the tenant.
type DeviceClassSync struct {
	SyncSwitch `json:",inline"`
	// Selector selects DeviceClasses of the host by their labels. Unset or empty, it selects all of them. One that does
	// not parse selects nothing new and takes nothing away: the condition DRASynced says what is wrong with it.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Hidden are the parts of a DeviceClass that the tenant does not see. They work on the host all the same. A
	// vcluster.yaml does not have this field.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	Hidden []DeviceClassPart `json:"hidden,omitempty"`
}

// DeviceClassPart is a part of a DeviceClass that can be hidden from tenants.
// +kubebuilder:validation:Enum=Config;Selectors;Labels;Annotations
type DeviceClassPart string

// The parts of a DeviceClass that can be hidden.
const (
	// DeviceClassConfig is spec.config, the configuration for the driver, also where a claim's allocation repeats it.
	DeviceClassConfig DeviceClassPart = "Config"
	// DeviceClassSelectors is spec.selectors, the expressions that choose devices.
	DeviceClassSelectors DeviceClassPart = "Selectors"
	// DeviceClassLabels is metadata.labels.
	DeviceClassLabels DeviceClassPart = "Labels"
	// DeviceClassAnnotations is metadata.annotations.
	DeviceClassAnnotations DeviceClassPart = "Annotations"
)

// ConditionDRASynced is a condition of TenantClusters. It is true while the sync of Dynamic Resource Allocation works,
// and absent where it has never been enabled. Its message says what keeps it from working.
const ConditionDRASynced = "DRASynced"

// Reasons of ConditionDRASynced, besides ReasonSynced and ReasonInvalidSelector.
const (
	// ReasonSyncDisabled: nothing is enabled any more. What has been synced stays where it is.
	ReasonSyncDisabled = "SyncDisabled"
	// ReasonAPINotServed: the host or the tenant has no resource.k8s.io/v1.
	ReasonAPINotServed = "APINotServed"
	// ReasonSameCluster: the host and the tenant are one and the same cluster, and there is nothing to sync.
	ReasonSameCluster = "SameCluster"
	// ReasonNotStarted: a controller of the sync could not be started.
	ReasonNotStarted = "NotStarted"
	// ReasonInvalidName: names on the host end in the TenantCluster's name, and with this one they would not be valid.
	ReasonInvalidName = "InvalidName"
)

// Enabled tells whether anything is to be synced.
func (s *Sync) Enabled() bool {
	return s.FromHost.DeviceClasses.Enabled || s.ToHost.ResourceClaims.Enabled || s.ToHost.ResourceClaimTemplates.Enabled
}
