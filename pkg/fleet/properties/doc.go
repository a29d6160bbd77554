// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package properties merges the properties of machines, reads the value of each key, and validates it. Controllers and
// admission both use it, so that they have the same messages. Everything in it is a function of values.
package properties
