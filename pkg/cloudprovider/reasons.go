// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

// Reasons of events and of the Launched condition of NodeClaims.
const (
	// reasonServerClaimed: the NodeClaim has its server. An event only.
	reasonServerClaimed = "ServerClaimed"
	// reasonServerRefused: no server is given to this NodeClaim, whatever is free; or this NodePool is not offered a type that was
	// refused to it. An event only.
	reasonServerRefused = "ServerRefused"
	// reasonNodeClassUnknown: the MetalNodeClass has not been reconciled yet.
	reasonNodeClassUnknown = "NodeClassReadinessUnknown"
	// reasonManagementUnavailable: a request to the management cluster failed.
	reasonManagementUnavailable = "ManagementClusterUnavailable"
	// reasonInvalidMachine: the management cluster does not accept the Machine.
	reasonInvalidMachine = "InvalidMachine"
	// reasonWaitingForManager: the manager has not decided in time.
	reasonWaitingForManager = "WaitingForManager"
	// reasonMachineDeleted: the Machine was deleted while its server was being claimed.
	reasonMachineDeleted = "MachineDeleted"
	// reasonNameTaken: a Machine of that name belongs to another NodeClaim.
	reasonNameTaken = "MachineNameTaken"
	// reasonNodePoolUnavailable: the NodePool cannot be read.
	reasonNodePoolUnavailable = "NodePoolUnavailable"
	// reasonUnknownType: the manager chose a NodeType that this provider does not see.
	reasonUnknownType = "UnknownNodeType"
)
