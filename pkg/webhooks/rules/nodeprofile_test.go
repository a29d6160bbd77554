// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestNodeProfile(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, spec string
		want         []string
	}{
		"Empty": {"it is valid and does nothing", "{}", nil},
		"Good": {"the reference's example", "{displayName: GPU Training, description: x, nodeLabels: {workload.example.com/class: gpu}, " +
			"nodeAnnotations: {ops.example.com/owner: ml-platform}, taints: [{key: nvidia.com/gpu, value: 'true', effect: NoSchedule}], " +
			"startupTaints: [{key: node.example.com/bootstrap, value: 'true', effect: NoSchedule}]}", nil},
		"Label": {"the API server would refuse the Node", "{nodeLabels: {a b: c, d: e f}}",
			[]string{`spec.nodeLabels["a b"]: Invalid value: "a b": cannot be the key of a label`,
				`spec.nodeLabels["d"]: Invalid value: "e f": cannot be the value of a label`}},
		"Annotation": {"the same", "{nodeAnnotations: {a b: c}}", []string{`spec.nodeAnnotations: Invalid value: "a b"`}},
		"Taint": {"the same", "{taints: [{key: a, effect: Never}], startupTaints: [{key: b c, effect: NoSchedule}]}",
			[]string{`spec.taints[0].effect: Unsupported value: "Never"`, `spec.startupTaints[0].key: Invalid value: "b c"`}},
		"Both": {"it would be taken away, and come back", "{taints: [{key: a, effect: NoSchedule}], startupTaints: [{key: b, effect: " +
			"NoSchedule}, " +
			"{key: a, effect: NoSchedule, value: x}, {key: a, effect: NoExecute}]}",
			[]string{`spec.startupTaints[1]: Invalid value: "a": is one of the taints, too`}},
	} {
		t.Run(name, func(t *testing.T) {
			mentions(t, tc.reason, NodeProfile(newCluster(t), nil, parse[v1alpha1.NodeProfile](t, "{metadata: {name: gpu}, spec: "+tc.spec+"}")),
				tc.want...)
		})
	}
}

func TestNodeProfilesOfATenant(t *testing.T) {
	const denied = ": allowedNodeProfiles of TenantCluster t does not permit NodeProfile "
	for name, tc := range map[string]struct {
		reason, spec string
		want         []string
	}{
		"Unset": {"all are allowed", "privateNodes: {defaultProfile: gpu, autoNodes: [{provider: fleet, static: [{name: a, quantity: 1, " +
			"profile: gpu}], " +
			"dynamic: [{name: b, profile: gpu}]}]}, defaultNodeProfile: gpu", nil},
		"Missing": {"they may come later", "allowedNodeProfiles: [{name: a}, {name: platform.*}], privateNodes: {defaultProfile: " +
			"platform.x, autoNodes: " +
			"[{provider: fleet, dynamic: [{name: b, profile: a}]}]}, defaultNodeProfile: platform.y",
			[]string{`warning: spec.allowedNodeProfiles[0].name: there is no NodeProfile "a" yet`,
				`warning: spec.defaultNodeProfile: there is no NodeProfile "platform.y" yet: the nodes get no servers before there is`,
				`warning: spec.privateNodes.defaultProfile: there is no NodeProfile "platform.x" yet`,
				`warning: ` + autoNodesAt + `.dynamic[0].profile: there is no NodeProfile "a" yet`}},
		"None": {"an empty list allows none, and the default must be allowed",
			"allowedNodeProfiles: [], privateNodes: {defaultProfile: gpu, autoNodes: " +
				"[{provider: fleet, static: [{name: a, quantity: 1, profile: gpu}]}]}, defaultNodeProfile: gpu",
			[]string{`spec.defaultNodeProfile: Invalid value: "gpu"` + denied, `spec.privateNodes.defaultProfile: Invalid value: "gpu"` + denied,
				autoNodesAt + `.static[0].profile: Invalid value: "gpu"` + denied + `"gpu": name another, or have it extended`}},
		"NoDot": {"it looks like a pattern", "allowedNodeProfiles: [{name: gpu-*}]",
			[]string{`warning: spec.allowedNodeProfiles[0].name: "gpu-*" allows nothing: a name is exact, and only one that ends in .* stands ` +
				`for several`}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t)
			cluster.exists[KindNodeProfile] = []string{"gpu"}
			mentions(t, tc.reason, TenantCluster(cluster, open, tenantWith(t, "c", tc.spec)), tc.want...)
		})
	}
}

func TestNodeProfileOfAMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, machine string
		want            []string
	}{
		"Good": {"the tenant may have it", "tenantClusterRef: {name: a}, nodeTypeRef: {name: h100}, profileRef: {name: gpu}", nil},
		"Missing": {"it may come later", "tenantClusterRef: {name: a}, nodeTypeRef: {name: h100}, profileRef: {name: later}",
			[]string{`warning: spec.profileRef.name: there is no NodeProfile "later" yet`}},
		"NotAllowed": {"the tenant may not have it", "tenantClusterRef: {name: a}, nodeTypeRef: {name: h100}, profileRef: {name: other}",
			[]string{`spec.profileRef.name: Invalid value: "other": allowedNodeProfiles of TenantCluster a does not permit`}},
		"StandAlone": {"there is no node", "nodeTypeRef: {name: h100}, profileRef: {name: other}",
			[]string{"warning: spec.profileRef.name: has no effect: without tenantClusterRef the server becomes no node"}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t)
			cluster.exists[KindNodeProfile] = []string{"gpu", "other"}
			tenant := cluster.tenants[0].DeepCopy()
			tenant.Spec.AllowedNodeProfiles = &[]v1alpha1.NameReference{{Name: "gpu"}, {Name: "later"}}
			cluster.tenants[0] = tenant
			after := parse[v1alpha1.Machine](t, "{metadata: {namespace: a, name: m}, spec: {"+tc.machine+"}}")
			mentions(t, tc.reason, Machine(cluster, nil, after), tc.want...)
			before := after.DeepCopy()
			before.Spec.ProfileRef = nil
			mentions(t, "a change is looked at, too: "+tc.reason, Machine(cluster, before, after), tc.want...)
			mentions(t, "what has not changed is not", Machine(cluster, after, after))
		})
	}
}
