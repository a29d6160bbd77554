// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package instancetypes converts NodeTypes to Karpenter's instance types, with their requirements, capacity and offerings.
// It has no client: NodeTypes are put into a Catalog, and instance types are read from it.
package instancetypes
