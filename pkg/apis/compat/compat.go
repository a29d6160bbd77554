// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compat handles YAML of the reference that this API does not need. It lists the fields without an effect, and
// converts other forms of a field. The schemas keep these fields and admit the other forms, and the webhook warns and
// converts.
package compat

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// maxOpaque is the largest value, in bytes, that an object keeps although nothing reads it.
const maxOpaque = 64 << 10

const (
	movedByHook = "a hook or an HTTP endpoint moves servers into the network of a TenantCluster, see docs/network.md"
	ofVCluster  = "it is of vCluster's own sync: write it into the vcluster.yaml"
	reinstalled = "servers are installed again, within the budgets of their pools"
	unpatched   = "what is synced has these fields unchanged (%s)"
	otherFleet  = "the servers of a NodeProvider are BareMetalHosts: run the Karpenter provider of that infrastructure in " +
		"the tenant's cluster beside this one"
	ownerAdvice  = "say by Kubernetes RBAC what %s may do"
	accessAdvice = "give rights by Kubernetes RBAC, and say in spec.tenantProperties of a TenantCluster what its tenant " +
		"may name (%s)"
	requirementsAdvice = "write requirements as entries of nodeTypeSelector: {property: KEY, operator: In, values: [VALUE]}"
)

// Ignored is a field of the reference that this API has no use for.
type Ignored struct {
	// Kind and Block have the field of that name. Block is a path in the schema: [] stands for the items of a list.
	Kind, Block, Name string
	// Instead says what to do instead. %s in it stands for the value in words.
	Instead string
	// Denied marks a field that is denied unless it is empty, because an object without it would mean something else.
	Denied bool
}

// IgnoredFields lists the fields without an effect, in the order of the warnings about them. The blocks that have them
// keep unknown fields. The webhook denies all other unknown fields there.
var IgnoredFields = slices.Concat(
	ownership("Machine"), ownership("OSImage"), ownership("SSHKey"), ownership("MachineConfigTemplate"),
	ignored("NodeProvider", "spec.metal3.clusterRef", "a manager serves the BareMetalHosts of the cluster that it runs "+
		"in: install one in the cluster that has them", "cluster"),
	ignored("NodeProvider", "spec.metal3", "install Metal3, and DHCP where you need it, as docs/metal3.md says. Remove it "+
		"if it has secrets: the providers of all tenants read it", "deploy"),
	ignored("NodeProvider", "spec.metal3", movedByHook, "neutronEnabled", "netris"),
	ignored("NodeProvider", "spec.metal3.nodeTypes[]", "a NodeType is of the NodeProvider that lists it: list it there, or "+
		"leave providerRef out", "providerRef"),
	ignored("NodeProvider", "spec", otherFleet, "terraform", "bcm", "kubeVirt", "clusterAPI"),
	ignored("TenantCluster", "spec.privateNodes.autoUpgrade", reinstalled, "binariesPath", "cniBinariesPath", "concurrency",
		"containerSecurityContext", "image", "imagePullPolicy", "nodeSelector", "podSecurityContext"),
	ignored("TenantCluster", "spec.privateNodes", "write commands into runcmd of the property "+v1alpha1.PropertyUserData+
		", which run before the join, kubeletExtraArgs into kubeletArgs of the pools, and prepare containerd in the image",
		"joinNode"),
	ignored("TenantCluster", "spec.privateNodes", "no program of vCluster runs on the nodes: have spec.apiServerEndpoint "+
		"lead to all API servers, by a load balancer or a virtual address", "daemon"),
	ignored("TenantCluster", "spec.privateNodes", "there is no VPN: servers reach spec.apiServerEndpoint through their own "+
		"network", "vpn"),
	[]Ignored{
		{"TenantCluster", "spec.privateNodes.autoNodes[].static[]", "requirements", requirementsAdvice, true},
		{"TenantCluster", "spec.privateNodes.autoNodes[].dynamic[]", "requirements", requirementsAdvice, true},
	},
	ignored("TenantCluster", "spec.sync.fromHost.deviceClasses", unpatched, "patches"),
	ignored("TenantCluster", "spec.sync.fromHost.nodes", ofVCluster, "syncBackChanges", "clearImageStatus", "selector",
		"patches"),
	ignored("TenantCluster", "spec.sync.fromHost", ofVCluster, "events", "ingressClasses", "gatewayClasses", "gateways",
		"runtimeClasses", "priorityClasses", "storageClasses", "volumeSnapshotClasses", "csiNodes", "csiDrivers",
		"csiStorageCapacities", "configMaps", "secrets", "customResources"),
	ignored("TenantCluster", "spec.sync.toHost.resourceClaims", unpatched, "patches"),
	ignored("TenantCluster", "spec.sync.toHost.resourceClaimTemplates", unpatched, "patches"),
	ignored("TenantCluster", "spec.sync.toHost", ofVCluster, "pods", "secrets", "configMaps", "services", "endpoints",
		"endpointSlices", "ingresses", "gatewayApi", "serviceAccounts", "persistentVolumeClaims", "persistentVolumes",
		"volumeSnapshots", "volumeSnapshotContents", "storageClasses", "podDisruptionBudgets", "priorityClasses",
		"networkPolicies", "namespaces", "customResources"),
)

func ignored(kind, block, instead string, names ...string) []Ignored {
	return lo.Map(names, func(name string, _ int) Ignored {
		return Ignored{Kind: kind, Block: block, Name: name, Instead: instead}
	})
}

func ownership(kind string) []Ignored {
	return append(ignored(kind, "spec", ownerAdvice, "owner"), ignored(kind, "spec", accessAdvice, "access")...)
}

// Property says what to do instead of setting a property that has no meaning, in our domain or in the reference's.
func Property(name string) string {
	if name == v1alpha1.ReferenceNetworkEnvironment {
		return "there are no NodeEnvironments: write its properties into the pool, the NodeType or the NodeProvider"
	}
	return "it is a label of the nodes at most: for a property of your own use a domain of your own"
}

// Field is a field that is set and has no effect.
type Field struct {
	Path *field.Path
	// Instead says what to do instead. %s in it stands for Value, the value in words.
	Instead, Value string
	// TooLong marks a value that is longer than maxOpaque.
	TooLong bool
}

// Set returns the field with a value that was read from JSON, and false if the value says nothing: it is null, false, 0
// or empty.
func (i Ignored) Set(path *field.Path, value any) (Field, bool) {
	raw := inJSON(value)
	set := Field{Path: path, Instead: i.Instead, Value: raw, TooLong: len(raw) > maxOpaque}
	if !set.TooLong && strings.Contains(i.Instead, "%s") {
		set.Value = inWords(value, raw)
	}
	return set, !slices.Contains([]string{"", "null", "false", "0", `""`, "[]"}, set.Value)
}

// inWords describes an owner, a list of rules, or a list of patches: the values that advice repeats. It returns any
// other value as it was written.
func inWords(value any, raw string) string {
	owner, rules := map[string]string{}, []rule{}
	switch {
	case json.Unmarshal([]byte(raw), &owner) == nil:
		return strings.Join(lo.Map(slices.Sorted(maps.Keys(owner)), func(key string, _ int) string { return key + " " + owner[key] }), ", ")
	case json.Unmarshal([]byte(raw), &rules) != nil:
		return raw
	case len(rules) > 0 && rules[0].Path != "":
		return strings.Join(lo.Map(rules, func(patch rule, _ int) string { return patch.Path }), ", ")
	}
	return strings.Join(lo.Map(rules, rule.words), "; ")
}

// rule is a right of users and teams in the reference, or a patch of a vcluster.yaml.
type rule struct {
	Name                              string
	Verbs, Subresources, Users, Teams []string
	Path                              string
}

// words describes a right to a person who has to write it as a Role.
func (r rule) words(_ int) string {
	text := strings.Join(r.Verbs, ", ")
	if r.Name != "" {
		text = r.Name + ": " + text
	}
	if len(r.Subresources) > 0 {
		text += " on " + strings.Join(r.Subresources, ", ")
	}
	return text + " for " + strings.Join(slices.Concat(r.Users, r.Teams), ", ")
}
