// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// keysOf are the labels of nodes that pods select, spread or gather by.
func keysOf(pods []corev1.Pod) map[string]bool {
	keys := map[string]bool{}
	expressions := func(term corev1.NodeSelectorTerm) {
		for _, expression := range term.MatchExpressions {
			keys[expression.Key] = true
		}
	}
	together := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i := range required {
			keys[required[i].TopologyKey] = true
		}
		for i := range preferred {
			keys[preferred[i].PodAffinityTerm.TopologyKey] = true
		}
	}
	for i := range pods {
		spec := &pods[i].Spec
		for key := range spec.NodeSelector {
			keys[key] = true
		}
		for i := range spec.TopologySpreadConstraints {
			keys[spec.TopologySpreadConstraints[i].TopologyKey] = true
		}
		if spec.Affinity == nil {
			continue
		}
		if node := spec.Affinity.NodeAffinity; node != nil {
			if node.RequiredDuringSchedulingIgnoredDuringExecution != nil {
				for _, term := range node.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
					expressions(term)
				}
			}
			for _, preferred := range node.PreferredDuringSchedulingIgnoredDuringExecution {
				expressions(preferred.Preference)
			}
		}
		if to := spec.Affinity.PodAffinity; to != nil {
			together(to.RequiredDuringSchedulingIgnoredDuringExecution, to.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if from := spec.Affinity.PodAntiAffinity; from != nil {
			together(from.RequiredDuringSchedulingIgnoredDuringExecution, from.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	return keys
}

// use says which labels pods and NodePools ask for.
func (c *Client) use(ctx context.Context, pods []corev1.Pod) error {
	if c.options.Use == nil {
		return nil
	}
	keys := keysOf(pods)
	pools := &karpenterv1.NodePoolList{}
	if err := c.Client.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodePools, %w", err)
	}
	for i := range pools.Items {
		template := &pools.Items[i].Spec.Template
		for _, requirement := range template.Spec.Requirements {
			keys[requirement.Key] = true
		}
		for key := range template.Labels {
			keys[key] = true
		}
	}
	delete(keys, corev1.LabelHostname)
	c.options.Use(slices.Collect(maps.Keys(keys)))
	return nil
}
