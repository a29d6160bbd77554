// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package architecture tests the dependencies between the packages of this module, and that every package has a
// comment.
package architecture
