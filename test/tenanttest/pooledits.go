// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenanttest

import "strings"

// PoolEdit is an edit of spec.privateNodes of a TenantCluster, and what it does to the NodePools. The webhook and the provider must agree
// about it.
type PoolEdit struct {
	Reason string
	// Before and After are spec.privateNodes as YAML, empty for none.
	Before, After string
	// Machines are those of each NodePool, as "pool:count".
	Machines string
	// Lost are the NodePools with Machines that are deleted, recreated or emptied, sorted, and Servers is how many
	// Machines they have.
	Lost    []string
	Servers int
}

// PrivateNodes is spec.privateNodes with these autoNodes.
func PrivateNodes(autoNodes ...string) string {
	return "{autoNodes: [" + strings.Join(autoNodes, ", ") + "]}"
}

// PoolEdits are the edits that delete, recreate or empty NodePools, and those that come near. The pools are of a
// NodeProvider of that name.
func PoolEdits(provider string) map[string]PoolEdit {
	entry := func(pools string) string { return "{provider: " + provider + ", " + pools + "}" }
	first, second := entry("static: [{name: s, quantity: 2}], dynamic: [{name: d}, {name: idle}]"), entry("dynamic: [{name: e}]")
	base, machines := PrivateNodes(first, second), "s:2 d:3 e:1"
	replace := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(base) }
	twinStatic, twinDynamic := entry("static: [{name: a, quantity: 1}]"), entry("dynamic: [{name: a}]")
	twin, twins := PrivateNodes(entry("static: [{name: a, quantity: 1}], dynamic: [{name: a}]")), "a:2 a-dynamic:1"
	every := []string{"d", "e", "s"}
	return map[string]PoolEdit{
		"PrivateNodesGone":  {"every pool goes", base, "", machines, every, 6},
		"Disabled":          {"every pool goes", base, replace("{autoNodes", "{enabled: false, autoNodes"), machines, every, 6},
		"AutoNodesEmpty":    {"every pool goes", base, PrivateNodes(), machines, every, 6},
		"AutoNodesMissing":  {"every pool goes", base, "{}", machines, every, 6},
		"EntryGone":         {"its pools go", base, PrivateNodes(first), machines, []string{"e"}, 1},
		"EntryWithoutPools": {"its pools go", base, PrivateNodes("{provider: "+provider+"}", second), machines, []string{"d", "s"}, 5},
		"StaticGone":        {"one pool goes", base, replace("{name: s, quantity: 2}", ""), machines, []string{"s"}, 2},
		"DynamicGone":       {"one pool goes", base, replace("{name: d}, ", ""), machines, []string{"d"}, 3},
		"Renamed":           {"the pool of the old name goes", base, replace("{name: d}", "{name: dd}"), machines, []string{"d"}, 3},
		"StaticToDynamic": {"the NodePool is recreated", PrivateNodes(entry("static: [{name: s, quantity: 2}]")),
			PrivateNodes(entry("dynamic: [{name: s}]")), "s:2", []string{"s"}, 2},
		"DynamicToStatic": {"the NodePool is recreated", PrivateNodes(entry("dynamic: [{name: d}]")),
			PrivateNodes(entry("static: [{name: d, quantity: 3}]")), "d:3", []string{"d"}, 3},
		"NamesExchanged": {"both NodePools are recreated", base, replace("name: s,", "name: d,", "name: d}", "name: s}"), machines,
			[]string{"d", "s"}, 5},
		"MovedAndTurned": {"it is in another entry, and of the other kind", base,
			PrivateNodes(entry("dynamic: [{name: d}, {name: idle}]"), entry("dynamic: [{name: e}, {name: s}]")), machines, []string{"s"}, 2},
		"OneIsIdle":       {"only those with Machines are named", base, PrivateNodes(second), machines, []string{"d", "s"}, 5},
		"TwinStaticGone":  {"it has the short name", twin, PrivateNodes(twinDynamic), twins, []string{"a"}, 2},
		"TwinDynamicGone": {"it has the long name", twin, PrivateNodes(twinStatic), twins, []string{"a-dynamic"}, 1},
		"LongNameTaken": {"the NodePool of a dynamic pool becomes that of a static one", twin,
			PrivateNodes(entry("static: [{name: a, quantity: 1}, {name: a-dynamic, quantity: 1}]")), twins, []string{"a-dynamic"}, 1},

		"QuantityZero": {"no server stays, as if the pool were removed", base, replace("quantity: 2", "quantity: 0"),
			machines, []string{"s"}, 2},
		"EmptiedAndOther": {"both go", base, PrivateNodes(strings.ReplaceAll(first, "quantity: 2", "quantity: 0")),
			machines, []string{"e", "s"}, 3},
		"EmptyGone": {"it has Machines that are not released yet", replace("quantity: 2", "quantity: 0"),
			replace("{name: s, quantity: 2}", ""),
			machines, []string{"s"}, 2},

		"Quantity": {"a scale-down says how many servers stay", base, replace("quantity: 2", "quantity: 1"), machines,
			nil, 0},
		"QuantityIdle": {"it has no Machines", base, replace("quantity: 2", "quantity: 0"), "d:3 e:1", nil, 0},
		"StaysEmpty": {"its servers are released already", replace("quantity: 2", "quantity: 0"),
			replace("quantity: 2", "quantity: 0", "{name: d}", "{name: d}, {name: new}"), machines, nil, 0},
		"Filled": {"it gets servers again", replace("quantity: 2", "quantity: 0"), base, machines, nil, 0},
		"Added":  {"a pool more", base, replace("{name: d}", "{name: d}, {name: new}"), machines, nil, 0},
		"Moved": {"its NodePool stays", base, PrivateNodes(entry("static: [{name: s, quantity: 2}], dynamic: [{name: idle}]"),
			entry("dynamic: [{name: e}, {name: d}]")), machines, nil, 0},
		"Provider":    {"its nodes drift within budgets", base, replace("provider: "+provider, "provider: other"), machines, nil, 0},
		"IdleGone":    {"it has no Machines", base, replace(", {name: idle}", ""), machines, nil, 0},
		"IdleRenamed": {"it has no Machines", base, replace("name: idle", "name: other"), machines, nil, 0},
		"IdleTurned": {"it has no Machines", base, replace(", {name: idle}", "", "quantity: 2}", "quantity: 2}, {name: idle, quantity: 0}"),
			machines, nil, 0},
		"NoMachines": {"no server is released", base, "", "", nil, 0},
	}
}
