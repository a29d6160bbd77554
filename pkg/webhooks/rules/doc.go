// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules knows what may be written: for each kind of the API a function that looks at an object, at what it was
// before, and through a small interface at everything else there is, and returns all that is wrong with it at once, and
// what its author should know. It reads nothing and writes nothing itself, and its time is bounded by the size of the
// object, whatever that holds.
package rules
