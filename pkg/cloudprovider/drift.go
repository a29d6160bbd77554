// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// IsDrifted returns why the server of a NodeClaim differs from a server that it would get now: the reason of the
// Machine's condition Drifted, or NodeClassChanged if its class selects another NodeProvider. It returns no reason if
// the answer is not known, or if a replacement could not be installed. It returns an error while the management cluster
// is down, and a NodeClaimNotFoundError if the Machine does not exist: core changes nothing after either.
func (c *CloudProvider) IsDrifted(ctx context.Context, nodeClaim *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	if err := c.management.Synced(); err != nil {
		return "", fmt.Errorf("reading the machine of nodeclaim %s, %w", nodeClaim.Name, err)
	}
	_, _, name, ours := v1alpha1.ParseProviderID(nodeClaim.Status.ProviderID)
	if !ours {
		return "", notFound("provider ID %q is not one of this provider", nodeClaim.Status.ProviderID)
	}
	machine, err := c.machine(ctx, c.management.Client, name, nodeClaim)
	if err != nil {
		return "", err
	}
	if reason, err := c.classDrift(ctx, machine, nodeClaim); err != nil || reason != "" {
		return reason, err
	}
	if !meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionDrifted) {
		return c.upgradeDrift(ctx, machine, nodeClaim)
	}
	// Core drains a drifted node, so decide this on a live read.
	if machine, err = c.machine(ctx, c.management.Live, name, nodeClaim); err != nil {
		return "", err
	}
	if drifted := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionDrifted); drifted.Status == metav1.ConditionTrue {
		return cloudprovider.DriftReason(drifted.Reason), nil
	}
	return c.upgradeDrift(ctx, machine, nodeClaim)
}

// classDrift compares the parts of the class that only this provider compares: the NodeProvider of its servers and the
// arguments of kubelet. The Machine contains the rest of the class, and the manager compares it.
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

// upgradeDrift returns KubernetesVersionChanged if the tenant has servers follow its version, and a server that is
// installed now would have a newer kubelet than the Node of the NodeClaim.
func (c *CloudProvider) upgradeDrift(ctx context.Context, machine *v1alpha1.Machine,
	nodeClaim *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	tenant := &v1alpha1.TenantCluster{}
	found, err := kube.Find(ctx, c.management.Client, c.tenantKey(), tenant)
	if err != nil || !found || tenant.Spec.PrivateNodes == nil || !tenant.Spec.PrivateNodes.AutoUpgrade.Enabled {
		return "", err
	}
	node := &corev1.Node{}
	found, err = kube.Find(ctx, c.tenant, types.NamespacedName{Name: nodeClaim.Status.NodeName}, node)
	if err != nil || !found {
		return "", err // it has not registered
	}
	current, err := c.options.KubernetesVersion(ctx)
	if err != nil {
		return "", fmt.Errorf("comparing nodeclaim %s with the version of the tenant cluster, %w", nodeClaim.Name, err)
	}
	if outdated(node.Status.NodeInfo.KubeletVersion, machine.ReportedNode().KubernetesVersion, current) {
		return v1alpha1.ReasonKubernetesVersionChanged, nil
	}
	return "", nil
}

// outdated reports whether a new installation would bring a newer minor version of the kubelet. installed is the
// tenant's version when the server was installed, or empty if the provider did not record it. current is the tenant's
// version now. If the kubelet differs from installed, the image brought it, and would bring it again, for ever.
func outdated(kubelet, installed, current string) bool {
	was, err := version.ParseGeneric(kubelet)
	if err != nil {
		return false
	}
	is, err := version.ParseGeneric(current)
	if err != nil || was.Major() != is.Major() || was.Minor() >= is.Minor() {
		return false
	}
	if installed == "" {
		return true
	}
	then, err := version.ParseGeneric(installed)
	return err == nil && then.Major() == was.Major() && then.Minor() == was.Minor()
}
