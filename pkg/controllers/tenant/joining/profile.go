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

// withProfile returns a copy of the Machine with the part of its NodeProfile that it can register with, and the record
// of that part. The Machine of a NodeClaim has both from the NodeClaim.
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
	// The controller of NodeProfiles puts the labels on the Node that the kubelet may not set, as the profile's.
	spec.Labels, spec.Taints, spec.StartupTaints, applied = profile.Register(spec.Labels, spec.Taints, spec.StartupTaints, cannotSet)
	return profiled, applied.String(), nil
}

// cannotSet reports whether a kubelet may not give its Node a label.
func cannotSet(key string) bool {
	return len(bootstrap.SelfSettableLabels(map[string]string{key: ""})) == 0
}
