// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// UnhealthyAnnotationKey is on Machines that Karpenter gives up because their node is unhealthy, with the condition of the
// node that says so. The provider sets it before it deletes such a Machine, and the manager quarantines the server.
const UnhealthyAnnotationKey = Group + "/unhealthy"

// ReasonNodeUnhealthy: a server is quarantined because the node on it was unhealthy and Karpenter has replaced it.
const ReasonNodeUnhealthy = "NodeUnhealthy"
