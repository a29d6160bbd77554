// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drift carries what makes servers drift between the planes: the properties of a MetalNodeClass to the Machines
// that were made of it, so that the manager compares them with what is installed, and what the manager found to the
// NodeClaim, where people read it and Karpenter's core looks at once instead of within five minutes.
package drift
