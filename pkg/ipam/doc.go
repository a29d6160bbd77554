// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ipam knows the addresses of Machines: which ones a pool holds, which are taken, and by whom.
//
// All pools of a network share one space of addresses. The network is the one that a tenant's servers are moved into;
// tenants without one share that of the servers that are not moved. An address that is taken is an IPAddress, a
// cluster-scoped object named for the network and the address, so that the API server itself sees to it that nobody has
// one twice, however many managers are running and however old what they have read is. What is remembered besides,
// addresses that are promised to Machines and not taken yet, only keeps servers from being claimed in vain.
//
// The package knows Machines by reference only, and nothing of properties, networks or BareMetalHosts but the
// annotations that a DHCP server reads off them.
package ipam
