// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package instancetypes knows what Karpenter makes of a NodeType: an instance type with its requirements, capacity and
// offerings. It has no client: NodeTypes are put into a Catalog, and instance types are taken out.
package instancetypes
