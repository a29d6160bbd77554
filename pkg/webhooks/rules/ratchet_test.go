// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestRatchet: the server that a static pool is pinned to has died for good, and its BareMetalHost was deleted. A property is of an older
// version.
func TestRatchet(t *testing.T) {
	const (
		gone = `warning: spec.privateNodes.autoNodes[0].static[0].properties["karpenter.metal3.io/server-name"]: it was so before this edit: ` +
			`Invalid value: "h1": there is no BareMetalHost of this name in namespace metal3-system`
		tag = `warning: spec.privateNodes.autoNodes[0].properties["karpenter.metal3.io/image-url"]: it was so before this edit: `
	)
	static := func(name, server string) v1alpha1.StaticNodes {
		pool := v1alpha1.StaticNodes{Quantity: 1}
		pool.Name, pool.Properties = name, map[string]string{v1alpha1.PropertyServerName: server}
		return pool
	}
	for name, tc := range map[string]struct {
		reason string
		edit   func(*v1alpha1.TenantCluster, *v1alpha1.AutoNodes)
		want   []string
	}{
		"Other field": {"the pool is as it was", func(tenant *v1alpha1.TenantCluster, _ *v1alpha1.AutoNodes) {
			tenant.Spec.Quota.Servers = ptr.To(int64(8))
		}, []string{tag, gone}},
		"Moved": {"the pool is as it was, in another place of the list", func(_ *v1alpha1.TenantCluster, entry *v1alpha1.AutoNodes) {
			entry.Static = slices.Insert(entry.Static, 0, static("first", "h2"))
		}, []string{`warning: spec.privateNodes.autoNodes[0].static[0].properties["karpenter.metal3.io/server-name"]: server h2`, tag,
			`warning: spec.privateNodes.autoNodes[0].static[1].properties["karpenter.metal3.io/server-name"]: it was so before this edit: `}},
		"Wrong edit": {"the new pool never works, either", func(_ *v1alpha1.TenantCluster, entry *v1alpha1.AutoNodes) {
			entry.Static = append(entry.Static, static("second", "h9"))
		}, []string{`static[1].properties["karpenter.metal3.io/server-name"]: Invalid value: "h9": there is no BareMetalHost`, tag, gone}},
		"Wrong again": {"one pool was so, and two are", func(_ *v1alpha1.TenantCluster, entry *v1alpha1.AutoNodes) {
			entry.Static = append(entry.Static, static("again", "h1"))
		}, []string{"is pinned to this server already",
			`static[1].properties["karpenter.metal3.io/server-name"]: Invalid value: "h1": there is no BareMetalHost`, tag, gone}},
		"Corrected": {"nothing is left to say", func(_ *v1alpha1.TenantCluster, entry *v1alpha1.AutoNodes) {
			entry.Static, entry.Properties = nil, nil
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t)
			before := parse[v1alpha1.TenantCluster](t, `{metadata: {namespace: c, name: c}, spec: {apiServerEndpoint: 'c:6443', `+
				`quota: {servers: 4}, `+anyProperty+
				`, allowedNodeTypes: [h100], privateNodes: {autoNodes: [{provider: fleet, properties: {karpenter.metal3.io/image-url: `+
				`'oci://r/os:1@sha256:abababababababababababababababababababababababababababababababab'}, static: [{name: s, quantity: 1, properties: `+
				`{karpenter.metal3.io/server-name: h1}}]}]}}}`)
			cluster.inventory.DeleteHost(types.NamespacedName{Namespace: "metal3-system", Name: "h1"})
			if created := Ratchet(TenantCluster)(cluster, nil, before); created.Allowed() {
				t.Errorf("a new TenantCluster is judged as a whole: %v", linesOf(created))
			}
			after := before.DeepCopy()
			tc.edit(after, &after.Spec.PrivateNodes.AutoNodes[0])
			mentions(t, tc.reason, Ratchet(TenantCluster)(cluster, before, after), tc.want...)
		})
	}
}
