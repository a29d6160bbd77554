// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeProfileSpec has the labels, annotations and taints of a profile's nodes. Every field may be left out.
type NodeProfileSpec struct {
	// DisplayName is what people call this profile.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`
	// Description is the purpose of the profile.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// NodeLabels are labels of the nodes. Running nodes follow each change.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 317 && size(self[key]) <= 63)",message="a key has at most 317 characters, and a value at most 63"
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('kubernetes.io/') && !key.startsWith('topology.kubernetes.io/') && !key.startsWith('beta.kubernetes.io/') && !key.startsWith('failure-domain.beta.kubernetes.io/') && key != 'node.kubernetes.io/instance-type')",message="the labels of kubernetes.io, topology.kubernetes.io and node.kubernetes.io/instance-type follow from the server: take them away"
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('karpenter.sh/') && !key.startsWith('karpenter.metal3.io/') && !key.matches('^(node-restriction[.]kubernetes[.]io/node-profile|vcluster[.]com/node-(profile|type))$'))",message="the labels of karpenter.sh and karpenter.metal3.io, and the labels of the node's type and profile, are written by the provider: take them away"
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// NodeAnnotations are annotations of the nodes. Running nodes follow a change, as for labels.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.map(key, size(key) + size(self[key])).sum() <= 65536",message="all keys and values have at most 65536 characters together"
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 317 && !key.startsWith('karpenter.sh/') && !key.startsWith('karpenter.metal3.io/') && !key.startsWith('node.alpha.kubernetes.io/') && !key.startsWith('volumes.kubernetes.io/') && !key.startsWith('csi.volume.kubernetes.io/') && !key.startsWith('kubeadm.alpha.kubernetes.io/'))",message="a key has at most 317 characters, and annotations of Kubernetes, kubeadm, karpenter.sh and karpenter.metal3.io are written by these: take them away"
	NodeAnnotations map[string]string `json:"nodeAnnotations,omitempty"`
	// Taints of the nodes. Running nodes follow a change, as for labels. Karpenter knows them before there is a node:
	// pods that do not tolerate them get no server of the profile.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(taint, !taint.key.startsWith('node.kubernetes.io/') && !taint.key.startsWith('node.cloudprovider.kubernetes.io/') && !taint.key.startsWith('karpenter.sh/') && !taint.key.startsWith('karpenter.metal3.io/'))",message="the taints of node.kubernetes.io, karpenter.sh and karpenter.metal3.io are put on and taken away by these: take them away"
	Taints []corev1.Taint `json:"taints,omitempty"`
	// StartupTaints are on a node when it registers, and are removed once it is Ready. A change reaches only nodes to
	// come. Taints whose key begins with readiness.k8s.io/ are left to the Node Readiness Controller.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(taint, !taint.key.startsWith('node.kubernetes.io/') && !taint.key.startsWith('node.cloudprovider.kubernetes.io/') && !taint.key.startsWith('karpenter.sh/') && !taint.key.startsWith('karpenter.metal3.io/'))",message="the taints of node.kubernetes.io, karpenter.sh and karpenter.metal3.io are put on and taken away by these: take them away"
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`
}

// NodeProfileStatus is empty: each tenant's provider puts the profile onto its own nodes. The annotation
// karpenter.metal3.io/node-profile-applied of a node has what was applied.
type NodeProfileStatus struct{}

// NodeProfile is a set of labels, annotations and taints that nodes share. A change applies to running nodes, and
// reinstalls none. Pools name it in profile, and Machines in profileRef. For nodes without either, a TenantCluster
// names it in privateNodes.defaultProfile or defaultNodeProfile.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=kmnp,categories=karpenter-metal3
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name is the value of a label of the nodes: it has at most 63 characters"
// +kubebuilder:printcolumn:name="Display Name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="Taints",type=string,JSONPath=`.spec.taints[*].key`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Description",type=string,priority=1,JSONPath=`.spec.description`
type NodeProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec NodeProfileSpec `json:"spec,omitempty"`
	// +optional
	Status NodeProfileStatus `json:"status,omitempty"`
}

// NodeProfileList is a list of NodeProfiles.
//
// +kubebuilder:object:root=true
type NodeProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeProfile `json:"items"`
}

// NodeProfileFor returns a node's profile: explicit, from its pool or Machine, or else the default; empty if none.
func (in *TenantCluster) NodeProfileFor(explicit string) string {
	byDefault := ""
	if in.Spec.PrivateNodes != nil {
		byDefault = in.Spec.PrivateNodes.DefaultProfile
	}
	return cmp.Or(explicit, byDefault, in.Spec.DefaultNodeProfile)
}

// AllowsNodeProfile reports whether nodes of the tenant may have a profile.
func (in *TenantCluster) AllowsNodeProfile(name string) bool {
	return in.Spec.AllowedNodeProfiles == nil || slices.ContainsFunc(*in.Spec.AllowedNodeProfiles, func(entry NameReference) bool {
		owner, all := strings.CutSuffix(entry.Name, ".*")
		return entry.Name == name || all && strings.HasPrefix(name, owner+".")
	})
}
