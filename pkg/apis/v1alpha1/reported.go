// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types that the provider sets on objects of the tenant.
const (
	// ConditionServerReady on a NodeClaim says where its Machine is on the way to the node, in the words of the
	// Machine's condition Ready. On a Node it is there only once its server has been in trouble after the node was up:
	// false while it is, with the reason of the Machine's condition Ready, and true again afterwards.
	ConditionServerReady = "ServerReady"
	// ConditionResourcesAdvertised on a NodeClaim is there only once its node has been missing resources: false while
	// it does not advertise what its NodeType promises, although it has had the time to, and true again afterwards.
	ConditionResourcesAdvertised = "ResourcesAdvertised"
)

// Reasons of the condition ResourcesAdvertised.
const (
	// ReasonResourcesMissing: the node advertises less of a resource than its NodeType promises, or nothing.
	ReasonResourcesMissing = "ResourcesMissing"
	// ReasonResourcesAdvertised: the node advertises all that its NodeType promises.
	ReasonResourcesAdvertised = "ResourcesAdvertised"
)
