// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OnErrorPolicy decides what happens to a Machine when Metal3 reports an error of its server.
// +kubebuilder:validation:Enum=Hold;Replace
type OnErrorPolicy string

const (
	// OnErrorHold keeps the Machine, in error, for inspection.
	OnErrorHold OnErrorPolicy = "Hold"
	// OnErrorReplace gives the claim up and quarantines the server.
	OnErrorReplace OnErrorPolicy = "Replace"
)

// MachineStage is a part of the way from the claim to the node that shows from outside. A Machine reaches each at most
// once.
// +kubebuilder:validation:Enum=Network;UserData;Waiting;Preparing;Writing;Booting;Provisioned;Joined
type MachineStage string

// Stages, in the order in which a Machine reaches them.
const (
	// StageNetwork: the server moves into the network of the tenant.
	StageNetwork MachineStage = "Network"
	// StageUserData: user data is being prepared.
	StageUserData MachineStage = "UserData"
	// StageWaiting: Metal3 has not started on the server.
	StageWaiting MachineStage = "Waiting"
	// StagePreparing: Metal3 prepares the server.
	StagePreparing MachineStage = "Preparing"
	// StageWriting: Metal3 writes the image.
	StageWriting MachineStage = "Writing"
	// StageBooting: the server boots, and its node has not registered.
	StageBooting MachineStage = "Booting"
	// StageProvisioned: the image is installed. It is the last stage of a Machine without a tenant.
	StageProvisioned MachineStage = "Provisioned"
	// StageJoined: the node has registered. It is the last stage of a tenant's Machine.
	StageJoined MachineStage = "Joined"
)

// MachineProgress is the progress of a Machine from its claim to its node.
type MachineProgress struct {
	// Step that the Machine is at, counted from 1.
	Step int32 `json:"step"`
	// Steps that there are on the way.
	Steps int32 `json:"steps"`
	// Stage that the Machine has reached: a step, or a part of one.
	// +optional
	Stage MachineStage `json:"stage,omitempty"`
	// Description of the stage, for people to read: "writing image".
	Description string `json:"description"`
	// StartTime is when the server was claimed.
	StartTime metav1.Time `json:"startTime"`
	// LastProgressTime is when a step, or a part of one, was last seen to begin, or when the Machine was last taken up
	// again after it had been suspended. The NodeType's provisioningDeadline counts from here.
	LastProgressTime metav1.Time `json:"lastProgressTime"`
	// Suspended is true while the deadline does not count, because no progress is possible: Metal3 reports an error and
	// onError of the NodeType is Hold, the host is paused or detached, or the server is switched off by its spec.
	// +optional
	Suspended bool `json:"suspended,omitempty"`
	// Interrupted is true once the Machine was suspended. Its duration is then not used for estimates.
	// +optional
	Interrupted bool `json:"interrupted,omitempty"`
	// ExpectedReadyTime is when Machines of this type usually have joined. Unset while none has, ever.
	// +optional
	ExpectedReadyTime *metav1.Time `json:"expectedReadyTime,omitempty"`
}

// ProvisioningEstimate is how long servers of a type take from the claim to the node, learned from those that did.
type ProvisioningEstimate struct {
	// TypicalSeconds from the claim to the node.
	TypicalSeconds int64 `json:"typicalSeconds"`
	// Samples is the number of Machines that the estimate is made from, the latest counting most.
	Samples int64 `json:"samples"`
	// CountedUntil is the time up to which Machines that have joined are in the estimate. It is what keeps one from
	// being counted twice.
	// +optional
	CountedUntil metav1.Time `json:"countedUntil,omitempty"`
}

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
