// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

// joinOf returns what the server of a Machine joins with.
func joinOf(machine *v1alpha1.Machine, cluster *v1alpha1.TenantCluster, caHashes []string, token bootstrap.Token) bootstrap.Join {
	labels := map[string]string{}
	maps.Copy(labels, machine.Status.NodeLabels)
	maps.Copy(labels, machine.Spec.Labels)
	return bootstrap.Join{
		NodeName:          machine.Name,
		ProviderID:        machine.Status.ProviderID,
		APIServerEndpoint: cluster.Spec.APIServerEndpoint,
		CACertHashes:      caHashes,
		Token:             token,
		Labels:            labels,
		Taints:            taintsOf(machine),
	}
}

// taintsOf returns the taints that the Node registers with, each once.
func taintsOf(machine *v1alpha1.Machine) []corev1.Taint {
	taints := slices.Concat(machine.Spec.Taints, machine.Spec.StartupTaints)
	if machine.Labels[v1alpha1.NodeClaimLabelKey] != "" {
		// Karpenter takes it away once it has matched the Node to its NodeClaim; before, no pod may land there.
		taints = append(taints, karpv1.UnregisteredNoExecuteTaint)
	}
	var unique []corev1.Taint
	for _, taint := range taints {
		if !slices.ContainsFunc(unique, func(other corev1.Taint) bool { return other.MatchTaint(&taint) }) {
			unique = append(unique, taint)
		}
	}
	return unique
}
