// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAllows(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		allowed *[]string
		want    bool
		// byHand is whether it may have the type if no NodeProvider lists that.
		byHand bool
	}{
		"Unset":      {"a tenant without a list may have everything that NodeProviders list", nil, true, false},
		"Empty":      {"an empty list is a list with nothing on it", &[]string{}, false, false},
		"ByName":     {"the type itself is listed", &[]string{"cpu", "h100-8x"}, true, true},
		"ByProvider": {"all types of its provider are listed", &[]string{"metal.*"}, true, false},
		"Qualified":  {"the type itself is listed, with its provider", &[]string{"metal.h100-8x"}, true, false},
		"OtherQualified": {"the type of this name of another provider", &[]string{"other.h100-8x", "metal.h100", "metal.h100-8x.*"}, false,
			false},
		"OtherProvider": {"the star is for that provider only", &[]string{"other.*"}, false, false},
		"Prefix":        {"the name before the star is a whole name", &[]string{"met.*", "h100.*", "*", ".*"}, false, false},
		"ProviderName":  {"a provider without the star is the name of a type", &[]string{"metal"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &TenantCluster{Spec: TenantClusterSpec{AllowedNodeTypes: tc.allowed}}
			if got := cluster.Allows("h100-8x", "metal"); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
			if got := cluster.Allows("h100-8x", ""); got != tc.byHand {
				t.Errorf("%s: made by hand: got %v, want %v", tc.reason, got, tc.byHand)
			}
		})
	}
}

// TestAllowsDots: names of NodeTypes and NodeProviders may have dots, and what reads as both is both.
func TestAllowsDots(t *testing.T) {
	cluster := &TenantCluster{Spec: TenantClusterSpec{AllowedNodeTypes: &[]string{"gpu.h100.v2"}}}
	for name, tc := range map[string]struct {
		reason, nodeType, madeBy string
		want                     bool
	}{
		"Exact":       {"a type of that name, of any provider", "gpu.h100.v2", "metal", true},
		"ByHand":      {"a type of that name that was made by hand", "gpu.h100.v2", "", true},
		"DotInType":   {"the provider gpu's type h100.v2", "h100.v2", "gpu", true},
		"DotInMaker":  {"the provider gpu.h100's type v2", "v2", "gpu.h100", true},
		"HandNoMaker": {"a type that was made by hand has no provider", "h100.v2", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cluster.Allows(tc.nodeType, tc.madeBy); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// TestMadeBy: only what the NodeProvider lists and owns counts as its own. Any author of a NodeType can write its providerRef and its
// owner references.
func TestMadeBy(t *testing.T) {
	provider := &NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "metal", UID: "u"}}
	provider.Spec.Metal3.NodeTypes = []NodeTypeTemplate{{Name: "h100-8x"}}
	for name, tc := range map[string]struct {
		reason, name string
		change       func(*NodeType)
		makes        bool
		madeBy       string
	}{
		"Listed":   {"the manager has made it", "h100-8x", func(*NodeType) {}, true, "metal"},
		"Unlisted": {"its author has written the owner reference", "aa", func(*NodeType) {}, false, "metal"},
		"ByHand":   {"it has no owner", "h100-8x", func(n *NodeType) { n.OwnerReferences = nil }, false, ""},
		"OtherUID": {"it is of a NodeProvider of this name that is gone", "h100-8x",
			func(n *NodeType) { n.OwnerReferences[0].UID = "old" }, false, "metal"},
		"NoController": {"an owner is not the one who decides", "h100-8x",
			func(n *NodeType) { n.OwnerReferences[0].Controller = nil }, false, ""},
		"OtherProvider": {"it refers to another", "h100-8x", func(n *NodeType) { n.Spec.ProviderRef.Name = "other" }, false, ""},
		"OtherKind":     {"its owner is another kind", "h100-8x", func(n *NodeType) { n.OwnerReferences[0].Kind = "Node" }, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			nodeType := &NodeType{ObjectMeta: metav1.ObjectMeta{Name: tc.name, OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(provider, GroupVersion.WithKind("NodeProvider"))}}}
			nodeType.Spec.ProviderRef.Name = provider.Name
			tc.change(nodeType)
			if got := provider.Makes(nodeType); got != tc.makes {
				t.Errorf("%s: Makes is %v, want %v", tc.reason, got, tc.makes)
			}
			if got := nodeType.MadeBy(); got != tc.madeBy {
				t.Errorf("%s: MadeBy is %q, want %q", tc.reason, got, tc.madeBy)
			}
		})
	}
}
