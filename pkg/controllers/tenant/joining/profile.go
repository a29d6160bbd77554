// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/nodeprofiles"
)

// withProfile returns a Machine with what its NodeProfile lets it register with, and the record of that. The Machine of a NodeClaim
// has it from there.
func (c *Controller) withProfile(ctx context.Context, machine *v1alpha1.Machine, cluster *v1alpha1.TenantCluster) (
	*v1alpha1.Machine, string, error) {
	if machine.Labels[v1alpha1.NodeClaimLabelKey] != "" {
		return machine, "", nil
	}
	explicit := ""
	if machine.Spec.ProfileRef != nil {
		explicit = machine.Spec.ProfileRef.Name
	}
	profile, problem, err := nodeprofiles.Resolve(cluster, explicit, c.clusters.FindNodeProfile(ctx))
	if err != nil {
		return nil, "", err
	}
	if problem != "" {
		return nil, "", fmt.Errorf("the node of Machine %s, %s", client.ObjectKeyFromObject(machine), problem)
	}
	if profile.IsNone() {
		return machine, "", nil
	}
	profiled, applied := machine.DeepCopy(), nodeprofiles.Applied{}
	spec := &profiled.Spec
	// What the kubelet may not set itself is put onto the Node by the controller, which takes it for the profile's then.
	spec.Labels, spec.Taints, spec.StartupTaints, applied = profile.Register(spec.Labels, spec.Taints, spec.StartupTaints, cannotSet)
	return profiled, applied.String(), nil
}

// cannotSet returns whether a kubelet may not give its Node a label.
func cannotSet(key string) bool {
	return len(bootstrap.SelfSettableLabels(map[string]string{key: ""})) == 0
}
