// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ReasonNodeUnhealthy: a server is quarantined because the node on it was unhealthy and Karpenter has replaced it.
const ReasonNodeUnhealthy = "NodeUnhealthy"
