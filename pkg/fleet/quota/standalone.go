// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/samber/lo"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// ChargedTo returns the TenantCluster that a Machine is charged to; tenants are the TenantClusters of its namespace.
// The Machine's server counts in this tenant's quota, is of a type that it may have, comes into its network, and is
// released with it. A Machine that names a TenantCluster is charged to that. Otherwise it is charged to the one that
// allows stand-alone Machines. If none does, or several do, the Machine gets no new server, but may have one from
// before. Then it is charged to the first by name that is not being deleted, or else to the first, so that no Machine
// is charged to nothing and outlives the last. ChargedTo returns nil if there is no TenantCluster.
func ChargedTo(machine *v1alpha1.Machine, tenants []*v1alpha1.TenantCluster) *v1alpha1.TenantCluster {
	if reference := machine.Spec.TenantClusterRef; reference != nil {
		named, _ := lo.Find(tenants, func(tenant *v1alpha1.TenantCluster) bool { return tenant.Name == reference.Name })
		return named
	}
	if len(tenants) == 0 {
		return nil
	}
	rank := func(tenant *v1alpha1.TenantCluster) int {
		rank := 0
		if tenant.Spec.StandAloneMachines != v1alpha1.StandAloneAllowed {
			rank += 2
		}
		if !tenant.DeletionTimestamp.IsZero() {
			rank++
		}
		return rank
	}
	return slices.MinFunc(tenants, func(a, b *v1alpha1.TenantCluster) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
}

// StandAloneProblem returns why a Machine gets no server because it names no TenantCluster, empty if it may have one.
// The tenants and the labels are taken from its namespace; only the platform can set the labels.
func StandAloneProblem(machine *v1alpha1.Machine, tenants []*v1alpha1.TenantCluster, labels map[string]string) string {
	if machine.Spec.TenantClusterRef != nil {
		return ""
	}
	if len(tenants) == 0 {
		if labels[v1alpha1.StandAloneMachinesLabelKey] == v1alpha1.StandAloneMachinesLabelValue {
			return ""
		}
		const label = v1alpha1.StandAloneMachinesLabelKey + "=" + v1alpha1.StandAloneMachinesLabelValue
		return fmt.Sprintf("there is no TenantCluster in namespace %s, and the namespace does not have the label %s: name a "+
			"TenantCluster in spec.tenantClusterRef, or have the label set: %s",
			machine.Namespace, label, shell.Command("kubectl label namespace %s %s", machine.Namespace, label))
	}
	allowing := lo.FilterMap(tenants, func(tenant *v1alpha1.TenantCluster, _ int) (string, bool) {
		return tenant.Name, tenant.Spec.StandAloneMachines == v1alpha1.StandAloneAllowed
	})
	switch len(allowing) {
	case 1:
		return ""
	case 0:
		return fmt.Sprintf("no TenantCluster in namespace %s has spec.standAloneMachines %s: name a TenantCluster in "+
			"spec.tenantClusterRef, or have it set on the one whose quota is to count the server", machine.Namespace, v1alpha1.StandAloneAllowed)
	}
	slices.Sort(allowing)
	return fmt.Sprintf("TenantClusters %s and %s in namespace %s both have spec.standAloneMachines %s: name one in spec.tenantClusterRef, or "+
		"have it set on one of them only", allowing[0], allowing[1], machine.Namespace, v1alpha1.StandAloneAllowed)
}

// Unbound reports whether a Machine is charged to no tenant, but may have servers because the platform trusts its
// namespace. The tenants and the labels are taken from the namespace.
func Unbound(machine *v1alpha1.Machine, tenants []*v1alpha1.TenantCluster, labels map[string]string) bool {
	return machine.Spec.TenantClusterRef == nil && len(tenants) == 0 && StandAloneProblem(machine, tenants, labels) == ""
}
