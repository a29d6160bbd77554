// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"math"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/samber/lo"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// made is a NodeType that a NodeProvider has made.
func made(name string) *v1alpha1.NodeType {
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: env.MadeBy("provider")}}
	nodeType.Spec.ProviderRef.Name = "provider"
	return nodeType
}

// TestAllowanceByHand: a NodeType that was made by hand over the servers of others counts for nothing, unless the
// tenant may have it.
func TestAllowanceByHand(t *testing.T) {
	byHand := made("by-hand")
	byHand.OwnerReferences = nil
	nodeTypes := []*v1alpha1.NodeType{made("small"), byHand}
	total := func(string) int32 { return 50 }
	for name, tc := range map[string]struct {
		reason  string
		allowed *[]string
		want    int64
	}{
		"All":        {"all are those that NodeProviders have made", nil, 50},
		"OfProvider": {"it is not the provider's", &[]string{"provider.*"}, 50},
		"Named":      {"the platform has named it", &[]string{"by-hand"}, 50},
		"Both":       {"it may have both", &[]string{"by-hand", "small"}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			tenant := v1alpha1.TenantCluster{Spec: v1alpha1.TenantClusterSpec{AllowedNodeTypes: tc.allowed}}
			if got := Allowance([]*v1alpha1.TenantCluster{&tenant}, nodeTypes, total); got != tc.want {
				t.Errorf("%s: got %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

func TestAllowance(t *testing.T) {
	limited := func(servers int64) v1alpha1.TenantCluster {
		return v1alpha1.TenantCluster{Spec: v1alpha1.TenantClusterSpec{Quota: &v1alpha1.Quota{Servers: &servers}}}
	}
	unlimited := v1alpha1.TenantCluster{Spec: v1alpha1.TenantClusterSpec{AllowedNodeTypes: &[]string{"small"}}}
	gpus := v1alpha1.TenantCluster{Spec: v1alpha1.TenantClusterSpec{Quota: &v1alpha1.Quota{GPUs: ptr.To(int64(1))}}}
	ofType := func(nodeType string, servers v1alpha1.ServerCount) v1alpha1.TenantCluster {
		return v1alpha1.TenantCluster{Spec: v1alpha1.TenantClusterSpec{
			Quota: &v1alpha1.Quota{NodeTypes: map[string]v1alpha1.ServerCount{nodeType: servers}}}}
	}
	nodeTypes := []*v1alpha1.NodeType{made("small"), made("large")}
	total := func(nodeType string) int32 { return map[string]int32{"small": 50, "large": 100}[nodeType] }
	for name, tc := range map[string]struct {
		reason  string
		tenants []v1alpha1.TenantCluster
		want    int64
	}{
		"Quota": {"its quota is what it may have", []v1alpha1.TenantCluster{limited(100)}, 100},
		"Types": {"of a type no more than its quota, which has no bound on the other",
			[]v1alpha1.TenantCluster{ofType("large", 30)}, 80},
		"TypesLess":  {"there are fewer than the quota", []v1alpha1.TenantCluster{ofType("small", 80)}, 150},
		"None":       {"without a quota, all servers that it may have", []v1alpha1.TenantCluster{unlimited}, 50},
		"GPUs":       {"a quota of accelerators says nothing of servers", []v1alpha1.TenantCluster{gpus}, 150},
		"Two":        {"two tenants share a namespace", []v1alpha1.TenantCluster{limited(5), unlimited}, 55},
		"StandAlone": {"there is no tenant", nil, 150},
		"Huge": {"the sum does not overflow", []v1alpha1.TenantCluster{limited(math.MaxInt64), limited(math.MaxInt64)},
			2 * math.MaxInt32},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Allowance(lo.ToSlicePtr(tc.tenants), nodeTypes, total); got != tc.want {
				t.Errorf("%s: got %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
}
