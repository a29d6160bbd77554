// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// upgradeDrift returns KubernetesVersionChanged if the tenant has servers follow its version, and a server installed now would have a
// newer kubelet than the Node of the NodeClaim.
func (c *CloudProvider) upgradeDrift(ctx context.Context, machine *v1alpha1.Machine,
	nodeClaim *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	tenant := &v1alpha1.TenantCluster{}
	key := types.NamespacedName{Namespace: c.options.Namespace, Name: c.options.TenantCluster}
	found, err := kube.Find(ctx, c.management.Client, key, tenant)
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

// outdated returns whether a server that is installed again gets a newer minor version of the kubelet. installed is the tenant's version
// when it was installed, empty if a provider without that record has done so, and current is the tenant's version now. A kubelet of another
// version than the tenant had is one that the image brings: the same image would bring it again, for ever.
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
