// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloudprovider implements Karpenter's CloudProvider with Machines: a NodeClaim becomes a Machine in the tenant's
// namespace of the management cluster, and the status of the Machine becomes that of the NodeClaim. It does not read
// BareMetalHosts.
package cloudprovider
