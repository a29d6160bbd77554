// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Condition types of every kind that has conditions, with the meaning of kstatus (sigs.k8s.io/cli-utils).
const (
	// ConditionReady sums up the other conditions. On a Machine, its message is the state.
	ConditionReady = "Ready"
	// ConditionReconciling is there, and true, while the object gets to its spec without anyone's help. It may be
	// waiting for something that will come: a free server, or an object that it refers to.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is there, and true, while the object gets no further. Reason and message say who must do what.
	ConditionStalled = "Stalled"
)

// Condition types of NodeProvider and NodeType.
const (
	// ConditionSynced is true when the object is valid and the manager has written everything that follows from it.
	ConditionSynced = "Synced"
	// ConditionHasCapacity is true when a server of the type can be claimed now.
	ConditionHasCapacity = "HasCapacity"
	// ConditionHardwareFits is true when no server of the type is known to have less than resources says.
	ConditionHardwareFits = "HardwareFits"
)

// ConditionFabricsSeparate is on a NodeProvider only after servers of several tenants were in one domain of a label
// whose fabric must not be shared. It is false while they are there, and true again afterwards.
const ConditionFabricsSeparate = "FabricsSeparate"

// Condition types of Machine.
const (
	// ConditionClaimed is true when the server belongs to this Machine alone.
	ConditionClaimed = "Claimed"
	// ConditionProvisioned is true when Metal3 has installed the image and the server has been booted from it.
	ConditionProvisioned = "Provisioned"
	// ConditionJoined is true when the Node has registered with the tenant.
	ConditionJoined = "Joined"
	// ConditionNetworkReady is there for Machines with hooks. It is false while a hook holds the Machine, before it is
	// provisioned or before its server goes back to the pool, and true while none does.
	ConditionNetworkReady = "NetworkReady"
	// ConditionDrifted is true when a Machine made now would be installed differently. Its reason names the field.
	ConditionDrifted = "Drifted"
	// ConditionGivenUp is true when the manager has given the Machine up, and the Machine is to be deleted. It made no
	// progress within its deadline, or its server is in error and its type says Replace.
	ConditionGivenUp = "GivenUp"
	// ConditionReleased is the progress of the release while the Machine is being deleted.
	ConditionReleased = "Released"
)

// Reasons of conditions.
const (
	// ReasonSynced: everything is as the spec says.
	ReasonSynced = "Synced"
	// ReasonInvalidSelector: bareMetalHosts.selector does not parse.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonInvalidDevices: no DRA driver can publish these devices.
	ReasonInvalidDevices = "InvalidDevices"
	// ReasonProviderNotFound: the object refers to a NodeProvider that does not exist.
	ReasonProviderNotFound = "ProviderNotFound"
	// ReasonNoNodeTypes: the object refers to a NodeProvider that has no NodeTypes.
	ReasonNoNodeTypes = "NoNodeTypes"
	// ReasonTenantNamespace: the servers are in a namespace that has a TenantCluster, so none of them is used.
	ReasonTenantNamespace = "TenantNamespace"
	// ReasonNameConflict: a NodeType of that name belongs to another NodeProvider.
	ReasonNameConflict = "NameConflict"
	// ReasonAvailable: a server can be claimed now.
	ReasonAvailable = "Available"
	// ReasonExhausted: every server is claimed, in error, or unavailable for another reason.
	ReasonExhausted = "Exhausted"
	// ReasonNoHosts: no server matches the selector.
	ReasonNoHosts = "NoHosts"
	// ReasonNoSelector: bareMetalHosts is left out, so the type has no servers.
	ReasonNoSelector = "NoSelector"
	// ReasonResourcesUnknown: resources leaves out cpu or memory, and Metal3 has inspected no server that matches the selector.
	ReasonResourcesUnknown = "ResourcesUnknown"
	// ReasonResourcesLowered: resources leaves out cpu or memory, and a matching server has less than all before.
	ReasonResourcesLowered = "ResourcesLowered"
	// ReasonNodesSmaller: tenants report nodes that are smaller than the NodeType allows.
	ReasonNodesSmaller = "NodesSmallerThanType"
	// ReasonHostsTooSmall: some servers that match the selector have less than resources says.
	ReasonHostsTooSmall = "HostsTooSmall"
	// ReasonBigEnough: every server that matches the selector is as big as resources says, or has not been inspected.
	ReasonBigEnough = "BigEnough"

	// ReasonFabricShared: a domain that is for one tenant has servers of several.
	ReasonFabricShared = "FabricShared"
	// ReasonFabricsSeparate: no domain that is for one tenant has servers of several any more.
	ReasonFabricsSeparate = "FabricsSeparate"

	// ReasonNoCapacity: no fitting server is available now.
	ReasonNoCapacity = "NoCapacity"
	// ReasonNoMatchingType: no NodeType meets the Machine's requirements and resources at all.
	ReasonNoMatchingType = "NoMatchingType"
	// ReasonInvalidSpec: a field or property has a wrong value, so no server is claimed.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonGangIncomplete: not all Machines of the gang exist yet.
	ReasonGangIncomplete = "GangIncomplete"
	// ReasonNotAllowed: the tenant may not have this type.
	ReasonNotAllowed = "NotAllowed"
	// ReasonClaiming: the server has been chosen and the claim is being written.
	ReasonClaiming = "Claiming"
	// ReasonClaimed: the server belongs to this Machine.
	ReasonClaimed = "Claimed"
	// ReasonWaitingForBootstrapData: spec.bootstrap.dataSecretName is not set yet.
	ReasonWaitingForBootstrapData = "WaitingForBootstrapData"
	// ReasonProvisioning: Metal3 is installing the image.
	ReasonProvisioning = "Provisioning"
	// ReasonProvisioned: Metal3 has installed the image.
	ReasonProvisioned = "Provisioned"
	// ReasonWaitingForNode: the server has booted and its Node has not registered yet.
	ReasonWaitingForNode = "WaitingForNode"
	// ReasonJoined: the Node has registered.
	ReasonJoined = "Joined"
	// ReasonStandAlone: the Machine has no tenant to join.
	ReasonStandAlone = "StandAlone"
	// ReasonHostError: Metal3 reports an error for the server.
	ReasonHostError = "HostError"
	// ReasonTooManyGivenUp: the deadlines of many Machines have passed, so this one is given up later.
	ReasonTooManyGivenUp = "TooManyGivenUp"
	// ReasonDeadlineExceeded: the Machine has made no progress within its deadline.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonHostLost: the claimed server does not exist any more, or has another consumer.
	ReasonHostLost = "HostLost"
	// ReasonDeprovisioning: Metal3 is switching the server off, removing the image and cleaning it.
	ReasonDeprovisioning = "Deprovisioning"
	// ReasonHostDeleting: the BareMetalHost of the server is being deleted.
	ReasonHostDeleting = "HostDeleting"
	// ReasonWaitingForHook: the owner of a hook has not removed it yet.
	ReasonWaitingForHook = "WaitingForHook"
	// ReasonNetworkReady: no hook holds the Machine any more.
	ReasonNetworkReady = "NetworkReady"
	// ReasonNoAddress: the address pool of the Machine is exhausted, or unusable.
	ReasonNoAddress = "NoAddress"
	// ReasonPoweredOff: the server is switched off, as spec.power.state says.
	ReasonPoweredOff = "PoweredOff"
)

// Condition types of TenantCluster.
const (
	// ConditionClusterIdentified is true while the kubeconfig of the provider leads to the cluster with the identity in
	// status.clusterUID. Otherwise the provider writes nothing. Written by the manager.
	ConditionClusterIdentified = "ClusterIdentified"
	// ConditionKubeconfigAccepted is false while the tenant's API server answers the provider with 401 Unauthorized
	// alone. It is absent if that has never happened. Written by the provider.
	ConditionKubeconfigAccepted = "KubeconfigAccepted"
	// ConditionCollectionAllowed is false while the provider deletes no Machine whose NodeClaim is gone, because there
	// are too many. It is absent if that has never happened. Written by the provider.
	ConditionCollectionAllowed = "CollectionAllowed"
	// ConditionPoolsSynced is true when the tenant has the pools that privateNodes.autoNodes call for. Written by the
	// provider.
	ConditionPoolsSynced = "PoolsSynced"
	// ConditionNodesDrained is there while the TenantCluster is being deleted and its provider works. It is false while
	// Karpenter still drains NodeClaims with servers. Written by the provider.
	ConditionNodesDrained = "NodesDrained"
	// ConditionServersReturned is the progress of the release of the servers while the TenantCluster is being deleted.
	// Written by the manager.
	ConditionServersReturned = "ServersReturned"
)

// Reasons of conditions of TenantCluster, and of Machines of tenants.
const (
	// ReasonIdentified: the cluster has the identity in status.clusterUID.
	ReasonIdentified = "Identified"
	// ReasonNotReported: the tenant's provider has not reported on the present spec yet.
	ReasonNotReported = "NotReported"
	// ReasonProviderSilent: the tenant's provider has stopped reporting that it works.
	ReasonProviderSilent = "ProviderSilent"
	// ReasonAnotherCluster: the kubeconfig of the provider leads to another cluster than before.
	ReasonAnotherCluster = "AnotherCluster"
	// ReasonClusterTaken: the kubeconfig of the provider leads to the cluster of another TenantCluster.
	ReasonClusterTaken = "ClusterTaken"
	// ReasonKubeconfigRefused: the tenant's API server refuses the provider's credentials, so it can do nothing there.
	ReasonKubeconfigRefused = "KubeconfigRefused"
	// ReasonKubeconfigAccepted: the tenant's API server accepts the credentials of the provider again.
	ReasonKubeconfigAccepted = "KubeconfigAccepted"
	// ReasonTooManyMachines: so many NodeClaims are gone that the tenant's cluster may be incomplete.
	ReasonTooManyMachines = "TooManyMachines"
	// ReasonConfirmed: an operator has confirmed that the Machines are to be deleted.
	ReasonConfirmed = "Confirmed"
	// ReasonCollecting: Machines whose NodeClaim is gone are deleted.
	ReasonCollecting = "Collecting"
	// ReasonInvalidPools: a pool of autoNodes is not valid.
	ReasonInvalidPools = "InvalidPools"
	// ReasonReleasesServers: autoNodes no longer call for some NodePools, or want no server for them, but these have
	// Machines. They are kept until an operator confirms the deletion of the Machines.
	ReasonReleasesServers = "ReleasesServers"
	// ReasonReplacingPools: a pool is recreated, and the old pool of that name is still being deleted.
	ReasonReplacingPools = "ReplacingPools"
	// ReasonTenantDeleting: the TenantCluster is being deleted.
	ReasonTenantDeleting = "TenantDeleting"
	// ReasonDraining: the nodes of the tenant are being drained.
	ReasonDraining = "Draining"
	// ReasonDrained: no NodeClaim of the tenant has a server any more.
	ReasonDrained = "Drained"
	// ReasonReturningServers: the tenant's Machines are being deleted.
	ReasonReturningServers = "ReturningServers"
	// ReasonQuotaExceeded: the tenant has all the servers or accelerators that its quota allows.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonTooManyClaims: the namespace has claimed many servers and given them back before they were installed. The
	// message says when it gets the next one.
	ReasonTooManyClaims = "TooManyClaims"
)

// Condition types that the provider sets on objects of the tenant.
const (
	// ConditionServerReady on a NodeClaim says how far its Machine has come on the way to the node, in the words of the
	// Machine's condition Ready. A Node has it only after its server was in trouble while the node was up: false during
	// the trouble, with the reason of the Machine's condition Ready, and true again afterwards.
	ConditionServerReady = "ServerReady"
	// ConditionResourcesAdvertised is on a NodeClaim only after its node has missed resources. It is false while the
	// node does not advertise the resources of its NodeType after the grace period, and true again afterwards.
	ConditionResourcesAdvertised = "ResourcesAdvertised"
	// ConditionNodeAsPlanned is on a NodeClaim only if its node has less cpu, memory, disk or room for pods than
	// Karpenter planned with at the launch: pods that were planned for it may not fit. It is always false.
	ConditionNodeAsPlanned = "NodeAsPlanned"
)

// ReasonNodeSmaller: the node has less of a resource for pods than Karpenter planned with.
const ReasonNodeSmaller = "NodeSmallerThanPlanned"

// Reasons of the condition ResourcesAdvertised.
const (
	// ReasonResourcesMissing: the node advertises less of a resource than its NodeType has, or none.
	ReasonResourcesMissing = "ResourcesMissing"
	// ReasonResourcesAdvertised: the node advertises all resources of its NodeType.
	ReasonResourcesAdvertised = "ResourcesAdvertised"
)

// warnings are the reasons that may need a person to act.
var warnings = sets.New(
	ReasonInvalidSelector, ReasonInvalidDevices, ReasonProviderNotFound, ReasonNoNodeTypes, ReasonTenantNamespace,
	ReasonNameConflict, ReasonNoHosts, ReasonNoSelector, ReasonResourcesLowered, ReasonHostsTooSmall,
	ReasonNoCapacity, ReasonNoMatchingType, ReasonInvalidSpec, ReasonNotAllowed, ReasonHostError,
	ReasonDeadlineExceeded, ReasonHostLost, ReasonHostDeleting, ReasonNoAddress, ReasonQuotaExceeded,
	ReasonTooManyClaims, ReasonTenantDeleting, ReasonAnotherCluster, ReasonClusterTaken, ReasonKubeconfigRefused,
	ReasonTooManyMachines, ReasonInvalidPools, ReasonReleasesServers, ReasonNodeSmaller, ReasonResourcesMissing, ReasonNodeUnhealthy,
	ReasonNoDeviceClasses, ReasonAPINotServed, ReasonSameCluster, ReasonInvalidName, ReasonNodesSmaller,
	ReasonTooManyGivenUp,
	ReasonFabricShared, ReasonProviderSilent,
)

// IsWarning reports whether the reason of a condition may need a person to act.
func IsWarning(reason string) bool { return warnings.Has(reason) }

// EventType returns the type of an event with the reason of a condition: Warning or Normal.
func EventType(reason string) string {
	if IsWarning(reason) {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}
