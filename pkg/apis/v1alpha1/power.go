// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Values of RebootAnnotationKey.
const (
	RebootHard = "hard"
	RebootSoft = "soft"
)

// PowerState of a server.
// +kubebuilder:validation:Enum=On;Off
type PowerState string

const (
	// PowerOn is a server that has power.
	PowerOn PowerState = "On"
	// PowerOff is a server that has none.
	PowerOff PowerState = "Off"
)

// MachinePower says whether a server is to have power.
type MachinePower struct {
	// State that the server is to have once its image is installed, On or Off. Installing takes power, so a Machine
	// that is Off from the start is installed first and then switched off.
	State PowerState `json:"state"`
}

// MachinePowerStatus is what Metal3 says of the power of a server.
type MachinePowerStatus struct {
	// State that Metal3 has seen last, On or Off.
	// +optional
	State PowerState `json:"state,omitempty"`
	// LastReboot is when Metal3 was last told to reboot the server because of the annotation
	// karpenter.metal3.io/reboot.
	// +optional
	LastReboot *metav1.Time `json:"lastReboot,omitempty"`
}
