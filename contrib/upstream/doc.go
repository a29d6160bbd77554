// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstream has patches for Karpenter's core: what pkg/karpenter changes from outside, as pull requests. Its tests apply them to
// the version in go.mod, and run the tests that they bring.
package upstream
