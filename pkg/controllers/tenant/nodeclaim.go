// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/conditions"
)

// MadeFor returns whether the Machine is the NodeClaim's, and not of an earlier one of that name. A NodeClaim that was
// restored from a backup has another UID than the one that the Machine was made for, but still its provider ID.
func MadeFor(machine *v1alpha1.Machine, nodeClaim *karpv1.NodeClaim) bool {
	return machine.Annotations[v1alpha1.NodeClaimUIDAnnotationKey] == string(nodeClaim.UID) ||
		(nodeClaim.Status.ProviderID != "" && nodeClaim.Status.ProviderID == machine.Status.ProviderID)
}

// HasRegistered returns whether Karpenter has seen the NodeClaim's node: pods may run there.
func HasRegistered(nodeClaim *karpv1.NodeClaim) bool {
	return conditions.Find(nodeClaim.Status.Conditions, karpv1.ConditionTypeRegistered).Status == metav1.ConditionTrue
}
