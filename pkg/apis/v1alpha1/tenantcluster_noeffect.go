// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import corev1 "k8s.io/api/core/v1"

// NoEffectPrivateNodes has the fields of a vcluster.yaml for what vCluster does on nodes.
type NoEffectPrivateNodes struct {
	// No effect: what vCluster runs and installs when a node joins. Use the property karpenter.metal3.io/user-data and the image.
	// +optional
	JoinNode *Opaque `json:"joinNode,omitempty"`
	// No effect: vCluster's program on nodes, such as its balancer of API servers. Servers reach spec.apiServerEndpoint.
	// +optional
	Daemon *Opaque `json:"daemon,omitempty"`
	// No effect: vCluster's VPN between nodes and control plane. Servers reach spec.apiServerEndpoint through their own network.
	// +optional
	VPN *Opaque `json:"vpn,omitempty"`
}

// NoEffectAutoUpgrade has the fields for vCluster's pods that upgrade nodes in place. Servers are reinstalled instead.
type NoEffectAutoUpgrade struct {
	// No effect: where kubeadm and kubelet are, for an upgrade in place.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	BinariesPath string `json:"binariesPath,omitempty"`
	// No effect: where the CNI plugins are, for an upgrade in place.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	CNIBinariesPath string `json:"cniBinariesPath,omitempty"`
	// No effect: how many nodes are upgraded in place at a time. The pools' budgets bound how many are reinstalled.
	// +optional
	Concurrency int32 `json:"concurrency,omitempty"`
	// No effect: the security context of the container of an upgrade in place.
	// +optional
	ContainerSecurityContext *Opaque `json:"containerSecurityContext,omitempty"`
	// No effect: the image of the pods of an upgrade in place.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
	// No effect: the pull policy of the image of an upgrade in place.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ImagePullPolicy string `json:"imagePullPolicy,omitempty"`
	// No effect: the nodes that are upgraded in place.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// No effect: the security context of the pods of an upgrade in place.
	// +optional
	PodSecurityContext *Opaque `json:"podSecurityContext,omitempty"`
}

// NoEffectSync has the field for changes of synced objects.
type NoEffectSync struct {
	// No effect: the patches of a vcluster.yaml. Synced objects keep these fields unchanged.
	// +optional
	// +listType=atomic
	Patches []SyncPatch `json:"patches,omitempty"`
}

// SyncPatch is a patch of a vcluster.yaml, with the fields that it has there.
// +kubebuilder:pruning:PreserveUnknownFields
type SyncPatch struct {
	// Path is the field that vCluster would change.
	Path string `json:"path"`
}

// NoEffectSyncToHost has the fields for objects that vCluster itself syncs to the host, by its own vcluster.yaml.
type NoEffectSyncToHost struct {
	// No effect: of vCluster's own sync.
	// +optional
	Pods *Opaque `json:"pods,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	Secrets *Opaque `json:"secrets,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	ConfigMaps *Opaque `json:"configMaps,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	Services *Opaque `json:"services,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	Endpoints *Opaque `json:"endpoints,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	EndpointSlices *Opaque `json:"endpointSlices,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	Ingresses *Opaque `json:"ingresses,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	GatewayAPI *Opaque `json:"gatewayApi,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	ServiceAccounts *Opaque `json:"serviceAccounts,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	PersistentVolumeClaims *Opaque `json:"persistentVolumeClaims,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	PersistentVolumes *Opaque `json:"persistentVolumes,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	VolumeSnapshots *Opaque `json:"volumeSnapshots,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	VolumeSnapshotContents *Opaque `json:"volumeSnapshotContents,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	StorageClasses *Opaque `json:"storageClasses,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	PodDisruptionBudgets *Opaque `json:"podDisruptionBudgets,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	PriorityClasses *Opaque `json:"priorityClasses,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	NetworkPolicies *Opaque `json:"networkPolicies,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	Namespaces *Opaque `json:"namespaces,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	CustomResources *Opaque `json:"customResources,omitempty"`
}

// NoEffectSyncFromHost has the fields for objects that vCluster itself syncs from the host, by its own vcluster.yaml.
type NoEffectSyncFromHost struct {
	// No effect: of vCluster's own sync.
	// +optional
	Events *Opaque `json:"events,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	IngressClasses *Opaque `json:"ingressClasses,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	GatewayClasses *Opaque `json:"gatewayClasses,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	Gateways *Opaque `json:"gateways,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	RuntimeClasses *Opaque `json:"runtimeClasses,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	PriorityClasses *Opaque `json:"priorityClasses,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	StorageClasses *Opaque `json:"storageClasses,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	VolumeSnapshotClasses *Opaque `json:"volumeSnapshotClasses,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	CSINodes *Opaque `json:"csiNodes,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	CSIDrivers *Opaque `json:"csiDrivers,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	CSIStorageCapacities *Opaque `json:"csiStorageCapacities,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	ConfigMaps *Opaque `json:"configMaps,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	Secrets *Opaque `json:"secrets,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	CustomResources *Opaque `json:"customResources,omitempty"`
}

// NoEffectNodeSync has the fields for the sync of nodes that only vCluster itself reads.
type NoEffectNodeSync struct {
	// No effect: of vCluster's own sync.
	// +optional
	SyncBackChanges bool `json:"syncBackChanges,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	ClearImageStatus bool `json:"clearImageStatus,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	Selector *Opaque `json:"selector,omitempty"`
	// No effect: of vCluster's own sync.
	// +optional
	// +listType=atomic
	Patches []SyncPatch `json:"patches,omitempty"`
}

// NoEffectNodesTemplate has a field of a pool that is refused, because a pool without it would have other servers.
type NoEffectNodesTemplate struct {
	// No effect: requirements are refused. Write them as entries of nodeTypeSelector.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="self.size() == 0",message="write requirements as entries of nodeTypeSelector: {property: KEY, operator: In, values: [VALUE]}"
	Requirements []corev1.NodeSelectorRequirement `json:"requirements,omitempty"`
}
