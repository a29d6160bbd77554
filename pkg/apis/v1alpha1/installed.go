// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// InstalledField is one of the things that shaped an installed machine: a property, or the text of what one refers to.
// What an OSImage holds is not among them: only which one it is.
type InstalledField struct {
	// Field is the key of a property, spec.overhead.kubeReserved of the NodeType, or the kind, name and field of an
	// object that was written into the user data or network data.
	Field string `json:"field"`
	// Value that was installed, fit to be shown. Empty for documents, which may hold secrets.
	// +optional
	Value string `json:"value,omitempty"`
	// Digest of the whole value, by which a change is found.
	Digest string `json:"digest"`
}

// Reasons of the condition Drifted of a Machine. Karpenter has them as the reason of Drifted on the NodeClaim too.
const (
	// ReasonUpToDate: a Machine made now would be installed in the same way.
	ReasonUpToDate = "UpToDate"
	// ReasonNodeTypeChanged: what the NodeType sets aside for kubelet is another than when the machine was installed.
	ReasonNodeTypeChanged = "NodeTypeChanged"
	// ReasonOSImageChanged: another image is to be installed.
	ReasonOSImageChanged = "OSImageChanged"
	// ReasonUserDataChanged: the user data, its template or the SSH keys in it have changed.
	ReasonUserDataChanged = "UserDataChanged"
	// ReasonNetworkChanged: the network, or the network data or its template, has changed.
	ReasonNetworkChanged = "NetworkChanged"
	// ReasonNodeClassChanged: the MetalNodeClass has other properties than the Machine was made with, or is for another
	// NodeProvider. On the NodeClaim only: the manager sees no tenant.
	ReasonNodeClassChanged = "NodeClassChanged"
	// ReasonKubeletArgsChanged: the MetalNodeClass has other kubeletArgs than the node was started with. On the NodeClaim
	// only.
	ReasonKubeletArgsChanged = "KubeletArgsChanged"
)
