// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestAddType: a type that is not valid has no servers, also if it had some, and why is said.
func TestAddType(t *testing.T) {
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "metal"}}
	provider.Spec.Metal3.ClusterRef.Namespace = "metal3"
	for name, tc := range map[string]struct {
		reason   string
		change   func(*v1alpha1.NodeType)
		provider *v1alpha1.NodeProvider
		tenant   string
		want     string
		says     string
	}{
		"Valid":       {reason: "its server counts", provider: provider},
		"No provider": {reason: "where its servers are is not known", want: v1alpha1.ReasonProviderNotFound, says: "NodeProvider metal"},
		"Tenant": {reason: "the tenant could read the credentials of the BMCs", provider: provider, tenant: "acme",
			want: v1alpha1.ReasonTenantNamespace, says: "namespace metal3 of the servers has TenantCluster acme"},
		"Devices": {reason: "no driver could publish them", provider: provider, change: func(n *v1alpha1.NodeType) {
			n.Spec.Devices = []v1alpha1.NodeTypeDevice{{Driver: "gpu.example.com", Count: 8,
				Attributes: map[string]v1alpha1.NodeTypeDeviceAttribute{"driverVersion": {Version: ptr.To("newest")}}}}
		}, want: v1alpha1.ReasonInvalidDevices, says: "is not a semantic version"},
		"Selector": {reason: "it selects nothing", provider: provider, change: func(n *v1alpha1.NodeType) {
			n.Spec.BareMetalHosts.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "gpu", Operator: "Like"}}
		}, want: v1alpha1.ReasonInvalidSelector, says: "Like"},
	} {
		t.Run(name, func(t *testing.T) {
			nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}
			nodeType.Spec.ProviderRef.Name = "metal"
			nodeType.Spec.BareMetalHosts = &v1alpha1.HostSelection{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "h100"}},
			}
			inventory := NewInventory(Options{})
			inventory.SetHost(env.AvailableHost("metal3", "s1", map[string]string{"gpu": "h100"}))
			if invalid := inventory.AddType(nodeType, provider, ""); invalid != nil || inventory.Total("h100") != 1 {
				t.Fatalf("%+v and %d servers, want one server", invalid, inventory.Total("h100"))
			}
			if tc.change != nil {
				tc.change(nodeType)
			}
			got, servers := inventory.AddType(nodeType, tc.provider, tc.tenant), int32(1)
			if tc.want != "" {
				servers = 0
			}
			if (got == nil) != (tc.want == "") || got != nil && (got.Reason != tc.want || !strings.Contains(got.Message, tc.says)) {
				t.Errorf("%s: got %+v, want %s with %q", tc.reason, got, tc.want, tc.says)
			}
			if total := inventory.Total("h100"); total != servers {
				t.Errorf("%s: it has %d servers, want %d", tc.reason, total, servers)
			}
		})
	}
}
