// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

var consumer = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: "x", Name: "y"}

const pinAt = `spec.properties["karpenter.metal3.io/server-name"]: `

func pinned(t testing.TB, namespace, name, server string) *v1alpha1.Machine {
	return parse[v1alpha1.Machine](t, "{metadata: {namespace: "+namespace+", name: "+name+
		"}, spec: {nodeTypeRef: {name: h100}, properties: {karpenter.metal3.io/server-name: "+server+"}}}")
}

// withQuota gives the tenant a a quota, and a server of the type.
func withQuota(quota, nodeType string) func(*testing.T, *memory) {
	return func(t *testing.T, m *memory) {
		m.tenants[0].Spec.Quota = parse[v1alpha1.Quota](t, quota)
		held := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "held", UID: "held"}}
		held.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "a"}
		held.Status.HostRef = &v1alpha1.HostReference{Name: "h"}
		held.Status.NodeTypeRef = &v1alpha1.NameReference{Name: nodeType}
		m.machines = append(m.machines, held)
	}
}

// twoTypes gives the tenant a two types of the same servers, the first of which costs less.
func twoTypes(quota string) func(*testing.T, *memory) {
	return func(t *testing.T, m *memory) {
		twin := m.NodeType("cpu").DeepCopy()
		twin.Name, twin.Spec.Cost = "cpu-twin", ptr.To(int64(999_999))
		m.types = append(m.types, twin)
		if invalid := m.inventory.AddType(twin, m.providers[0], ""); invalid != nil {
			t.Fatal(invalid)
		}
		m.tenants[0].Spec.AllowedNodeTypes = &[]string{"cpu", twin.Name}
		withQuota(quota, "cpu")(t, m)
	}
}

const noNode = ": has no effect: without tenantClusterRef the server becomes no node"

func TestMachine(t *testing.T) {
	const toA = "tenantClusterRef: {name: a}"
	deleting := func(_ *testing.T, m *memory) { m.tenants[0].DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	for name, tc := range map[string]struct {
		reason, spec string
		change       func(*testing.T, *memory)
		want         []string
	}{
		"ByType":      {reason: "a server of that type is there", spec: "nodeTypeRef: {name: h100}, " + toA},
		"ByResources": {reason: "as the provider asks", spec: "resources: {nvidia.com/gpu: 1}, " + toA},
		"NoType":      {reason: "it may come later, and the condition Claimed says so", spec: "nodeTypeRef: {name: h10}"},
		"NoTenant":    {reason: "it may come later", spec: "nodeTypeRef: {name: h100}, tenantClusterRef: {name: c}"},
		"OtherTenant": {reason: "TenantClusters of other namespaces are not disclosed",
			spec: "nodeTypeRef: {name: h100}, tenantClusterRef: {name: b}"},
		"OtherNamespace": {reason: "a tenant refers to what is its own",
			spec: "nodeTypeRef: {name: h100}, tenantClusterRef: {name: b/b}, bootstrap: {dataSecretName: b/s}", want: []string{
				`spec.tenantClusterRef.name: Invalid value: "b/b": what a Machine refers to is in its own namespace, a: write the name alone`,
				`spec.bootstrap.dataSecretName: Invalid value: "b/s": what a Machine refers to is in its own namespace, a: write the name alone`}},
		"NotAllowed": {reason: "the tenant may not have the type", spec: "nodeTypeRef: {name: cpu}, " + toA, want: []string{
			`spec.nodeTypeRef.name: Forbidden: this tenant is allowed no NodeType that fits: cpu: not allowed for this tenant: allowedNodeTypes ` +
				`of ` +
				`TenantCluster a are: h100: ask for one of these, or have them extended`}},
		"NotAllowedByRequirements": {reason: "the type that fits is none that it may have", spec: "resources: {cpu: 1}, " + toA, want: []string{
			`spec.requirements: Forbidden: this tenant is allowed no NodeType that fits: h100: has accelerators (nvidia.com/gpu) and ` +
				`the Machine requests none of them; 1 NodeType is not for this tenant: allowedNodeTypes of TenantCluster a are: h100: ask for one ` +
				`of these, or have them extended`}},
		"NotAllowedStandAlone": {reason: "leaving the tenant out gets nothing more", spec: "nodeTypeRef: {name: cpu}", want: []string{
			`spec.nodeTypeRef.name: Forbidden: this tenant is allowed no NodeType that fits: cpu: not allowed for this tenant: allowedNodeTypes ` +
				`of TenantCluster a are: h100: ask for one of these, or have them extended`}},
		"NothingFits": {reason: "a server may be registered yet", spec: "resources: {nvidia.com/gpu: 16}, " + toA},
		"Quota": {reason: "the tenant has all it may have", spec: "nodeTypeRef: {name: h100}, " + toA,
			change: withQuota("{servers: 1}", "h100"), want: []string{`spec: Forbidden: TenantCluster a/a has 1 servers and ` +
				`its spec.quota.servers is 1: raise the quota, or release a server`}},
		"Deleting": {reason: "its deletion would wait for one more Machine", spec: "nodeTypeRef: {name: h100}, " + toA, change: deleting,
			want: []string{`spec: Forbidden: TenantCluster a/a is being deleted and gets no more servers`}},
		"DeletingStandAlone": {reason: "leaving the tenant out is charged to it, too", spec: "nodeTypeRef: {name: h100}", change: deleting,
			want: []string{`spec: Forbidden: TenantCluster a/a is being deleted and gets no more servers`}},
		"QuotaStandAlone": {reason: "leaving the tenant out gets nothing more", spec: "nodeTypeRef: {name: h100}",
			change: withQuota("{servers: 1}", "h100"), want: []string{`spec: Forbidden: TenantCluster a/a has 1 servers and ` +
				`its spec.quota.servers is 1: raise the quota, or release a server`}},
		"QuotaOfType": {reason: "it has all of the type", spec: "nodeTypeRef: {name: h100}, " + toA,
			change: withQuota("{nodeTypes: {h100: 1}}", "h100"), want: []string{`spec: Forbidden: TenantCluster a/a has 1 ` +
				`servers of NodeType h100 and its spec.quota.nodeTypes[h100] is 1: raise the quota, or release a server`}},
		"QuotaOfOtherType": {reason: "it has all of another", spec: "nodeTypeRef: {name: h100}, " + toA,
			change: withQuota("{nodeTypes: {cpu: 1, h100: 1}}", "cpu")},
		"QuotaOfOneOfTypes": {reason: "the other type that it fits is within the quota", spec: "resources: {cpu: 1}, " + toA,
			change: twoTypes("{nodeTypes: {cpu: 1}}")},
		"QuotaOfAllTypes": {reason: "it has all of each type that it fits, and the cheapest is named",
			spec:   "resources: {cpu: 1}, " + toA,
			change: twoTypes("{nodeTypes: {cpu: 1, cpu-twin: 0}}"),
			want: []string{`spec: Forbidden: TenantCluster a/a has 1 servers of NodeType cpu and its ` +
				`spec.quota.nodeTypes[cpu] is 1: raise the quota, or release a server`}},
		"StandAlone": {reason: "no quota, allowed types or network would apply to it", spec: "nodeTypeRef: {name: h100}",
			change: func(_ *testing.T, m *memory) { m.tenants[0].Spec.StandAloneMachines = "" },
			want: []string{`spec.tenantClusterRef: Forbidden: no TenantCluster in namespace a has spec.standAloneMachines Allowed: name a ` +
				`TenantCluster in spec.tenantClusterRef, or have it set on the one whose quota is to count the server`}},
		"StandAloneElsewhere": {reason: "the platform has not allowed it", spec: "nodeTypeRef: {name: h100}",
			change: func(_ *testing.T, m *memory) { m.tenants = nil },
			want: []string{`spec.tenantClusterRef: Forbidden: there is no TenantCluster in namespace a, and the namespace does not have the label ` +
				`karpenter.metal3.io/stand-alone-machines=allowed: name a TenantCluster in spec.tenantClusterRef, or have the label set: kubectl ` +
				`label namespace a karpenter.metal3.io/stand-alone-machines=allowed`}},
		"StandAloneLabelled": {reason: "the platform has allowed it", spec: "nodeTypeRef: {name: cpu}", change: func(_ *testing.T, m *memory) {
			m.tenants, m.labels = nil, map[string]string{"karpenter.metal3.io/stand-alone-machines": "allowed"}
		}},
		"StandAloneElsewhereTellsNothing": {reason: "who may have nothing there learns of no images and servers",
			spec:   "nodeTypeRef: {name: h100}, properties: {karpenter.metal3.io/os-image: debian, karpenter.metal3.io/server-name: none}",
			change: func(_ *testing.T, m *memory) { m.tenants = nil },
			want: []string{`spec.tenantClusterRef: Forbidden: there is no TenantCluster in namespace a, and the namespace does not have the label ` +
				`karpenter.metal3.io/stand-alone-machines=allowed: name a TenantCluster in spec.tenantClusterRef, or have the label set: kubectl ` +
				`label namespace a karpenter.metal3.io/stand-alone-machines=allowed`}},
		"MissingTenantTellsNothing": {reason: "so does the name of a tenant that is not there", spec: "nodeTypeRef: {name: h100}, " +
			"tenantClusterRef: {name: none}, properties: {karpenter.metal3.io/os-image: debian, karpenter.metal3.io/server-name: none}"},
		"Operator": {reason: "Kubernetes' own, spelled as they are", spec: "requirements: [{key: rack, operator: NotExists}]", want: []string{
			`spec.requirements[0].operator: Unsupported value: "NotExists": supported values: "DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"`}},
		"Values": {reason: "operators take what they take", spec: "requirements: [{key: 'r k', operator: In}, {key: rack, operator: Exists, " +
			"values: [a]}]", want: []string{
			`spec.requirements[0]: Invalid value: "r k In": name part must consist of alphanumeric characters, '-', '_' or '.', and must start ` +
				`and ` +
				`end with an alphanumeric character`,
			`spec.requirements[0]: Invalid value: "r k In": for 'in', 'notin' operators, values set can't be empty`,
			`spec.requirements[1]: Invalid value: "rack Exists": values set must be empty for exists and does not exist`}},
		"Contradiction": {reason: "nothing can match", spec: "requirements: [{key: gen, operator: Gt, values: ['5']}, {key: gen, operator: Lt, " +
			"values: ['6']}]", want: []string{
			`spec.requirements: Invalid value: "gen": no server can match: gen>5, gen<6 rule each other out: take one of ` +
				`them away`}},
		"Resources": {reason: "no half GPUs", spec: "resources: {nvidia.com/gpu: 500m, gpu: 1, cpu: '-1'}", want: []string{
			`spec.resources["cpu"]: Invalid value: "-1": there cannot be less than nothing of it: write how much there is`,
			`spec.resources["gpu"]: Invalid value: "gpu": is neither one of cpu, memory, ephemeral-storage, pods nor an extended resource: write ` +
				`it with its domain, for example nvidia.com/gpu`,
			`spec.resources["nvidia.com/gpu"]: Invalid value: "500m": devices are counted in whole ones: write a whole number`}},
		"Properties": {reason: "each with its own sentence", spec: "nodeTypeRef: {name: h100}, properties: {'gpu model': x, " +
			"karpenter.metal3.io/network-cidr: x, karpenter.metal3.io/os-image: debian, karpenter.metal3.io/ssh-keys: 'me,you'}", want: []string{
			`spec.properties["karpenter.metal3.io/network-cidr"]: Invalid value: "x": is not an address and a prefix length: set it to the ` +
				`gateway ` +
				`and the prefix length of the network, for example 192.168.100.1/24`,
			`spec.properties["gpu model"]: Invalid value: "x": has a key that cannot be one of a label (name part must consist of alphanumeric ` +
				`characters, '-', '_' or '.', and must start and end with an alphanumeric character): write a name, or a domain, a slash and a name, ` +
				`for example example.com/team`,
			`warning: spec.properties["karpenter.metal3.io/os-image"]: there is no OSImage "debian" yet: Machines get no server before there is`,
			`warning: spec.properties["karpenter.metal3.io/ssh-keys"]: there is no SSHKey "you" yet: Machines get no server before there is`}},
		"NoNode": {reason: "accepted without an effect, it is said", spec: "nodeTypeRef: {name: h100}, labels: {a: b}, " +
			"taints: [{key: x, effect: NoSchedule}], startupTaints: [{key: y, effect: NoSchedule}]", want: []string{
			"warning: spec.labels, spec.startupTaints, spec.taints" + noNode}},
		"NameServers": {reason: "they are written into the network data, and there is none", spec: "nodeTypeRef: {name: h100}, " +
			"properties: {karpenter.metal3.io/dns-servers: 10.0.0.53}", want: []string{
			`warning: spec.properties["karpenter.metal3.io/dns-servers"]: has an effect only on servers with karpenter.metal3.io/network-cidr, ` +
				`and that is not set here: where another DHCP server gives the addresses, set the name servers there`}},
		"Ranges": {reason: "the type or its provider may have the network", spec: "nodeTypeRef: {name: h100}, " +
			"properties: {karpenter.metal3.io/network-ip-range: 10.0.0.10-10.0.0.20}", want: []string{
			`warning: spec.properties["karpenter.metal3.io/network-ip-range"]: needs the prefix length and the gateway of ` +
				`karpenter.metal3.io/network-cidr, and that is not set here: Machines get no server unless a more general object sets it`}},
		"NetworkData": {reason: "a bond has another name on the server", spec: "nodeTypeRef: {name: h100}, properties: " +
			"{karpenter.metal3.io/network-data: 'version: 2\n\nethernets: {a: {}}\n\nbonds: {lan: {interfaces: [a]}}'}", want: []string{
			`warning: spec.properties["karpenter.metal3.io/network-data"]: has bond lan, which cloud-init names bond0: a config drive carries ` +
				`no names of bonds`}},
		"Documents": {reason: "without what is in them", spec: "nodeTypeRef: {name: h100}, properties: {karpenter.metal3.io/user-data: " +
			"'password: secret', karpenter.metal3.io/network-data: '[secret]'}", want: []string{
			`spec.properties["karpenter.metal3.io/user-data"]: Invalid value: "(16 bytes)": is not user data for cloud-init: its first line must ` +
				`be "#cloud-config", or that of another format of cloud-init, such as "#!/bin/sh"`,
			`spec.properties["karpenter.metal3.io/network-data"]: Invalid value: "(8 bytes)": is not network data: it must be a mapping with ` +
				`"links" and "networks", or with "version: 2" and "ethernets"`}},
		"Node": {reason: "what kubelet would not take", spec: "nodeTypeRef: {name: h100}, labels: {rack: 'a b'}, taints: [{key: x, effect: " +
			"Never}, {key: z, effect: NoSchedule}, {key: z, effect: NoSchedule}]", want: []string{
			`spec.labels["rack"]: Invalid value: "a b": cannot be the value of a label: a valid label must be an empty string or consist of ` +
				`alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
			`spec.taints[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
			`spec.taints[2]: Duplicate value: "z:NoSchedule"`}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t)
			if tc.change != nil {
				tc.change(t, cluster)
			}
			says(t, tc.reason, Machine(cluster, nil, parse[v1alpha1.Machine](t, "{metadata: {namespace: a, name: m}, spec: {"+tc.spec+"}}")),
				tc.want...)
		})
	}
}

func TestPinning(t *testing.T) {
	going := func(t *testing.T, m *memory) {
		machine := pinned(t, "a", "old", "h1")
		machine.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		m.machines = append(m.machines, machine)
	}
	withMachine := func(namespace, name, server string) func(*testing.T, *memory) {
		return func(t *testing.T, m *memory) { m.machines = append(m.machines, pinned(t, namespace, name, server)) }
	}
	for name, tc := range map[string]struct {
		reason, spec, server string
		change               func(*testing.T, *memory)
		want                 []string
	}{
		"Free":    {reason: "it can be had", server: "h1"},
		"Claimed": {reason: "it may come free, and the condition Claimed says why it waits", server: "h2"},
		"Error":   {reason: "it may be mended, and the condition Claimed says why it waits", server: "h3"},
		"Missing": {reason: "a typing error", server: "h9",
			want: []string{pinAt + `Invalid value: "h9": there is no BareMetalHost of this name in namespace metal3-system: correct it, or ` +
				`register the server first`}},
		"NoName": {reason: "no server has such a name", server: "H_1",
			want: []string{pinAt + `Invalid value: "H_1": cannot be the name of a BareMetalHost (a lowercase RFC 1123 subdomain must consist of ` +
				`lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex ` +
				`used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')): set it to the name of a BareMetalHost ` +
				`that exists`}},
		"NoFleet": {reason: "nothing is known yet", server: "h1", change: func(_ *testing.T, m *memory) {
			m.providers, m.types, m.inventory = nil, nil, inventory.NewInventory(inventory.Options{})
		}, spec: "resources: {cpu: 1}"},
		"Type": {reason: "another type's", server: "c1",
			want: []string{pinAt + `Invalid value: "c1": pinned to server "c1", which cannot be had: h100: server metal3-system/c1 is not of this ` +
				`type: pin to another server, or ask for another type`}},
		"TooSmall": {reason: "it would not do", server: "h1", spec: "resources: {nvidia.com/gpu: 9}",
			want: []string{pinAt + `Invalid value: "h1": pinned to server "h1", which cannot be had: h100: too small: asks nvidia.com/gpu 9, ` +
				`has 8; 1 NodeType is not for this tenant: pin to another server, or ask for another type`}},
		"ServerTooSmall": {reason: "inspection has found less than its type says", server: "h4", change: func(_ *testing.T, m *memory) {
			m.server("h4", map[string]string{"gpu": "h100"}, smaller)
		}, want: []string{pinAt + `Invalid value: "h4": pinned to server "h4", which cannot be had: h100: server metal3-system/h4 is too small ` +
			`for this type (cpu 64 of 96): pin to another server, or ask for another type`}},
		"Rack": {reason: "it is elsewhere", server: "h1", spec: "resources: {nvidia.com/gpu: 1}, requirements: [{key: rack, operator: In, " +
			"values: [r2]}]", want: []string{pinAt + `Invalid value: "h1": pinned to server "h1", which cannot be had: h100: does not meet ` +
			`rack in (r2); 1 NodeType is not for this tenant: pin to another server, or ask for another type`}},
		"Taken": {reason: "one server, one Machine", server: "h1", change: withMachine("a", "other", "h1"),
			want: []string{pinAt + `Invalid value: "h1": Machine other is pinned to this server already: choose another, or delete that Machine ` +
				`first`}},
		"Foreign": {reason: "whose it is, is not said", server: "h2", change: func(t *testing.T, m *memory) {
			holder := pinned(t, "b", "other", "h2")
			holder.Status.HostRef = &v1alpha1.HostReference{Namespace: "metal3-system", Name: "h2"}
			m.machines = append(m.machines, holder)
		}, want: []string{pinAt + `Invalid value: "h2": a Machine of another tenant is pinned to this server already: choose another, or ` +
			`delete ` +
			`that Machine first`}},
		"ForeignWaits": {reason: "pins that wait cost no quota: if they counted, one tenant could keep all servers from the others", server: "h1",
			change: withMachine("b", "other", "h1"), want: []string{`warning: ` + pinAt +
				`a Machine of another tenant waits for this server, too: ` +
				`one of ` +
				`the two gets it`}},
		"Itself": {reason: "it is not in its own way", server: "h1", change: withMachine("a", "m", "h1")},
		"Going":  {reason: "a replacement waits for it", server: "h1", change: going},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t)
			if tc.change != nil {
				tc.change(t, cluster)
			}
			spec := tc.spec
			if spec == "" {
				spec = "nodeTypeRef: {name: h100}"
			}
			says(t, tc.reason, Machine(cluster, nil,
				parse[v1alpha1.Machine](t, "{metadata: {namespace: a, name: m}, spec: {"+spec+", properties: {karpenter.metal3.io/server-name: "+
					tc.server+"}}}")), tc.want...)
		})
	}
}

func TestMachineChanged(t *testing.T) {
	const provisioned = "status: {hostRef: {namespace: metal3-system, name: h1, uid: u}, conditions: [{type: Provisioned, status: 'True', " +
		"reason: x, message: '', lastTransitionTime: null}]}"
	const claimed = "status: {hostRef: {namespace: metal3-system, name: h1, uid: u}}"
	const noEffect = ": the server is installed and has registered with what was there before: delete the Machine and make another for the " +
		"change to have an effect"
	for name, tc := range map[string]struct {
		reason, before, status, labels, after string
		want                                  []string
	}{
		"Bootstrap": {reason: "as the provider does", after: "bootstrap: {dataSecretName: s}"},
		"Unpinned":  {reason: "nothing is claimed yet", before: "properties: {karpenter.metal3.io/server-name: h1}"},
		"Repinned": {reason: "a new pin is validated", before: "properties: {karpenter.metal3.io/server-name: h1}",
			after: "properties: {karpenter.metal3.io/server-name: h9}", want: []string{
				pinAt + `Invalid value: "h9": there is no BareMetalHost of this name in namespace metal3-system: correct it, or register the server ` +
					`first`}},
		"Claimed": {reason: "it would need another server", before: "properties: {karpenter.metal3.io/server-name: h1}", status: claimed,
			after: "properties: {karpenter.metal3.io/server-name: h2}", want: []string{
				pinAt + `Invalid value: "h2": the Machine has claimed server h1: delete it and make another`}},
		"Installed": {reason: "the server does not look at it any more", status: provisioned,
			after: "properties: {karpenter.metal3.io/os-image: ubuntu}, labels: {a: b}", want: []string{
				"warning: spec.properties, spec.labels" + noEffect}},
		"Drift": {reason: "the provider tells a Machine what its class says now, before and after it is installed",
			before: "properties: {rack: r1, karpenter.metal3.io/server-name: h1}", status: claimed,
			after: "properties: {karpenter.metal3.io/os-image: ubuntu, tier: silver, karpenter.metal3.io/server-name: h1}"},
		"DriftInstalled": {reason: "it is replaced automatically", status: provisioned, labels: "karpenter.metal3.io/nodeclaim: m",
			after: "properties: {karpenter.metal3.io/os-image: ubuntu}"},
		"DriftToNonsense": {reason: "the manager says in the condition Drifted that it makes no sense, and nothing else is held up",
			status: claimed, after: "properties: {'gpu model': x, karpenter.metal3.io/os-image: debian}"},
		"Nonsense": {reason: "nothing is claimed yet", after: "properties: {tier: very good}", want: []string{
			`spec.properties["tier"]: Invalid value: "very good": has a value that cannot be one of a label (a valid label must be an empty ` +
				`string ` +
				`or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character): write letters, ` +
				`digits, -, _ and . only, several values separated by commas, or * for any`}},
		"PinDropped": {reason: "it would be free to go elsewhere", before: "properties: {karpenter.metal3.io/server-name: h1}", status: claimed,
			want: []string{
				pinAt + `Invalid value: "": the Machine has claimed server h1: delete it and make another`}},
		"PinAdded": {reason: "it may have another", status: claimed, after: "properties: {karpenter.metal3.io/server-name: h2}", want: []string{
			pinAt + `Invalid value: "h2": the Machine has claimed server h1: delete it and make another`}},
		"Kubelet": {reason: "kubelet has been started", before: "kubeletArgs: {v: '2'}", status: provisioned, after: "kubeletArgs: {v: '4'}",
			want: []string{"warning: spec.kubeletArgs" + noEffect}},
		"KubeletEarly": {reason: "nothing is installed yet", status: claimed, after: "kubeletArgs: {v: '4'}"},
		"Power":        {reason: "a switch", status: provisioned, after: "power: {state: 'Off'}"},
		"OldFault": {reason: "what is not changed is not held against it", before: "labels: {'a b': c}",
			after: "labels: {'a b': c}, bootstrap: {dataSecretName: s}"},
	} {
		t.Run(name, func(t *testing.T) {
			machine := func(spec string) *v1alpha1.Machine {
				if spec != "" {
					spec = ", " + spec
				}
				status := tc.status
				if status == "" {
					status = "status: {}"
				}
				return parse[v1alpha1.Machine](t, "{metadata: {namespace: a, name: m, labels: {"+tc.labels+"}}, spec: {nodeTypeRef: {name: h100}"+spec+
					"}, "+status+"}")
			}
			says(t, tc.reason, Machine(newCluster(t), machine(tc.before), machine(tc.after)), tc.want...)
		})
	}
}
