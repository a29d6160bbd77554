// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

// join returns what the server of a Machine joins with.
func (c *Controller) join(ctx context.Context, machine *v1alpha1.Machine, cluster *v1alpha1.TenantCluster,
	token bootstrap.Token) (bootstrap.Join, error) {
	ca, err := c.ca(ctx)
	if err != nil {
		return bootstrap.Join{}, fmt.Errorf("finding the CA of the tenant cluster, %w", err)
	}
	hashes, err := bootstrap.CACertHashes(ca)
	if err != nil {
		return bootstrap.Join{}, err
	}
	args, err := c.kubeletArgs(ctx, machine)
	if err != nil {
		return bootstrap.Join{}, err
	}
	labels := map[string]string{}
	maps.Copy(labels, machine.Status.NodeLabels)
	maps.Copy(labels, machine.Spec.Labels)
	join := bootstrap.Join{
		NodeName:          machine.Name,
		ProviderID:        machine.Status.ProviderID,
		APIServerEndpoint: cluster.Spec.APIServerEndpoint,
		CACertHashes:      hashes,
		Token:             token,
		Labels:            labels,
		Taints:            taintsOf(machine),
		KubeletArgs:       args,
		Mode:              cluster.Spec.JoinMode,
	}
	if join.Mode == v1alpha1.JoinVCluster {
		join.CACertificates = ca
		return join, nil
	}
	join.KubernetesVersion, err = c.version(ctx)
	return join, err
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
