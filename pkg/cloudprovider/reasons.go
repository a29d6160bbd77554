// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

// Reasons of events and of the Launched condition of NodeClaims.
const (
	// reasonServerClaimed: the NodeClaim has its server. An event only.
	reasonServerClaimed = "ServerClaimed"
	// reasonServerRefused: the manager will not give a server to this NodeClaim, whatever is free. An event only.
	reasonServerRefused = "ServerRefused"
	// reasonNodeClassUnknown: nobody has looked at the MetalNodeClass yet.
	reasonNodeClassUnknown = "NodeClassReadinessUnknown"
	// reasonManagementUnavailable: the management cluster did not answer, or answered with an error.
	reasonManagementUnavailable = "ManagementClusterUnavailable"
	// reasonInvalidMachine: the management cluster does not accept the Machine.
	reasonInvalidMachine = "InvalidMachine"
	// reasonWaitingForManager: the manager has not answered in time.
	reasonWaitingForManager = "WaitingForManager"
	// reasonMachineDeleted: somebody deletes the Machine while its server is being claimed.
	reasonMachineDeleted = "MachineDeleted"
	// reasonNameTaken: a Machine of that name belongs to somebody else.
	reasonNameTaken = "MachineNameTaken"
	// reasonNodePoolUnavailable: the NodePool cannot be read.
	reasonNodePoolUnavailable = "NodePoolUnavailable"
	// reasonUnknownType: the manager chose a NodeType that this provider does not see.
	reasonUnknownType = "UnknownNodeType"
)
