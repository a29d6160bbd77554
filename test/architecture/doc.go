// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package architecture holds the tests of how the packages of this module depend on each other: which part may import
// which, and that every package says what it is for.
package architecture
