// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// maxNamed bounds how many names a message lists.
const maxNamed = 3

// narrow adds requirements on NodeTypes to the NodePool, from the properties of the pool. Karpenter replaces nodes that
// do not meet a new requirement. So narrow leaves out an unchanged property that did not narrow before, while the pool
// has nodes that do not meet it: the author has changed nothing. wide explains the properties that are left out.
func (c *Controller) narrow(ctx context.Context, p *pool) (wide string, err error) {
	if len(p.narrowing) == 0 {
		return "", nil
	}
	class := &v1alpha1.MetalNodeClass{}
	had, err := kube.Find(ctx, c.clusters.Tenant.Client, client.ObjectKey{Name: p.NodePool}, class)
	if err != nil {
		return "", err
	}
	before := strings.Split(class.Annotations[v1alpha1.NarrowedAnnotationKey], ",")
	var keys, left []string
	for _, entry := range p.narrowing {
		requirement := karpv1.NodeSelectorRequirementWithMinValues{Key: entry.Key, Operator: entry.Operator, Values: entry.Values}
		if had && !slices.Contains(before, entry.Key) && class.Spec.Properties[entry.Key] == p.nodeClass.Spec.Properties[entry.Key] {
			others, err := c.unlike(ctx, p.NodePool, entry)
			if err != nil {
				return "", err
			}
			if len(others) > 0 {
				left = append(left, fmt.Sprintf("%s does not narrow its NodeTypes while it has NodeClaims that would be replaced for it (%s): select "+
					"by it in nodeTypeSelector to have them replaced", entry.Key, conditions.List(others, maxNamed)))
				continue
			}
		}
		keys = append(keys, entry.Key)
		p.nodePool.Spec.Template.Spec.Requirements = append(p.nodePool.Spec.Template.Spec.Requirements, requirement)
	}
	if len(keys) > 0 {
		p.nodeClass.Annotations = map[string]string{v1alpha1.NarrowedAnnotationKey: strings.Join(keys, ",")}
	}
	return strings.Join(left, ", "), nil
}

// unlike returns the NodeClaims of a pool that do not meet a requirement, by Karpenter's own comparison.
func (c *Controller) unlike(ctx context.Context, nodePool string, requirement corev1.NodeSelectorRequirement) (names []string, err error) {
	nodeClaims := &karpv1.NodeClaimList{}
	if err := c.clusters.Tenant.Live.List(ctx, nodeClaims, client.MatchingLabels{karpv1.NodePoolLabelKey: nodePool}); err != nil {
		return nil, fmt.Errorf("listing NodeClaims, %w", err)
	}
	wanted := scheduling.NewNodeSelectorRequirements(requirement)
	for i := range nodeClaims.Items {
		nodeClaim := &nodeClaims.Items[i]
		if nodeClaim.DeletionTimestamp.IsZero() && scheduling.NewLabelRequirements(nodeClaim.Labels).Compatible(wanted) != nil {
			names = append(names, nodeClaim.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
