// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ready has kubectl wait for the condition Ready of each of our kinds, and upgrades objects that an earlier version has written.
package ready
