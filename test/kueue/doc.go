// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kueue runs docs/kueue.md, and the gangs of a JobSet and a LeaderWorkerSet: the real controllers, as their charts install them, in
// the tenant cluster of a sandbox. It needs `make tools kueue-tools build`.
package kueue
