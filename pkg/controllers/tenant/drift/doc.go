// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drift passes drift between the clusters. It writes the properties of a MetalNodeClass into the Machines of that
// class, so that the manager compares them with status.installed, and the manager's result onto the NodeClaim, where users
// see it and a change makes Karpenter's core check for drift at once instead of within five minutes.
package drift
