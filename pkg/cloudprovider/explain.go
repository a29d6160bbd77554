// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Checks look for why a pod gets no server although one that fits is free: the quota, what was refused lately, and a
// gang for which no topology domain has room. shortage says the last.
func (c *CloudProvider) Checks(shortage func(*corev1.Pod) string) []explain.Check {
	return []explain.Check{
		explain.Because(explain.ReasonQuotaReached, c.QuotaReached),
		explain.Because(explain.ReasonServerRefused, c.refusedFor),
		explain.Because(explain.ReasonInsufficientDomainCapacity, func(_ context.Context, pod *corev1.Pod) (string, error) {
			return shortage(pod), nil
		}),
	}
}

// refusedFor is a message if every NodePool that could get a server for a pod was refused it lately, and empty
// otherwise.
func (c *CloudProvider) refusedFor(ctx context.Context, pod *corev1.Pod) (string, error) {
	if c.refusals.byType.Len() == 0 {
		return "", nil
	}
	pools := &karpv1.NodePoolList{}
	if err := c.tenant.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing NodePools, %w", err)
	}
	var messages []string
	for i := range pools.Items {
		wanted, why := instancetypes.PoolFits(&pools.Items[i], pod, karpv1.WellKnownLabels)
		if why != nil {
			continue
		}
		s, err := c.scopeOf(ctx, &pools.Items[i])
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		for _, instanceType := range s.remaining.LimitTypes(s.catalog.InstanceTypes(s.filter())) {
			if !instancetypes.HasFree(instanceType, wanted...) || !holds(instanceType, resources.RequestsForPods(pod)) {
				continue
			}
			found, refused := c.refused(s, instanceType.Name)
			if !refused {
				return "", nil // Karpenter is working on it.
			}
			messages = append(messages, fmt.Sprintf("NodePool %s gets no server of NodeType %s before %s: %s: %s",
				pools.Items[i].Name, instanceType.Name, found.until.UTC().Format(time.RFC3339), found.reason, found.message))
		}
	}
	return conditions.Truncate(strings.Join(messages, "; "), conditions.MaxEventNote), nil
}

// holds returns whether a server of a type has room for the requests, and may be used for them.
func holds(instanceType *cloudprovider.InstanceType, requests corev1.ResourceList) bool {
	capacity := instanceType.Capacity
	return resources.Fits(requests, instanceType.Allocatable()) &&
		(len(v1alpha1.Accelerators(capacity)) == 0 || v1alpha1.AsksForAccelerator(requests, capacity))
}
