// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeprofiles lets Karpenter's core plan with the NodeProfiles of nodes to come.
//
// A change of a profile must not replace nodes, and core takes every change of a NodePool's template for drift. So the
// labels and taints of a profile are not stored in NodePools. Core reads NodePools with them, in memory, and creates
// NodeClaims with them. A NodeClaim gets the hash of the stored NodePool, and so drifts only if that changes.
//
// Without the startup taints, core would take them for permanent, and bring a second server for the first's pods.
package nodeprofiles

import (
	"context"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// reasonNodeProfile: the nodes of a NodePool cannot have their NodeProfile. The condition exists in memory only.
const reasonNodeProfile = "NodeProfile"

// NodePools lets core list NodePools with the profiles of their nodes. If the nodes cannot have their profile, the
// NodePool is not ready, so no node lacks it. NodePools that core reads singly, to write their status, are as stored.
func NodePools(clusters tenant.Clusters) interceptor.Interceptor {
	return interceptor.OnList(func(ctx context.Context, list *karpv1.NodePoolList, _ []client.ListOption) error {
		resolve, err := clusters.NodeProfiles(ctx)
		if err != nil {
			return err
		}
		for i := range list.Items {
			planned, _, err := planned(resolve, &list.Items[i])
			if err != nil {
				return err
			}
			list.Items[i] = *planned
		}
		return nil
	})
}

// Planned returns a NodePool with the profile of its nodes, and why they cannot have it, "" if they can.
func Planned(ctx context.Context, clusters tenant.Clusters, nodePool *karpv1.NodePool) (*karpv1.NodePool, string, error) {
	resolve, err := clusters.NodeProfiles(ctx)
	if err != nil {
		return nil, "", err
	}
	return planned(resolve, nodePool)
}

func planned(resolve tenant.Resolve, nodePool *karpv1.NodePool) (*karpv1.NodePool, string, error) {
	profile, problem, err := resolve(v1alpha1.NodeProfileOf(nodePool.Labels))
	if err != nil {
		return nil, "", err
	}
	if profile.IsNone() && problem == "" {
		return nodePool, "", nil
	}
	nodePool = nodePool.DeepCopy()
	if problem != "" {
		nodePool.StatusConditions().SetFalse(karpv1.ConditionTypeValidationSucceeded, reasonNodeProfile, problem)
		return nodePool, problem, nil
	}
	hash, template := nodePool.Hash(), &nodePool.Spec.Template
	labels, taints, startupTaints, applied := profile.Register(template.Labels, template.Spec.Taints, template.Spec.StartupTaints, unknown)
	template.Labels, template.Spec.Taints, template.Spec.StartupTaints = labels, taints, startupTaints
	if template.Annotations = maps.Clone(template.Annotations); template.Annotations == nil {
		template.Annotations = map[string]string{}
	}
	template.Annotations[v1alpha1.NodeProfileAppliedAnnotationKey] = applied.String()
	template.Annotations[v1alpha1.NodePoolHashAnnotationKey] = hash
	return nodePool, "", nil
}

// unknown reports whether core refuses a label, or takes it for a label of the server.
func unknown(key string) bool {
	return karpv1.WellKnownLabels.Has(key) || karpv1.IsRestrictedLabel(key) != nil
}

// StoredHash gives a NodeClaim the hash of its NodePool as stored.
func StoredHash(nodeClaim *karpv1.NodeClaim) {
	hash, planned := nodeClaim.Annotations[v1alpha1.NodePoolHashAnnotationKey]
	if !planned {
		return
	}
	delete(nodeClaim.Annotations, v1alpha1.NodePoolHashAnnotationKey)
	nodeClaim.Annotations[karpv1.NodePoolHashAnnotationKey] = hash
}
