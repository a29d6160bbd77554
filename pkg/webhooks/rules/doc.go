// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules validates the kinds of the API. For each kind it has a function of the object, of what it was before an
// update, and of an interface to everything else there is. The result has all errors at once, and warnings for the author.
// Rules read and write nothing themselves, and their time is bounded by the size of the object, whatever that contains.
package rules
