// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloudprovider is Karpenter's CloudProvider on Machines: what Karpenter wants becomes a Machine in the
// tenant's namespace of the management cluster, and what became of the Machine is told to Karpenter. It knows nothing
// of BareMetalHosts.
package cloudprovider
