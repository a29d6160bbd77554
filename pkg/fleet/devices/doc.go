// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices computes the devices that DRA drivers publish on a server from its NodeType, and validates them. It depends
// neither on Karpenter nor on a cluster.
package devices
