// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
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
	const first = "{provider: fleet, static: [{name: s, quantity: 2}], dynamic: [{name: d}]}"
	const second = "{provider: fleet, dynamic: [{name: e}]}"
	const twinStatic, twinDynamic = "{provider: fleet, static: [{name: a, quantity: 1}]}", "{provider: fleet, dynamic: [{name: a}]}"
	const machines = "s:2 d:3 e:1"
	base, disabled := tenanttest.PrivateNodes(first, second), strings.Replace(tenanttest.PrivateNodes(first), "{", "{enabled: false, ", 1)
	twin := tenanttest.PrivateNodes("{provider: fleet, static: [{name: a, quantity: 1}], dynamic: [{name: a}]}")
	cases := tenanttest.PoolEdits("fleet")
	maps.Copy(cases, map[string]tenanttest.PoolEdit{
		// The webhook knows the names of these NodePools by the Machines alone.
		"TwinHadDynamic": {Reason: "the dynamic one had the short name first", Before: twin, After: tenanttest.PrivateNodes(twinStatic),
			Machines: "a:2 a-static:1", Lost: []string{"a"}, Servers: 2},
		"TwinStays": {Reason: "both have their names", Before: twin, After: twin, Machines: "a:2 a-static:1"},
		"TwinAdded": {Reason: "the pool that had the name keeps it", Before: tenanttest.PrivateNodes(twinDynamic), After: twin, Machines: "a:2"},
		"LongNameKept": {Reason: "the entry that is called so has the NodePool", Before: twin, Machines: "a:2 a-dynamic:1",
			After: tenanttest.PrivateNodes("{provider: fleet, static: [{name: a, quantity: 1}], dynamic: [{name: a-dynamic}]}")},
		// These change nothing for the provider.
		"Same":        {Reason: "nothing changes", Before: base, After: base, Machines: machines},
		"Enabled":     {Reason: "as before", Before: base, After: strings.Replace(base, "{", "{enabled: true, ", 1), Machines: machines},
		"Reordered":   {Reason: "the order does not matter", Before: base, After: tenanttest.PrivateNodes(second, first), Machines: machines},
		"NeverThere":  {Reason: "the tenant manages its own pools", Machines: machines},
		"WasDisabled": {Reason: "its pools went before", Before: disabled, Machines: machines},
	})
	spec := func(privateNodes, otherwise string) string {
		if privateNodes == "" {
			return otherwise
		}
		return "privateNodes: " + privateNodes
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			right := strconv.Itoa(tc.Servers)
			for _, confirmed := range []string{"", right, strconv.Itoa(tc.Servers + 1), strconv.Itoa(tc.Servers - 1), "0" +
				right, "true", "any", "Any"} {
				admitted := tc.Servers == 0 || confirmed == right || confirmed == "any"
				cluster := newCluster(t)
				cluster.machinesOf(t, tc.Machines+" unknown:4")
				before, after := tenantWith(t, "c", spec(tc.Before, "")), tenantWith(t, "c", spec(tc.After, "quota: {servers: 9}"))
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
					t.Fatalf("%s: with the confirmation %q: admitted: %t, want %t: %v", tc.Reason, confirmed, result.Allowed(), admitted,
						linesOf(result))
				}
				for _, want := range []string{
					fmt.Sprintf("%d of its servers would be released with NodePool %s, and their nodes drained", tc.Servers, strings.Join(tc.Lost, ", ")),
					fmt.Sprintf("confirm.karpenter.metal3.io/delete-machines=%d; or, where a tool such as Argo CD, Flux or "+
						"Terraform deletes, have it first "+
						"apply the annotation confirm.karpenter.metal3.io/delete-machines: any", tc.Servers),
				} {
					if !admitted && (!strings.Contains(result.Refusal, want) ||
						!slices.Contains(result.Denied, RuleInUse)) {
						t.Errorf("%s: got %q, want %q in it", tc.Reason, result.Refusal, want)
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
