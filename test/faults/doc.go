// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults makes connections to an API server go wrong, at one point each: at the n-th write of a process, or at
// its n-th read from a cache. A test runs the same cycle once for every point there is, and asks the same things at
// the end.
package faults
