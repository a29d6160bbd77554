// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kueue runs docs/kueue.md: the real Kueue, as its chart installs it, in the tenant cluster of a sandbox. It needs
// `make tools kueue-tools build`.
package kueue
