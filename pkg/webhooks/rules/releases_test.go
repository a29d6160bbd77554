// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// machinesOf adds Machines of the TenantCluster c/t, as "pool:count" or "pool:count:type".
func (m *memory) machinesOf(t *testing.T, pools string) {
	t.Helper()
	for _, entry := range strings.Fields(pools) {
		parts := append(strings.Split(entry, ":"), "h100")
		count, err := strconv.Atoi(parts[1])
		if err != nil {
			t.Fatal(err)
		}
		for i := range count {
			name := fmt.Sprintf("%s-%s-%d", parts[0], parts[2], i)
			machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "c", Name: name, UID: types.UID(name),
				Labels: map[string]string{"karpenter.sh/nodepool": parts[0]}}}
			machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "t"}
			machine.Status.HostRef, machine.Status.NodeTypeRef = &v1alpha1.HostReference{Name: "h"}, &v1alpha1.NameReference{Name: parts[2]}
			m.machines = append(m.machines, machine)
		}
	}
}

// TestReleases: every edit of a TenantCluster because of which the provider deletes or recreates a NodePool with Machines is refused
// without the annotation that has their number, and admitted with it.
func TestReleases(t *testing.T) {
	privateNodes := func(autoNodes string) string { return "privateNodes: {autoNodes: [" + autoNodes + "]}" }
	const first = "{provider: fleet, static: [{name: s, quantity: 2}], dynamic: [{name: d}, {name: idle}]}"
	const second = "{provider: fleet, dynamic: [{name: e}]}"
	base := privateNodes(first + ", " + second)
	const machines = "s:2 d:3 e:1 unknown:4"
	const twinStatic, twinDynamic = "{provider: fleet, static: [{name: a, quantity: 1}]}", "{provider: fleet, dynamic: [{name: a}]}"
	const twin = "{provider: fleet, static: [{name: a, quantity: 1}], dynamic: [{name: a}]}"
	for name, tc := range map[string]struct {
		reason, before, machines, after string
		// want is how many servers are released, and from which NodePools.
		want      int
		nodePools string
	}{
		"PrivateNodesGone": {"every pool goes", base, machines, "", 6, "NodePool d, e, s"},
		"Disabled":         {"every pool goes", base, machines, strings.Replace(base, "{", "{enabled: false, ", 1), 6, "NodePool d, e, s"},
		"AutoNodesEmpty":   {"every pool goes", base, machines, privateNodes(""), 6, "NodePool d, e, s"},
		"AutoNodesMissing": {"every pool goes", base, machines, "privateNodes: {}", 6, "NodePool d, e, s"},
		"EntryGone":        {"its pools go", base, machines, privateNodes(first), 1, "NodePool e"},
		"EntryWithoutPools": {"its pools go", base, machines, privateNodes("{provider: fleet}, " + second), 5,
			"NodePool d, s"},
		"StaticGone":  {"one pool goes", base, machines, strings.Replace(base, "{name: s, quantity: 2}", "", 1), 2, "NodePool s"},
		"DynamicGone": {"one pool goes", base, machines, strings.Replace(base, "{name: d}, ", "", 1), 3, "NodePool d"},
		"Renamed":     {"the pool of the old name goes", base, machines, strings.Replace(base, "{name: d}", "{name: dd}", 1), 3, "NodePool d"},
		"StaticToDynamic": {"the NodePool is recreated", privateNodes("{provider: fleet, static: [{name: s, quantity: 2}]}"), "s:2",
			privateNodes("{provider: fleet, dynamic: [{name: s}]}"), 2, "NodePool s"},
		"DynamicToStatic": {"the NodePool is recreated", privateNodes("{provider: fleet, dynamic: [{name: d}]}"), "d:3",
			privateNodes("{provider: fleet, static: [{name: d, quantity: 3}]}"), 3, "NodePool d"},
		"NamesExchanged": {"both NodePools are recreated", base, machines,
			strings.NewReplacer("name: s,", "name: d,", "name: d}", "name: s}").Replace(base), 5, "NodePool d, s"},
		"MovedAndTurned": {"it is in another entry, and of the other kind", base, machines,
			privateNodes("{provider: fleet, dynamic: [{name: d}]}, {provider: fleet, dynamic: [{name: e}, {name: s}]}"), 2, "NodePool s"},
		"OneIsIdle":      {"only those with Machines are named", base, machines, privateNodes(second), 5, "NodePool d, s"},
		"TwinStaticGone": {"it has the short name", privateNodes(twin), "a:2 a-dynamic:1", privateNodes(twinDynamic), 2, "NodePool a"},
		"TwinDynamicGone": {"it has the long name", privateNodes(twin), "a:2 a-dynamic:1", privateNodes(twinStatic), 1,
			"NodePool a-dynamic"},
		"TwinHadDynamic": {"the dynamic one had the short name first", privateNodes(twin), "a:2 a-static:1",
			privateNodes(twinStatic), 2, "NodePool a"},
		"LongNameTaken": {"the NodePool of a dynamic pool becomes that of a static one", privateNodes(twin), "a:2 a-dynamic:1",
			privateNodes("{provider: fleet, static: [{name: a, quantity: 1}, {name: a-dynamic, quantity: 1}]}"), 1, "NodePool a-dynamic"},

		"Same":      {"nothing changes", base, machines, base, 0, ""},
		"Enabled":   {"as before", base, machines, strings.Replace(base, "{", "{enabled: true, ", 1), 0, ""},
		"Quantity":  {"a scale-down says how many servers stay", base, machines, strings.Replace(base, "quantity: 2", "quantity: 1", 1), 0, ""},
		"Added":     {"a pool more", base, machines, strings.Replace(base, "{name: d}", "{name: d}, {name: new}", 1), 0, ""},
		"Reordered": {"the order does not matter", base, machines, privateNodes(second + ", " + first), 0, ""},
		"Moved": {"its NodePool stays", base, machines, privateNodes("{provider: fleet, static: [{name: s, quantity: 2}]}, " +
			"{provider: fleet, dynamic: [{name: e}, {name: d}]}"), 0, ""},
		"Provider":    {"its nodes drift within budgets", base, machines, strings.ReplaceAll(base, "provider: fleet", "provider: other"), 0, ""},
		"IdleGone":    {"it has no Machines", base, machines, strings.Replace(base, ", {name: idle}", "", 1), 0, ""},
		"IdleRenamed": {"it has no Machines", base, machines, strings.Replace(base, "name: idle", "name: other", 1), 0, ""},
		"IdleTurned": {"it has no Machines", base, machines,
			strings.NewReplacer(", {name: idle}", "", "quantity: 2}", "quantity: 2}, {name: idle, quantity: 0}").Replace(base), 0, ""},
		"NoMachines":  {"no server is released", base, "", "", 0, ""},
		"NeverThere":  {"the tenant manages its own pools", "", machines, "quota: {servers: 9}", 0, ""},
		"WasDisabled": {"its pools went before", strings.Replace(base, "{", "{enabled: false, ", 1), machines, "", 0, ""},
		"TwinStays":   {"both have their names", privateNodes(twin), "a:2 a-static:1", privateNodes(twin), 0, ""},
		"TwinAdded":   {"the pool that had the name keeps it", privateNodes(twinDynamic), "a:2", privateNodes(twin), 0, ""},
		"LongNameKept": {"the entry that is called so has the NodePool", privateNodes(twin), "a:2 a-dynamic:1",
			privateNodes("{provider: fleet, static: [{name: a, quantity: 1}], dynamic: [{name: a-dynamic}]}"), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			right := strconv.Itoa(tc.want)
			for _, confirmed := range []string{"", right, strconv.Itoa(tc.want + 1), strconv.Itoa(tc.want - 1), "0" + right, "true"} {
				admitted := tc.want == 0 || confirmed == right
				cluster := newCluster(t)
				cluster.machinesOf(t, tc.machines)
				before, after := tenantWith(t, "c", tc.before), tenantWith(t, "c", tc.after)
				cluster.tenants = append(cluster.tenants, before)
				// Machines of others: a tenant of another name, and one without a tenant.
				for _, other := range []*v1alpha1.NameReference{{Name: "other"}, nil} {
					machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "c", Name: "foreign"}}
					if machine.Spec.TenantClusterRef = other; other != nil {
						machine.Labels = map[string]string{"karpenter.sh/nodepool": "d"}
					}
					cluster.machines = append(cluster.machines, machine)
				}
				after.Annotations = map[string]string{v1alpha1.ConfirmDeleteMachinesAnnotationKey: confirmed}
				result := TenantCluster(cluster, before, after)
				if result.Allowed() != admitted || len(result.Errors) > 0 {
					t.Fatalf("%s: with the confirmation %q: admitted: %t, want %t: %v", tc.reason, confirmed, result.Allowed(), admitted,
						linesOf(result))
				}
				for _, want := range []string{
					fmt.Sprintf("%d of its servers would be released with %s, and their nodes drained", tc.want, tc.nodePools),
					fmt.Sprintf("confirm.karpenter.metal3.io/delete-machines=%d", tc.want),
				} {
					if !admitted && (!strings.Contains(result.Refusal, want) ||
						!slices.Contains(result.Denied, RuleInUse)) {
						t.Errorf("%s: got %q, want %q in it", tc.reason, result.Refusal, want)
					}
				}
			}
		})
	}
}

// TestNodeTypeDisallowed: Machines of a type that is not allowed any more drift.
func TestNodeTypeDisallowed(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, before, after string
		want                  []string
	}{
		"Lost": {"the tenant has two of it", "[h100, cpu]", "[h100]", []string{"warning: spec.allowedNodeTypes: does not allow NodeType cpu " +
			"any more, and the tenant has servers of it (2): Karpenter replaces their nodes as drifted (InstanceTypeNotFound): " +
			"allow it to keep them"}},
		"LostBoth": {"each is warned of", "[fleet.*]", "[]", []string{"warning: spec.allowedNodeTypes: does not allow NodeType cpu any more",
			"warning: spec.allowedNodeTypes: does not allow NodeType h100 any more, and the tenant has servers of it (1): "}},
		"Kept":        {"named otherwise", "[fleet.*]", "[fleet.h100, cpu]", nil},
		"Unused":      {"it has no server of it", "[h100, cpu, fleet.b200]", "[h100, cpu]", nil},
		"LostAlready": {"this write does not change it", "[h100]", "[h100]", nil},
		"Unknown":     {"the NodeType does not exist", "[h100, cpu, gone]", "[h100, cpu]", nil},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t)
			cluster.machinesOf(t, "d:2:cpu d:1:h100 d:1:gone")
			before, after := tenantWith(t, "c", "allowedNodeTypes: "+tc.before), tenantWith(t, "c", "allowedNodeTypes: "+tc.after)
			cluster.tenants = append(cluster.tenants, before)
			result := TenantCluster(cluster, before, after)
			mentions(t, tc.reason, Result{Warned: result.Warned, Warnings: slices.DeleteFunc(result.Warnings, func(line string) bool {
				return strings.Contains(line, "there is no NodeType")
			})}, tc.want...)
		})
	}
}
