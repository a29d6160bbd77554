// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/compat"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

// unknownFields returns the warnings and errors about the fields of a spec that the schema of its kind does not name.
func unknownFields(t *testing.T, kind, name, before, after string) []string {
	t.Helper()
	all, err := shapes()
	if err != nil {
		t.Fatal(err)
	}
	read := func(spec string) []rules.UnknownField {
		raw, err := yaml.YAMLToJSON([]byte("{spec: {" + spec + "}}"))
		if err != nil {
			t.Fatalf("%s, %v", spec, err)
		}
		found, err := all[kind].unknown(raw)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	result := rules.UnknownFields(rules.Kind(kind), name, read(before), read(after))
	var messages []string
	for _, err := range result.Errors {
		messages = append(messages, err.Error())
	}
	for _, warning := range result.Warnings {
		messages = append(messages, "warning: "+warning)
	}
	return messages
}

func TestUnknownFields(t *testing.T) {
	const (
		none   = " has no effect here: "
		owner  = "warning: spec.owner:" + none + "say by Kubernetes RBAC what team infra may do"
		access = "warning: spec.access:" + none + "give rights by Kubernetes RBAC, and say in " +
			"spec.tenantProperties of a TenantCluster what its tenant may name (ops: get, use on status for " +
			"ada, ml; get for bob)"
		both = "owner: {team: infra}, access: [{name: ops, verbs: [get, use], subresources: [status], users: " +
			"[ada], teams: [ml]}, {verbs: [get], users: [bob]}]"
		nodes   = "warning: spec.privateNodes."
		network = none + "a hook or an HTTP endpoint moves servers into the network of a TenantCluster, see " +
			"docs/network.md"
		fleet = none + "the servers of a NodeProvider are BareMetalHosts: run the Karpenter provider of that " +
			"infrastructure in the tenant's cluster beside this one"
		patches = none + "what is synced has these fields unchanged "
	)
	for name, tc := range map[string]struct {
		reason, kind, before, after string
		want                        []string
	}{
		"Nothing": {"the reference's empty values say nothing", "Machine", "", "owner: {}, access: [], " +
			"nodeTypeRef: {name: a}", nil},
		"Owner":    {"it is no user of Kubernetes", "Machine", "", "owner: {team: infra}", []string{owner}},
		"Both":     {"the rules are listed, to be written as Roles", "OSImage", "", both, []string{owner, access}},
		"SSHKey":   {"the same in each of four kinds", "SSHKey", "", both, []string{owner, access}},
		"Template": {"the same in each of four kinds", "MachineConfigTemplate", "", both, []string{owner, access}},
		"Same":     {"the author was told when it was written", "Machine", both, both, nil},
		"Changed":  {"it is another one", "Machine", "owner: {team: other}", both, []string{owner, access}},
		"OtherShape": {"an owner of another form is no reason to deny", "Machine", "", "owner: [1]",
			[]string{strings.Replace(owner, "team infra", "[1]", 1)}},
		"Typo": {"nobody knows the field", "Machine", "", "nodeTypRef: {name: a}",
			[]string{"spec.nodeTypRef: Forbidden: unknown field: is nodeTypeRef meant?"}},
		"TypoOfOther": {"a field without an effect is meant", "SSHKey", "", "acces: []", []string{"spec.acces: " +
			"Forbidden: unknown field: is access meant?"}},
		"Other": {"it is like no field", "SSHKey", "", "somethingElse: 1", []string{"spec.somethingElse: " +
			"Forbidden: unknown field"}},
		"TypoBefore": {"an edit of another field goes through", "Machine", "nodeTypRef: {name: a}",
			"nodeTypRef: {name: a}, labels: {a: b}", nil},
		"Cluster": {"one manager, one cluster", "NodeProvider", "", "metal3: {clusterRef: {namespace: a, " +
			"cluster: loft-cluster}}", []string{
			"warning: spec.metal3.clusterRef.cluster:" + none + "a manager serves the BareMetalHosts of the " +
				"cluster that it runs in: install one in the cluster that has them"}},
		"Deploy": {"nothing is deployed", "NodeProvider", "", "metal3: {deploy: {metal3: {enabled: true, " +
			"helmValues: 'a: b'}, multus: {}}}", []string{
			"warning: spec.metal3.deploy:" + none + "install Metal3, and DHCP where you need it, as " +
				"docs/metal3.md says. Remove it if it has secrets: the providers of all tenants read it"}},
		"Network": {"no controller is built in", "NodeProvider", "", "metal3: {neutronEnabled: true, netris: " +
			"{secretRef: {name: a}}}", []string{
			"warning: spec.metal3.neutronEnabled, spec.metal3.netris:" + network}},
		"Off": {"it asks for nothing", "NodeProvider", "", "metal3: {neutronEnabled: false, deploy: null}", nil},
		"TooLong": {"it is stored for nothing", "NodeProvider", "", "metal3: {netris: {a: " +
			strings.Repeat("x", 64<<10) + "}}", []string{
			`spec.metal3.netris: Invalid value: "(65544 bytes)": it is stored and has no effect here: leave it out`}},
		"TooLongInMachine": {"a tenant's provider writes it", "Machine", "", "owner: {a: " + strings.Repeat("x",
			64<<10) + "}", []string{
			`spec.owner: Invalid value: "(65544 bytes)": it is stored and has no effect here: leave it out`}},
		"ProviderRef": {"a type may name its own provider, and no other", "NodeProvider", "", "metal3: " +
			"{nodeTypes: [{providerRef: p}, {providerRef: q}, {name: c}]}",
			[]string{"warning: spec.metal3.nodeTypes[1].providerRef:" + none + "a NodeType is of the " +
				"NodeProvider that lists it: list it there, or leave providerRef out"}},
		"OwnNameElsewhere": {"only providerRef may repeat it", "TenantCluster", "", "privateNodes: {autoUpgrade: {image: p}}",
			[]string{nodes + "autoUpgrade.image:" + none + "servers are installed again, within the budgets of their pools"}},
		"OfOtherKind": {"a field of another kind is not meant", "SSHKey", "", "terrafor: 1",
			[]string{"spec.terrafor: Forbidden: unknown field"}},
		"Dotted": {"it is one name, and no path", "NodeProvider", "", "'metal3.deploy': {a: b}",
			[]string{"spec.metal3.deploy: Forbidden: unknown field"}},
		"Infrastructure": {"the reference has it besides Metal3", "NodeProvider", "", "bcm: {}, kubeVirt: {}, " +
			"clusterAPI: {}, terraform: {nodeTemplate: {}}",
			[]string{"warning: spec.terraform, spec.bcm, spec.kubeVirt and 1 more:" + fleet}},
		"InPlace": {"no pod upgrades a node", "TenantCluster", "", "privateNodes: {autoUpgrade: {enabled: true, " +
			"image: a, nodeSelector: {a: b}, " +
			"binariesPath: /a, cniBinariesPath: /b, concurrency: 2}}",
			[]string{nodes + "autoUpgrade.binariesPath, spec.privateNodes.autoUpgrade." +
				"cniBinariesPath, spec.privateNodes.autoUpgrade.concurrency and 2 more:" + none + "servers are " +
				"installed again, within the budgets of their pools"}},
		"JoinNode": {"cloud-init runs commands", "TenantCluster", "", "privateNodes: {joinNode: " +
			"{preJoinCommands: [a], containerd: {enabled: true}}}",
			[]string{nodes + "joinNode:" + none + "write commands into runcmd of the property " +
				"karpenter.metal3.io/user-data, which run before " +
				"the join, kubeletExtraArgs into kubeletArgs of the pools, and prepare containerd in the image"}},
		"Daemon": {"nothing of it runs there", "TenantCluster", "", "privateNodes: {daemon: {enabled: true}}",
			[]string{nodes +
				"daemon:" + none + "no program of vCluster runs on the nodes: have spec.apiServerEndpoint lead to " +
				"all API servers, by a load balancer or a virtual address"}},
		"VPN": {"there is none", "TenantCluster", "", "privateNodes: {vpn: {enabled: true}}",
			[]string{nodes + "vpn:" + none +
				"there is no VPN: servers reach spec.apiServerEndpoint through their own network"}},
		"Requirements": {"the pool would have other servers", "TenantCluster", "", "privateNodes: {autoNodes: " +
			"[{dynamic: [{name: a, requirements: [{key: a}]}], " +
			"static: [{requirements: []}]}]}",
			[]string{"spec.privateNodes.autoNodes[0].dynamic[0].requirements: Forbidden: write requirements as " +
				"entries of nodeTypeSelector: {property: KEY, operator: In, values: [VALUE]}"}},
		"Patches": {"they are named", "TenantCluster", "", "sync: {fromHost: {deviceClasses: {patches: [{path: " +
			"a, expression: x}, {path: b}]}}, " +
			"toHost: {resourceClaims: {patches: [{path: c}]}}}", []string{"warning: " +
			"spec.sync.fromHost.deviceClasses.patches:" + patches + "(a, b)",
			"warning: spec.sync.toHost.resourceClaims.patches:" + patches + "(c)"}},
		"OtherSync": {"vCluster's own", "TenantCluster", "", "sync: {fromHost: {events: {enabled: true}, nodes: " +
			"{selector: {all: true}}}, toHost: {pods: {}}}",
			[]string{"warning: spec.sync.fromHost.nodes.selector, spec.sync.fromHost.events, " +
				"spec.sync.toHost.pods:" + none +
				"it is of vCluster's own sync: write it into the vcluster.yaml"}},
		"Kubelet": {"the rules of the TenantCluster read this object", "TenantCluster", "", "privateNodes: " +
			"{kubelet: {config: {any: 1}}}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, unknownFields(t, tc.kind, "p", tc.before, tc.after)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestEachIgnoredField: the schema keeps each field without an effect, nothing is decoded for it, and a typing error in
// its name is denied.
func TestEachIgnoredField(t *testing.T) {
	for _, ignored := range compat.IgnoredFields {
		block, name := ignored.Block, ignored.Name
		for field, want := range map[string]string{name: ignored.Instead, name + "x": "unknown field: is " + name + " meant?"} {
			var value any = map[string]any{"a": "b"}
			value = map[string]any{field: value}
			segments := strings.Split(block, ".")
			for i := len(segments) - 1; i > 0; i-- {
				key, isList := strings.CutSuffix(segments[i], "[]")
				if isList {
					value = []any{value}
				}
				value = map[string]any{key: value}
			}
			spec, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			messages := unknownFields(t, ignored.Kind, "p", "",
				strings.TrimSuffix(strings.TrimPrefix(string(spec), "{"), "}"))
			if want, _, _ = strings.Cut(want, "%s"); len(messages) != 1 || !strings.Contains(messages[0], want) {
				t.Errorf("%s %s.%s: %q, want %q", ignored.Kind, block, field, messages, want)
			}
		}
	}
}
