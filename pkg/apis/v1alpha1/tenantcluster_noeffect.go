// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// NoEffectPrivateNodes has the fields of a vcluster.yaml about what vCluster does on nodes.
type NoEffectPrivateNodes struct {
	// No effect: what vCluster runs and installs when a node joins. Use the property vcluster.com/user-data and the image.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:pruning:PreserveUnknownFields
	JoinNode *Opaque `json:"joinNode,omitempty"`
	// No effect: vCluster's configuration of kubelets. Use kubeletArgs of a MetalNodeClass, or the image.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:pruning:PreserveUnknownFields
	Kubelet *Opaque `json:"kubelet,omitempty"`
	// No effect: vCluster's VPN between nodes and control plane. Servers reach spec.apiServerEndpoint through their own network.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:pruning:PreserveUnknownFields
	VPN *Opaque `json:"vpn,omitempty"`
}

// NoEffectAutoUpgrade has the fields about the pods by which vCluster upgrades nodes in place. Here, servers are installed again.
type NoEffectAutoUpgrade struct {
	// No effect: where kubeadm and kubelet are, for an upgrade in place.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	BinariesPath string `json:"binariesPath,omitempty"`
	// No effect: where the CNI plugins are, for an upgrade in place.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	CNIBinariesPath string `json:"cniBinariesPath,omitempty"`
	// No effect: how many nodes are upgraded in place at a time. The budgets of the pools bound how many servers are installed again.
	// +optional
	Concurrency int32 `json:"concurrency,omitempty"`
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
}

// NoEffectSync has the field about changes of what is synced.
type NoEffectSync struct {
	// No effect: the patches of a vcluster.yaml. What is synced has these fields unchanged.
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
