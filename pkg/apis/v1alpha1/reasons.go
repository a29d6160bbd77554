// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// warnings are the reasons that may need an action of a person.
var warnings = sets.New(
	ReasonInvalidSelector, ReasonInvalidDevices, ReasonProviderNotFound, ReasonNoNodeTypes, ReasonTenantNamespace,
	ReasonNameConflict, ReasonNoHosts, ReasonNoSelector, ReasonResourcesLowered, ReasonHostsTooSmall,
	ReasonNoCapacity, ReasonNoMatchingType, ReasonInvalidSpec, ReasonNotAllowed, ReasonHostError,
	ReasonDeadlineExceeded, ReasonHostLost, ReasonHostDeleting, ReasonNoAddress, ReasonQuotaExceeded,
	ReasonTooManyPending, ReasonTooManyClaims, ReasonTenantDeleting, ReasonAnotherCluster, ReasonClusterTaken, ReasonKubeconfigRefused,
	ReasonTooManyMachines, ReasonInvalidPools, ReasonReleasesServers, ReasonNodeSmaller, ReasonResourcesMissing, ReasonNodeUnhealthy,
	ReasonNoDeviceClasses, ReasonAPINotServed, ReasonSameCluster, ReasonInvalidName, ReasonNodesSmaller,
	ReasonTooManyGivenUp,
	ReasonFabricShared,
)

// IsWarning returns whether the reason of a condition may need an action of a person.
func IsWarning(reason string) bool { return warnings.Has(reason) }

// EventType returns the type of an event with the reason of a condition: Warning or Normal.
func EventType(reason string) string {
	if IsWarning(reason) {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}
