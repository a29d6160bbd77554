// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const autoNodesAt = "spec.privateNodes.autoNodes[0]"

func tenantWith(t testing.TB, namespace, spec string) *v1alpha1.TenantCluster {
	return parse[v1alpha1.TenantCluster](t, "{metadata: {namespace: "+namespace+", name: t}, spec: {apiServerEndpoint: 't:6443', "+spec+"}}")
}

// open is a TenantCluster without bounds. What stays so is not warned of.
var open = &v1alpha1.TenantCluster{}

func TestTenantCluster(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, namespace, spec string
		want                    []string
	}{
		"Good":      {"types and providers that exist", "c", "allowedNodeTypes: [h100, fleet.*]", nil},
		"Qualified": {"a type of its provider", "c", "allowedNodeTypes: [fleet.h100]", nil},
		"NotQualified": {"no such type, or not of that provider", "c", "allowedNodeTypes: [fleet.h10, other.h100]", []string{
			`warning: spec.allowedNodeTypes[0]: there is no NodeType "fleet.h10" yet (there are: `,
			`warning: spec.allowedNodeTypes[1]: there is no NodeType "other.h100" yet (there are: `}},
		"Allowed": {"they may come later", "c", "allowedNodeTypes: [h10, fleat.*]",
			[]string{`warning: spec.allowedNodeTypes[0]: there is no NodeType "h10" yet (there are: `,
				`warning: spec.allowedNodeTypes[1]: there is no NodeProvider "fleat" yet`}},
		"Wildcard": {"only whole providers", "c", "allowedNodeTypes: ['*', 'h*']",
			[]string{`spec.allowedNodeTypes[0]: Invalid value: "*": is neither`, `spec.allowedNodeTypes[1]: Invalid value: "h*": is neither`}},
		"Selector": {"it says nothing", "c", "sync: {fromHost: {deviceClasses: {selector: {matchExpressions: [{key: tier, operator: Like}]}}}}",
			[]string{`spec.sync.fromHost.deviceClasses.selector: Invalid value: "": "Like" is not a valid label selector operator`}},
		"Claims": {"no class is allowed", "c", "sync: {toHost: {resourceClaims: {enabled: true}}}",
			[]string{"warning: spec.sync.toHost.resourceClaims.enabled: no claim gets a device: none of the DeviceClasses is allowed while"}},
		"Templates": {"the same", "c", "sync: {toHost: {resourceClaimTemplates: {enabled: true}}}",
			[]string{"warning: spec.sync.toHost.resourceClaimTemplates.enabled: no claim gets a device: "}},
		"Quota": {"types that exist", "c", "quota: {nodeTypes: {h100: 4, cpu: 0}}", nil},
		"QuotaTypo": {"a name that nearly is one", "c", "quota: {nodeTypes: {h10: 4}}",
			[]string{`warning: spec.quota.nodeTypes["h10"]: there is no NodeType of this name yet, and the number bounds ` +
				`nothing before there is: is h100 meant?`}},
		"QuotaQualified": {"allowedNodeTypes name it so", "c", "quota: {nodeTypes: {fleet.h100: 4}}",
			[]string{`warning: spec.quota.nodeTypes["fleet.h100"]: there is no NodeType of this name yet, and the number ` +
				`bounds nothing before there is: is h100 meant?`}},
		"QuotaLater": {"it may come later, and is like none", "c", "quota: {nodeTypes: {b200-8x: 4, '': 1}}",
			[]string{`warning: spec.quota.nodeTypes[""], spec.quota.nodeTypes["b200-8x"]: there is no NodeType of this name ` +
				`yet, and the number bounds nothing before there is`}},
		"ClaimsAndClasses": {"as it should be", "c",
			"sync: {fromHost: {deviceClasses: {enabled: true}}, toHost: {resourceClaims: {enabled: true}}}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			mentions(t, tc.reason, TenantCluster(newCluster(t), open, tenantWith(t, tc.namespace, tc.spec)), tc.want...)
		})
	}
	mentions(t, "BMC credentials are there", TenantCluster(newCluster(t), nil, tenantWith(t, "metal3-system", "quota: {}")),
		`metadata.namespace: Invalid value: "metal3-system": NodeProvider fleet has its servers here`)
	dotted := newCluster(t)
	dotted.providers[0].Name = "fleet.example.com"
	mentions(t, "the name of a NodeProvider may have dots", TenantCluster(dotted, open, tenantWith(t, "c",
		"quota: {nodeTypes: {fleet.example.com.h100: 4}}")), `warning: spec.quota.nodeTypes["fleet.example.com.h100"]: there is no NodeType `+
		`of this name yet, and the number bounds nothing before there is: is h100 meant?`)
	after := tenantWith(t, "c", "quota: {}")
	after.Spec.APIServerEndpoint = "t:70000"
	mentions(t, "no port has such a number", TenantCluster(newCluster(t), open, after),
		"spec.apiServerEndpoint: Invalid value: \"t:70000\": API server endpoint \"t:70000\" has no port between 1 and 65535")
	after.Spec.APIServerEndpoint = "my_tenant:6443"
	mentions(t, "no name has an underscore", TenantCluster(newCluster(t), open, after),
		"spec.apiServerEndpoint: Invalid value: \"my_tenant:6443\": API server endpoint \"my_tenant:6443\" names neither")
}

func TestTenantNetworkChanged(t *testing.T) {
	const stay = "warning: spec.network: servers that the tenant has stay in the network that they are in "
	for name, tc := range map[string]struct {
		reason, before, after string
		want                  []string
	}{
		"Same": {"nothing changes", "network: {vlan: 100}", "network: {vlan: 100}, quota: {servers: 1}", nil},
		"None": {"nothing changes", "quota: {}", "quota: {servers: 1}", nil},
		"Other": {"addresses are given out in each network", "network: {vlan: 100}", "network: {vni: 100}",
			[]string{stay + "(vlan:100), and those that it gets from now on come into another (vni:100): replace them"}},
		"First": {"it has servers that were not moved", "quota: {}", "network: {id: blue}",
			[]string{stay + "(none of the tenant's own), and those that it gets from now on come into another (id:blue)"}},
		"Gone": {"they are in it still", "network: {id: blue}", "quota: {}", []string{stay + "(id:blue)"}},
	} {
		t.Run(name, func(t *testing.T) {
			mentions(t, tc.reason, TenantCluster(newCluster(t), tenantWith(t, "c", tc.before), tenantWith(t, "c", tc.after)), tc.want...)
		})
	}
	mentions(t, "a new tenant has no servers", TenantCluster(newCluster(t), nil,
		tenantWith(t, "c", "network: {vlan: 100}, allowedNodeTypes: [h100], quota: {servers: 1}")))
}

func TestPools(t *testing.T) {
	const pin = "properties: {karpenter.metal3.io/server-name: "
	const pinIn = `properties["karpenter.metal3.io/server-name"]: `
	long := strings.Repeat("x", 60)
	const byType = "nodeTypeSelector: [{property: karpenter.metal3.io/node-type, value: h100}]"
	for name, tc := range map[string]struct {
		reason, pools string
		want          []string
	}{
		"Page": {"as the reference has it", "static: [{name: pinned-gpu, quantity: 1, " + byType + ", " + pin + "h1}}]", nil},
		"Limits": {"nodes is a limit", "dynamic: [{name: d, limits: {nodes: 5, nvidia.com/gpu: 16}}], static: [{name: s, quantity: 1, " +
			"limits: {nodes: 1}}]", nil},
		"Whole": {"no half GPUs", "dynamic: [{name: d, limits: {nvidia.com/gpu: 1500m, cpu: 1500m}}]",
			[]string{`limits["nvidia.com/gpu"]: Invalid value: "1500m": devices are counted in whole ones`}},
		"Twice": {"one server, one pool", "static: [{name: s, quantity: 1, " + pin + "h1}}, {name: r, quantity: 1, " + pin + "h1}}]",
			[]string{autoNodesAt + ".static[1]." + pinIn + "Duplicate value: \"h1\": " + autoNodesAt +
				".static[0] is pinned to this server already"}},
		"Missing": {"a typing error", "static: [{name: s, quantity: 1, " + pin + "h9}}]",
			[]string{autoNodesAt + ".static[0]." + pinIn + `Invalid value: "h9": there is no BareMetalHost`}},
		"WrongType": {"it is of another type", "static: [{name: s, quantity: 1, " + byType + ", " + pin + "c1}}]",
			[]string{autoNodesAt + ".static[0]." + pinIn + `Invalid value: "c1": the server is of NodeType cpu, and the pool is for h100`}},
		"Taken": {"it may come free", "static: [{name: s, quantity: 1, " + pin + "h2}}]",
			[]string{"warning: " + autoNodesAt + ".static[0]." + pinIn + "server h2 is claimed by a Machine: the pool waits for it"}},
		"Names": {"a NodePool each", "dynamic: [{name: d}, {name: d}]",
			[]string{autoNodesAt + `.dynamic[1].name: Invalid value: "d": is the name of ` + autoNodesAt + ".dynamic[0] already: give each " +
				"dynamic pool of the tenant a name of its own"}},
		"StaticAndDynamic": {"the reference's example", "static: [{name: s, quantity: 1}], dynamic: [{name: s}]",
			[]string{"warning: " + autoNodesAt + `.dynamic[0].name: is the name of ` + autoNodesAt + ".static[0] too: in the tenant one of " +
				"the two is called s-dynamic or s-static, as the condition PoolsSynced says"}},
		"LongNameTaken": {"whose servers would they be", "static: [{name: s, quantity: 1}], dynamic: [{name: s}, {name: s-static}]",
			[]string{autoNodesAt + `.dynamic[0].name: Invalid value: "s": is the name of ` + autoNodesAt + ".static[0] too, and another pool is " +
				"called s-static"}},
		"TooLong": {"it becomes a label", "static: [{name: " + long + ", quantity: 1}], dynamic: [{name: " + long + "}]",
			[]string{autoNodesAt + ".static[0] too, and with the addition -dynamic, which one of the two needs in the tenant, it is longer " +
				"than 63 characters"}},
		"Never": {"and the example of disruption", "dynamic: [{name: d, terminationGracePeriod: Never, disruption: {consolidateAfter: 10s, " +
			"budgets: [{nodes: 20%}, {nodes: '5'}, {nodes: '0', schedule: '@daily', duration: 10m}]}}]", nil},
		"Expires": {"no budget holds it back", "dynamic: [{name: d, expireAfter: 720h}], static: [{name: s, quantity: 8, expireAfter: Never}]",
			[]string{"warning: " + autoNodesAt + ".dynamic[0].expireAfter: nodes expire whatever the disruption budgets say, so nodes that were " +
				"made together are drained together"}},
		"Narrowed":   {"a type has it", "properties: {tier: gold}, dynamic: [{name: d}]", nil},
		"Wide":       {"no type has it", "dynamic: [{name: d, properties: {team: vision}}]", nil},
		"NarrowedTo": {"one of several", "dynamic: [{name: d, properties: {tier: 'silver,gold'}}]", nil},
		"NarrowedToNone": {"no type is like that", "dynamic: [{name: d, properties: {tier: silver}}]",
			[]string{"warning: " + autoNodesAt + `.dynamic[0].nodeTypeSelector: no NodeType satisfies it: h100 does not meet "tier in (silver)", ` +
				`cpu does not meet "tier in (silver)"`}},
		"NarrowedPin": {"the server is of another type", "static: [{name: s, quantity: 1, properties: {tier: gold, " +
			"karpenter.metal3.io/server-name: c1}}]",
			[]string{`Invalid value: "c1": the server is of NodeType cpu, and the pool is for h100`}},
		"Static": {"it has a quantity", "static: [{name: s, quantity: 1, limits: {cpu: 5, nodes: 1500m}}]",
			[]string{`limits["nodes"]: Invalid value: "1500m"`, `limits["cpu"]: Forbidden: a static pool has no limit but nodes`}},
		"Nodes": {"what kubelet would not take", "dynamic: [{name: d, nodeLabels: {'a b': c}, taints: [{key: '', effect: NoSchedule}]}]",
			[]string{`nodeLabels["a b"]`, "taints[0].key"}},
	} {
		t.Run(name, func(t *testing.T) {
			after := tenantWith(t, "c", "privateNodes: {autoNodes: [{provider: fleet, "+tc.pools+"}]}")
			mentions(t, tc.reason, TenantCluster(newCluster(t), open, after), tc.want...)
		})
	}
	pinnedPool := tenantWith(t, "c", "privateNodes: {autoNodes: [{provider: fleet, static: [{name: s, quantity: 1, "+pin+"h1}}]}]}")
	shared := newCluster(t)
	shared.machines = append(shared.machines, pinned(t, "c", "ours", "h1"))
	mentions(t, "the pool's own Machine is pinned as the pool is", TenantCluster(shared, open, pinnedPool))
	shared.machines = append(shared.machines, pinned(t, "b", "theirs", "h1"))
	mentions(t, "the pool waits for a pinned server", TenantCluster(shared, open, pinnedPool),
		"warning: "+autoNodesAt+".static[0]."+pinIn+"a Machine of another tenant is pinned to server h1: the pool gets no server before that is "+
			"gone")
	mentions(t, "it may come later",
		TenantCluster(newCluster(t), open, tenantWith(t, "c", "privateNodes: {autoNodes: [{provider: missing, dynamic: [{name: d}]}]}")),
		"warning: "+autoNodesAt+".dynamic[0].nodeTypeSelector: no NodeType satisfies it: h100 is of NodeProvider fleet, cpu is of "+
			"NodeProvider fleet", "warning: "+autoNodesAt+`.provider: there is no NodeProvider "missing" yet`)
}

func TestNodeTypeSelector(t *testing.T) {
	const path = autoNodesAt + ".dynamic[0].nodeTypeSelector"
	for name, tc := range map[string]struct {
		reason, selector, allowed string
		want                      []string
	}{
		"Good": {"by name, rack and property", "{property: karpenter.metal3.io/node-type, value: h100}, {property: rack, operator: In, values: " +
			"[r1, r9]}, {property: tier, operator: Exists}", "", nil},
		"Not": {"by what they are not", "{property: tier, operator: NotExists}, {property: rack, operator: NotIn, value: r1}", "", nil},
		"Both": {"one of the two", "{property: rack, value: r1, values: [r2]}", "",
			[]string{path + `[0].value: Invalid value: "r1": there are values too: write one of value and values`}},
		"Neither": {"nothing to compare with", "{property: rack}, {property: rack, operator: NotIn}", "",
			[]string{path + "[0].value: Required value: In and NotIn", path + "[1].value: Required value"}},
		"Value": {"it would be overlooked", "{property: rack, operator: Exists, value: r1}", "",
			[]string{path + "[0].value: Invalid value: \"r1\": Exists and NotExists take neither"}},
		"Operator": {"the reference's, spelled as they are", "{property: rack, operator: DoesNotExist}", "",
			[]string{path + `[0].operator: Unsupported value: "DoesNotExist": supported values: "In", "NotIn", "Exists", "NotExists"`}},
		"Key": {"no property has such a key", "{property: 'gpu model', value: x}", "",
			[]string{path + `[0].property: Invalid value: "gpu model"`}},
		"BadValues": {"no label has such a value", "{property: rack, values: [a, 'b c']}", "",
			[]string{path + `[0].values[1]: Invalid value: "b c"`}},
		"Opposites": {"nothing is left", "{property: rack, value: r1}, {property: rack, value: r2}", "",
			[]string{path + `: Invalid value: "rack": no NodeType can match: rack in (r1), rack in (r2) rule each other out`}},
		"TwoTypes": {"a server may match both, and none does now",
			"{property: karpenter.metal3.io/node-type, value: h100}, {property: karpenter.metal3.io/node-type, value: cpu}", "",
			[]string{"warning: " + path + "[1]: no server matches this NodeType and another one too: label the BareMetalHosts that are meant"}},
		"TwoTypesNotAllowed": {"the other is named, too",
			"{property: karpenter.metal3.io/node-type, value: h100}, {property: karpenter.metal3.io/node-type, value: cpu}", "[h100]",
			[]string{path + "[1]: Forbidden: NodeType cpu is not among the allowedNodeTypes of this TenantCluster"}},
		"TypeAndSeveral": {"a label says one or the other",
			"{property: karpenter.metal3.io/node-type, value: h100}, {property: karpenter.metal3.io/node-type, values: [cpu, gpu]}", "",
			[]string{path + `[1]: Invalid value: "cpu, gpu": the servers are of NodeType h100 by an earlier entry`}},
		"OnDemand": {"as in every example of Karpenter's", "{property: karpenter.sh/capacity-type, value: on-demand}", "", nil},
		"Spot": {"it would wait for ever", "{property: karpenter.sh/capacity-type, value: spot}", "",
			[]string{"warning: " + path + `: no NodeType satisfies it: h100 does not meet "karpenter.sh/capacity-type in (spot)"`}},
		"Unknown": {"a typing error", "{property: rak, value: r1}", "",
			[]string{"warning: " + path + `[0].property: no NodeType has the property "rak" (there are: `}},
		"UnknownOfOurs": {"what was meant is among the first", "{property: karpenter.metal3.io/nodetype, value: h100}", "",
			[]string{"warning: " + path + `[0].property: no NodeType has the property "karpenter.metal3.io/nodetype" ` +
				`(there are: karpenter.metal3.io/`}},
		"FarOff": {"nothing is close", "{property: example.com/water-cooled, operator: Exists}", "",
			[]string{"warning: " + path + `[0].property: no NodeType has the property "example.com/water-cooled"`}},
		"Nothing": {"and why, type by type", "{property: rack, value: r9}", "",
			[]string{"warning: " + path + `: no NodeType satisfies it: h100 does not meet "rack in (r9)", cpu does not meet "rack in (r9)"`}},
		"OfProvider": {"as the reference writes it", "{property: karpenter.metal3.io/node-type, value: fleet.h100}, {property: " +
			"node.kubernetes.io/instance-type, values: [fleet.h100, fleet.cpu]}", "", nil},
		"OfOtherProvider": {"it has no servers of that one", "{property: karpenter.metal3.io/node-type, value: other.h100}", "",
			[]string{"warning: " + path + `: no NodeType satisfies it: h100 does not meet "karpenter.metal3.io/node-type in (other.h100)", cpu ` +
				`does not`}},
		"OfProviderNotAllowed": {"a type by name", "{property: karpenter.metal3.io/node-type, value: fleet.cpu}", "[h100]",
			[]string{path + "[0]: Forbidden: NodeType cpu is not among the allowedNodeTypes of this TenantCluster"}},
		"Several": {"one of its values", "{property: fabrics, value: roce}, {property: anything, value: x}, {property: anything, " +
			"operator: Exists}, {property: karpenter.metal3.io/os-image, value: ubuntu}", "", nil},
		"SeveralNot": {"not this one, and another is left", "{property: fabrics, operator: NotIn, value: roce}, {property: anything, " +
			"operator: NotIn, value: x}", "", nil},
		"SeveralNone": {"none of its values", "{property: fabrics, operator: NotIn, values: [roce, infiniband]}, {property: tier, value: gold}",
			"",
			[]string{"warning: " + path + ": no NodeType satisfies it: h100 does not meet"}},
		"AnyIsThere": {"it has one, whichever", "{property: anything, operator: NotExists}, {property: tier, value: gold}", "",
			[]string{"warning: " + path + `: no NodeType satisfies it: h100 does not meet "!anything"`}},
		"NotAllowed": {"a type by name", "{property: karpenter.metal3.io/node-type, values: [cpu, h100]}", "[h100]",
			[]string{path + "[0]: Forbidden: NodeType cpu is not among the allowedNodeTypes of this TenantCluster"}},
		"Later": {"of an allowed provider", "{property: karpenter.metal3.io/node-type, value: b200}", "[fleet.*]",
			[]string{"warning: " + path + `: no NodeType satisfies it: h100 does not meet "karpenter.metal3.io/node-type in (b200)", cpu does not`}},
		"NoneLeft": {"the tenant may not have the one that fits", "{property: tier, value: gold}", "[cpu]",
			[]string{"warning: " + path + `: no NodeType satisfies it: h100 is not allowed for this tenant, cpu does not meet "tier in (gold)"`}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := "privateNodes: {autoNodes: [{provider: fleet, dynamic: [{name: d, nodeTypeSelector: [" + tc.selector + "]}]}]}"
			if tc.allowed != "" {
				spec += ", allowedNodeTypes: " + tc.allowed
			}
			mentions(t, tc.reason, TenantCluster(newCluster(t), open, tenantWith(t, "c", spec)), tc.want...)
		})
	}
}

func TestOtherKinds(t *testing.T) {
	const url = "karpenter.metal3.io/image-url: 'https://x/y.qcow2'"
	sum := strings.Repeat("a", 64)
	image := func(properties string) *v1alpha1.OSImage {
		return parse[v1alpha1.OSImage](t, "{metadata: {name: i}, spec: {properties: {"+properties+"}}}")
	}
	prefix := func(key string) string { return `spec.properties["karpenter.metal3.io/` + key + `"]: ` }
	for name, tc := range map[string]struct {
		reason string
		got    Result
		want   []string
	}{
		"Image": {"url and checksum", OSImage(newCluster(t), nil, image(url+", karpenter.metal3.io/image-checksum: "+sum)), nil},
		"NoChecksum": {"a Machine may have it", OSImage(newCluster(t), nil, image(url)),
			[]string{"warning: " + prefix("image-checksum") + "is not set, and Metal3 installs no disk image without one"}},
		"NoURL": {"a Machine may have it", OSImage(newCluster(t), nil, image("kubevirt."+v1alpha1.ReferenceDomain+"/disk: a")), []string{
			"warning: " + prefix("image-url") + "is not set, and nothing is installed with an image without one: " +
				"set it to the URL of a disk image",
			"warning: " + `spec.properties["kubevirt.` + v1alpha1.ReferenceDomain + `/disk"]: has no effect here`}},
		"Checksum": {"of no length", OSImage(newCluster(t), nil, image(url+", karpenter.metal3.io/image-checksum: abc")),
			[]string{prefix("image-checksum") + `Invalid value: "abc": is neither a checksum nor`}},
		"ChecksumType": {"of another length",
			OSImage(newCluster(t), nil, image(url+", karpenter.metal3.io/image-checksum-type: md5, karpenter.metal3.io/image-checksum: "+sum)),
			[]string{prefix("image-checksum-type") + `Invalid value: "md5": does not go with`}},
		"URL": {"Ironic fetches by http", OSImage(newCluster(t), nil, image("karpenter.metal3.io/image-url: 'ftp://x'")),
			[]string{prefix("image-url") + `Invalid value: "ftp://x": is not an http, https or oci URL`}},
		"Edited": {"it rolls nothing",
			OSImage(newCluster(t), image(url+", karpenter.metal3.io/image-checksum: "+sum),
				image("karpenter.metal3.io/image-url: 'https://x/z.qcow2', karpenter.metal3.io/image-checksum: "+sum)),
			[]string{"warning: spec.properties: machines that are running keep"}},
		"SSHKey": {"a public key",
			SSHKey(nil, nil, parse[v1alpha1.SSHKey](t, "{spec: {publicKey: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAfBTTODvtUTvt6MIKSCdwSl4XIKVUE95P8SIJPBWL6e "+
				"me'}}")), nil},
		"NoKey": {"no key at all", SSHKey(nil, nil, parse[v1alpha1.SSHKey](t, "{spec: {publicKey: 'ssh-ed25519 AAAA'}}")),
			[]string{`spec.publicKey: Invalid value: "(16 bytes)": is not a public key`}},
		"PrivateKey": {"it is not repeated",
			SSHKey(nil, nil, parse[v1alpha1.SSHKey](t, "{spec: {publicKey: '-----BEGIN OPENSSH PRIVATE KEY----- x'}}")),
			[]string{`spec.publicKey: Invalid value: "(37 bytes)": holds a private key`}},
		"Template": {"it parses",
			MachineConfigTemplate(nil, nil, parse[v1alpha1.MachineConfigTemplate](t,
				"{spec: {cloudInitTemplate: '#cloud-config\n{{ .Values.Project }}'}}")),
			nil},
		"Syntax": {"it does not",
			MachineConfigTemplate(nil, nil, parse[v1alpha1.MachineConfigTemplate](t,
				"{spec: {cloudInitTemplate: \"a\\n{{ if }}\", networkDataTemplate: '{{ env \"HOME\" }}'}}")),
			[]string{`spec.cloudInitTemplate: Invalid value: "(10 bytes)": is not a template, line 2: missing value for if`,
				`spec.networkDataTemplate: Invalid value: "(16 bytes)": is not a template, line 1: function "env" of sprig is not ` +
					`available, because it reads the environment`}},
		"Unused":         {"it is not used", Deleted(newCluster(t), KindOSImage, "ubuntu"), nil},
		"UnclusterInUse": {"it is not used", ProviderDeleted(newCluster(t), parse[v1alpha1.NodeProvider](t, "{metadata: {name: fleet}}")), nil},
		"Used": {"it is used", Deleted(clusterInUse(t), KindOSImage, "ubuntu"),
			[]string{"it is in use by NodeProvider fleet: have them use something else, or delete them first"}},
		"UsedByMany": {"five are named", Deleted(clusterInUse(t), KindSSHKey, "me"),
			[]string{"it is in use by Machine a/1, Machine a/2, Machine a/3, Machine a/4, Machine a/5 and 2 more: have them use"}},
		"UsedProvider": {"its types are used", ProviderDeleted(clusterInUse(t), parse[v1alpha1.NodeProvider](t, "{metadata: {name: fleet}}")),
			[]string{"its NodeType h100 is in use by Machine a/m: delete them first"}},
		"AnotherTypes": {"not its types", ProviderDeleted(clusterInUse(t), parse[v1alpha1.NodeProvider](t, "{metadata: {name: other}}")), nil},
		"EmptyTenant":  {"it has no Machines", TenantDeleted(newCluster(t), confirming("a", "blue", "")), nil},
		"TenantWithMachines": {"their pods would go with them", TenantDeleted(clusterInUse(t), confirming("a", "blue", "")),
			[]string{"2 of its servers would be released, and their nodes drained for no longer than spec.drainTimeout: Machine a/1, " +
				"Machine a/2. Delete the tenant's NodePools first, " +
				"or confirm: kubectl annotate --overwrite tenantcluster -n a blue confirm.karpenter.metal3.io/delete-machines=2; " +
				"or, where a tool such as Argo CD, Flux or Terraform deletes, have it first apply the annotation " +
				"confirm.karpenter.metal3.io/delete-machines: any"}},
		"TenantConfirmedAny": {"an operator has said so of any number", TenantDeleted(clusterInUse(t), confirming("a",
			"blue", "any")), nil},
		"TenantConfirmedAll": {"there is no such word", TenantDeleted(clusterInUse(t), confirming("a", "blue", "all")),
			[]string{"2 of its servers would be released"}},
		"TenantConfirmed": {"an operator has said so", TenantDeleted(clusterInUse(t), confirming("a", "blue", "2")), nil},
		"TenantConfirmedOnce": {"it has another Machine since", TenantDeleted(clusterInUse(t), confirming("a", "blue", "1")),
			[]string{"2 of its servers would be released"}},
		"AnotherNamespaces": {"another tenant of that name", TenantDeleted(clusterInUse(t), confirming("b", "blue", "")), nil},
		"UnrelatedType":     {"another type is used", Deleted(clusterInUse(t), KindNodeType, "cpu"), nil},
	} {
		t.Run(name, func(t *testing.T) { mentions(t, tc.reason, tc.got, tc.want...) })
	}
}

func confirming(namespace, name, confirmed string) *v1alpha1.TenantCluster {
	return &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Annotations: map[string]string{v1alpha1.ConfirmDeleteMachinesAnnotationKey: confirmed}}}
}

// TestConfirmation: the author is told of a confirmation that stays, and of one that confirms nothing.
func TestConfirmation(t *testing.T) {
	const prefix = `warning: metadata.annotations["confirm.karpenter.metal3.io/delete-machines"]: `
	for name, tc := range map[string]struct {
		reason, before, after string
		want                  []string
	}{
		"None":   {"there is none", "", "", nil},
		"Number": {"it is used once", "", "3", nil},
		"Any": {"it stays", "", "any", []string{prefix + "releases any number of servers with the TenantCluster or its pools, " +
			"also by mistake"}},
		"AnyNow":  {"it was of one number", "3", "any", []string{prefix + "releases any number of servers"}},
		"AnyKept": {"it still holds", "any", "any", []string{prefix + "releases any number of servers"}},
		"Gone":    {"it ends", "any", "", nil},
		"Word": {"it is not understood", "", "yes", []string{prefix + `is "yes", which confirms nothing: write how many ` +
			`Machines go, or any`}},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := open.DeepCopy(), tenantWith(t, "c", "quota: {}")
			before.Annotations, after.Annotations = confirming("c", "t", tc.before).Annotations, confirming("c", "t",
				tc.after).Annotations
			mentions(t, tc.reason, TenantCluster(newCluster(t), before, after), tc.want...)
		})
	}
	mentions(t, "it is made so", TenantCluster(newCluster(t), nil, func() *v1alpha1.TenantCluster {
		made := tenantWith(t, "c", "quota: {servers: 1}, allowedNodeTypes: []")
		made.Annotations = confirming("c", "t", "any").Annotations
		return made
	}()), prefix+"releases any number of servers")
}

func clusterInUse(t *testing.T) *memory {
	cluster := newCluster(t)
	cluster.users = map[Kind]map[string][]string{KindOSImage: {"ubuntu": {"NodeProvider fleet"}}, KindNodeType: {"h100": {"Machine a/m"}},
		KindTenantCluster: {"a/blue": {"Machine a/1", "Machine a/2"}},
		KindSSHKey:        {"me": {"Machine a/1", "Machine a/2", "Machine a/3", "Machine a/4", "Machine a/5", "Machine a/6", "Machine a/7"}}}
	return cluster
}

func TestClosest(t *testing.T) {
	names := []string{"a100-4x", "cpu", "h100-8x", "h200-8x"}
	for name, want := range map[string]string{
		"h100-8x": "h100-8x", "h100": "", "h100x8": "h100-8x", "h1oo-8x": "h100-8x", "H100-8X": "h100-8x",
		"l40s-8x": "", "h300-8x": "h100-8x",
		"gpu": "cpu", "": "", "x": "", strings.Repeat("h100-8x", 60): "",
	} {
		if got := closest(name, names); got != want {
			t.Errorf("the closest to %q is %q, want %q", name, got, want)
		}
	}
}
