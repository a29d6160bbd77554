// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Server describes a server of the rack.
type Server struct {
	// Name of the server: that of its BareMetalHost.
	Name string
	// Architecture as in kubernetes.io/arch; amd64 if empty.
	Architecture string
	// Capacity of its hardware, in the units of a Node's status: cpu in cores, memory in bytes, accelerators by their
	// resource name. pods is 110, kubelet's own default, unless given.
	Capacity corev1.ResourceList
	// Devices that DRA drivers publish on it, once its Node has registered.
	Devices []v1alpha1.NodeTypeDevice
}

// State is what a server is doing.
type State string

const (
	// Off is a server without power, or with power and nothing installed on it.
	Off State = "Off"
	// Booting is a server that reads its config drive.
	Booting State = "Booting"
	// Joining is a server that tries to join the cluster that its user data names.
	Joining State = "Joining"
	// Registered: the Node of the server exists and reports its hardware.
	Registered State = "Registered"
	// Failed is a server that gave up. It does nothing until it is switched off.
	Failed State = "Failed"
)

// Status is the state of a server, and the reason.
type Status struct {
	Server string
	State  State
	// Reason is the last error, as one sentence; empty if there was none. It has no secrets.
	Reason string
	// NodeName is the name of the server's Node. Empty before the user data is read.
	NodeName string
	// Since is when State was entered.
	Since time.Time
}
