// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of TenantCluster.
const (
	// ConditionPoolsSynced is true when the tenant has the pools that privateNodes.autoNodes call for. Written by the
	// provider.
	ConditionPoolsSynced = "PoolsSynced"
	// ConditionServersReturned tells, while the TenantCluster is being deleted, how far its servers are on their way
	// back. Written by the manager.
	ConditionServersReturned = "ServersReturned"
)

// Reasons of conditions of TenantCluster, and of Machines of tenants.
const (
	// ReasonInvalidPools: a pool of autoNodes cannot be made as it is written.
	ReasonInvalidPools = "InvalidPools"
	// ReasonReplacingPools: a pool is made anew, and the one that has its name is being deleted still.
	ReasonReplacingPools = "ReplacingPools"
	// ReasonTenantDeleting: the TenantCluster is being deleted.
	ReasonTenantDeleting = "TenantDeleting"
	// ReasonReturningServers: the tenant's Machines are being deleted.
	ReasonReturningServers = "ReturningServers"
	// ReasonQuotaExceeded: the tenant has all the servers or accelerators that it may have.
	ReasonQuotaExceeded = "QuotaExceeded"
)
