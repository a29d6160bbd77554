// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults injects one fault into the connection to an API server: at the n-th write of a process, or at its n-th
// read from a cache. A test runs the same cycle once for every point, with the same checks at the end.
package faults
