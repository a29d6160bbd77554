// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// IsDrifted returns why the server of a NodeClaim differs from one that it would get now: the reason of the Machine's
// condition Drifted, or NodeClassChanged if its class is for servers of another NodeProvider. It returns no reason if that is
// not known, or if a replacement could not be installed. It returns an error while the management cluster is down, and a
// NodeClaimNotFoundError if there is no such Machine: after either core changes nothing.
func (c *CloudProvider) IsDrifted(ctx context.Context, nodeClaim *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	if err := c.management.Synced(); err != nil {
		return "", fmt.Errorf("reading the machine of nodeclaim %s, %w", nodeClaim.Name, err)
	}
	_, _, name, ours := v1alpha1.ParseProviderID(nodeClaim.Status.ProviderID)
	if !ours {
		return "", notFound("provider ID %q is not one of this provider", nodeClaim.Status.ProviderID)
	}
	machine, err := c.machine(ctx, c.management.Client, name)
	if err != nil {
		return "", err
	}
	if !c.madeFor(machine, nodeClaim) {
		return "", notFound("machine %s belongs to another NodeClaim", name)
	}
	if reason, err := c.classDrift(ctx, machine, nodeClaim); err != nil || reason != "" {
		return reason, err
	}
	if !meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionDrifted) {
		return c.upgradeDrift(ctx, machine, nodeClaim)
	}
	// A drifted node is drained, so this is decided on a live read.
	if machine, err = c.machine(ctx, c.management.Live, name); err != nil {
		return "", err
	}
	condition := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionDrifted)
	if condition == nil || condition.Status != metav1.ConditionTrue {
		return c.upgradeDrift(ctx, machine, nodeClaim)
	}
	return cloudprovider.DriftReason(condition.Reason), nil
}

// classDrift returns what of the class of the NodeClaim is not in the Machine, which was made with the rest of it: the
// NodeProvider whose servers it is for, and the arguments of kubelet. What else the class says is in the Machine, and the
// manager compares it.
func (c *CloudProvider) classDrift(ctx context.Context, machine *v1alpha1.Machine,
	nodeClaim *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	reference := nodeClaim.Spec.NodeClassRef
	if reference == nil || machine.Status.NodeTypeRef == nil {
		return "", nil
	}
	class := &v1alpha1.MetalNodeClass{}
	if found, err := kube.Find(ctx, c.tenant, types.NamespacedName{Name: reference.Name}, class); err != nil || !found {
		return "", err
	}
	if !maps.Equal(class.Spec.KubeletArgs, machine.Spec.KubeletArgs) {
		return v1alpha1.ReasonKubeletArgsChanged, nil
	}
	if class.Spec.ProviderRef == nil {
		return "", nil
	}
	nodeType := &v1alpha1.NodeType{}
	key := types.NamespacedName{Name: machine.Status.NodeTypeRef.Name}
	if found, err := kube.Find(ctx, c.management.Client, key, nodeType); err != nil || !found {
		return "", err
	}
	if *class.Spec.ProviderRef != nodeType.Spec.ProviderRef {
		return v1alpha1.ReasonNodeClassChanged, nil
	}
	return "", nil
}
