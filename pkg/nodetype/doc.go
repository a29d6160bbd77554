// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodetype knows what a NodeType says about its servers: the profile by which the inventory finds and counts
// them. Its controllers are in packages of their own: provider makes NodeTypes of NodeProviders, status tells how many
// servers there are.
package nodetype
