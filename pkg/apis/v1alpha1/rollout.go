// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// RolloutAnnotationKey is on NodePools: the NodeClaims that were given up for want of a spare server, so that the server
// comes back installed as it should be, as JSON. What has come back is taken off when the next one is looked at.
const RolloutAnnotationKey = Group + "/rollout"

// DriftAnnotationKey is on NodeClaims: what has changed since the server was installed, in words.
const DriftAnnotationKey = Group + "/drift"
