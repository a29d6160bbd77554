// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
)

// TooManyPending implements rules.Cluster.
func (v *View) TooManyPending(namespace string) string {
	machines := &v1alpha1.MachineList{}
	v.list(machines, client.InNamespace(namespace))
	have, wait := int64(0), int64(0)
	for i := range machines.Items {
		if machines.Items[i].Status.HostRef != nil { // the manager alone writes the status
			have++
		} else {
			wait++
		}
	}
	if quota.MayWait(0, 0, wait) {
		return ""
	}
	if quota.MayWait(quota.Allowance(v.TenantClusters(namespace), v.NodeTypes(), v.Total), have, wait) {
		return ""
	}
	return quota.TooManyPending(namespace)
}
