// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

// kubeletArgs returns the extra arguments of the kubelet of a Machine: those that it asks for, what its NodeType
// sets aside and how many pods that declares, so that the Node has for pods what Karpenter reckoned with.
func (c *Controller) kubeletArgs(ctx context.Context, machine *v1alpha1.Machine) (map[string]string, error) {
	args := machine.Spec.KubeletArgs.Strings()
	if err := bootstrap.CheckKubeletArgs(args); err != nil {
		return nil, fmt.Errorf("spec.kubeletArgs of machine %s, %w", client.ObjectKeyFromObject(machine), err)
	}
	if machine.Status.NodeTypeRef == nil {
		return args, nil
	}
	nodeType := &v1alpha1.NodeType{}
	if err := c.clusters.Management.Client.Get(ctx, client.ObjectKey{Name: machine.Status.NodeTypeRef.Name}, nodeType); err != nil {
		if apierrors.IsNotFound(err) {
			// The type was deleted. Its overhead is not known any more; the server joins without it.
			return args, nil
		}
		return nil, fmt.Errorf("reading NodeType %s, %w", machine.Status.NodeTypeRef.Name, err)
	}
	if reserved := nodeType.KubeReserved(); reserved != "" {
		args[bootstrap.ArgKubeReserved] = reserved
	}
	if pods, named := nodeType.Spec.Resources[corev1.ResourcePods]; named && args[capacity.ArgMaxPods] == "" {
		args[capacity.ArgMaxPods] = strconv.FormatInt(pods.Value(), 10)
	}
	return args, nil
}
