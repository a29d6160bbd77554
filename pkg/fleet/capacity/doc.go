// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacity reads the hardware profile of a NodeType: its allocatable resources, its accelerators, and the selector
// of its BareMetalHosts.
package capacity
