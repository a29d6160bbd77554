// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ipam holds the addresses of Machines: which ones a pool has, which are free, and what a DHCP server is told.
//
// All pools of a network share one space of addresses. The network is the one that a tenant's servers are moved into;
// tenants without one share that of the servers that are not moved. An address that is taken is an IPAddress, a
// cluster-scoped object named for the network and the address.
//
// The package needs no client. It knows Machines by reference only, and nothing of properties, networks or
// BareMetalHosts but the annotations that a DHCP server reads off them.
package ipam
