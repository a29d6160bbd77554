// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestDevices(t *testing.T) {
	const gpus = "devices: [{driver: gpu.nvidia.com, count: 8, attributes: {model: {string: H100}, driverVersion: {version: 570.1.2}}, " +
		"capacity: {memory: 80Gi}}]"
	var many []string
	for _, letter := range strings.Split("abcdefghijklmnopqrstuvwxyzABCDEFG", "") {
		many = append(many, letter+": {int: 1}")
	}
	shared := func(policy string) string {
		return "{driver: d, count: 1, allowMultipleAllocations: true, capacity: {memory: 80Gi}, requestPolicies: {memory: " + policy + "}}"
	}
	partitioned := func(has, slice string) string {
		return "{driver: d, count: 8, sharedCounters: [{name: gpu, count: 8, counters: " + has + "}]}, " +
			"{driver: d, count: 56, consumesCounters: [{counterSet: gpu, counters: " + slice + "}]}"
	}
	const policyAt = typeAt + `devices[0].requestPolicies["memory"].`
	for name, tc := range map[string]struct {
		reason, profile string
		want            []string
	}{
		"Good": {"as a driver publishes them", gpus, nil},
		"None": {"a server without devices", "devices: []", nil},
		"Driver": {"no driver has such a name", "devices: [{driver: a..b, count: 1}]",
			[]string{typeAt + `devices[0].driver: Invalid value: "a..b": is not the DNS name of a driver: use a name like gpu.nvidia.com`}},
		"Names": {"no driver can publish them", "devices: [{driver: d, count: 1, attributes: {'gpu model': {string: x}}, capacity: " +
			"{A/b: 1}}]",
			[]string{typeAt + `devices[0].attributes["gpu model"]: Invalid value: "gpu model": is not an identifier of at most 32`,
				typeAt + `devices[0].capacity["A/b"]: Invalid value: "A/b": has the domain "A", which is not a DNS name`}},
		"Version": {"claims could not compare it", "devices: [{driver: d, count: 1, attributes: {driverVersion: {version: v570}}}]",
			[]string{typeAt + `devices[0].attributes["driverVersion"].version: Invalid value: "v570": is not a semantic version`}},
		"Two": {"one value each, as in the schema", "devices: [{driver: d, count: 0, attributes: {a: {string: x, int: 1}}}]",
			[]string{typeAt + "devices[0].count: Invalid value: 0: devices are none",
				typeAt + `devices[0].attributes["a"]: Invalid value: 2: values are set: set exactly one`}},
		"Roots": {"they could contradict each other", "devices: [{driver: d, count: 2, pcieRoots: [a], attributes: " +
			"{resource.kubernetes.io/pcieRoot: {string: x}}}]",
			[]string{typeAt + `devices[0].attributes["resource.kubernetes.io/pcieRoot"]: Invalid value: "resource.kubernetes.io/pcieRoot": ` +
				`is ` +
				`what ` +
				`pcieRoots says already`}},
		"Capacity": {"no device has less than nothing", "devices: [{driver: d, count: 1, capacity: {memory: -1}}]",
			[]string{typeAt + `devices[0].capacity["memory"]: Invalid value: "-1": is less than nothing`}},
		"Many": {"a slice of them would be refused", "devices: [{driver: d, count: 1, attributes: {" + strings.Join(many, ", ") + "}}]",
			[]string{typeAt + "devices[0]: Invalid value: 33: attributes and capacities are more than the 32"}},
		"Shared": {"claims share them by a policy", "devices: [" + shared("{default: 2Gi, validRange: {min: 1Gi, max: 40Gi, step: "+
			"1Gi}}") + "]", nil},
		"Values": {"only some amounts", "devices: [" + shared("{default: 10Gi, validValues: [10Gi, 20Gi]}") + "]", nil},
		"NotShared": {"the API server would refuse it", "devices: [{driver: d, count: 1, capacity: {memory: 1}, requestPolicies: " +
			"{memory: " +
			"{default: 1}}}]", []string{typeAt + "devices[0].allowMultipleAllocations: Invalid value: false: does not go with " +
			"requestPolicies, " +
			"which are for devices that several claims share: set it to true, or remove them"}},
		"NoCapacity": {"there is nothing to share", "devices: [{driver: d, count: 1, allowMultipleAllocations: true, capacity: {memory: " +
			"1}, " +
			"requestPolicies: {cores: {default: 1}}}]",
			[]string{typeAt + `devices[0].requestPolicies["cores"]: Invalid value: "cores": is no capacity of the device, which has ` +
				`memory: name ` +
				"one of them, or add it there"}},
		"NoDefault": {"it says nothing", "devices: [" + shared("{validValues: [1Gi]}") + "]",
			[]string{policyAt + "default: Required value: set it to what a claim takes that requests nothing"}},
		"TwoPolicies": {"which counts is not known", "devices: [" + shared("{default: 1Gi, validValues: [1Gi], validRange: {min: "+
			"1Gi}}") + "]",
			[]string{typeAt + `devices[0].requestPolicies["memory"]: Invalid value: "validValues and validRange": are two policies: remove ` +
				`one`}},
		"Amounts": {"no claim could have them", "devices: [" + shared("{default: -1Gi, validRange: {min: -1Gi, max: 90Gi}}") + "]",
			[]string{policyAt + `default: Invalid value: "-1Gi": is less than nothing: correct it`,
				policyAt + `validRange.max: Invalid value: "90Gi": is more than the 80Gi that the device has: lower it`,
				policyAt + `validRange.min: Invalid value: "-1Gi": is less`}},
		"Range": {"the default is not in it", "devices: [" + shared("{default: 2Gi, validRange: {min: 3Gi, max: 1Gi}}") + "]",
			[]string{policyAt + `validRange.min: Invalid value: "3Gi": is more than the default of 2Gi: lower it`,
				policyAt + `validRange.max: Invalid value: "1Gi": is less than the default of 2Gi: raise it`}},
		"Step": {"it misses the default and the end", "devices: [" + shared("{default: 2Gi, validRange: {min: 1Gi, max: 8Gi, step: "+
			"3Gi}}") + "]",
			[]string{policyAt + `validRange.step: Invalid value: "3Gi": does not lead from min to the default, which is 2Gi: change one of ` +
				`them`,
				policyAt + `validRange.step: Invalid value: "3Gi": does not lead from min to max, which is 8Gi`}},
		"NoStep": {"it would divide by nothing", "devices: [" + shared("{default: 2Gi, validRange: {min: 1Gi, step: 0}}") + "]",
			[]string{policyAt + `validRange.step: Invalid value: "0": is no step: set it to more than zero, or remove it`}},
		"LongStep": {"there is no second amount", "devices: [" + shared("{default: 1Gi, validRange: {min: 1Gi, step: 80Gi}}") + "]",
			[]string{policyAt + `validRange.step: Invalid value: "80Gi": is more than the device has beyond min: lower it, or remove it`}},
		"NoMin": {"it has no beginning", "devices: [" + shared("{default: 1Gi, validRange: {max: 2Gi}}") + "]",
			[]string{policyAt + `validRange.min: Required value: is the least that a claim gets: set it`}},
		"Unsorted": {"the scheduler takes the first that is enough", "devices: [" + shared("{default: 5Gi, validValues: [2Gi, 1Gi]}") + "]",
			[]string{policyAt + `validValues[1]: Invalid value: "1Gi": is not more than the value before it: write them in ascending order`,
				policyAt + `default: Invalid value: "5Gi": is not among validValues: set it to one of them, or add it there`}},
		"ManyValues": {"the API server would refuse them", "devices: [" + shared("{default: 1, validValues: [1, 2, 3, 4, 5, 6, 7, 8, 9, "+
			"10, 11]}") + "]",
			[]string{policyAt + `validValues: Invalid value: 11: values are more than the 10 that a policy may have: remove some`}},
		"Partitioned": {"a GPU and its slices", "devices: [" + partitioned("{memory: 80Gi, slices: 7}", "{memory: 10Gi, slices: "+
			"1}") + "]", nil},
		"NoCounter": {"no claim could get it", "devices: [" + partitioned("{memory: 80Gi}", "{slices: 1}") + "]",
			[]string{typeAt + `devices[1].consumesCounters[0].counters["slices"]: Invalid value: "slices": is no counter of counter set ` +
				`gpu, which has ` +
				`memory: name one of them, or add it there`}},
		"TooMuch": {"no claim could get it", "devices: [" + partitioned("{memory: 80Gi}", "{memory: 81Gi}") + "]",
			[]string{typeAt + `devices[1].consumesCounters[0].counters["memory"]: Invalid value: "81Gi": is more than the 80Gi that ` +
				`counter set gpu ` +
				`has: no claim could get the device; lower it`}},
		"Fraction": {"core rounds what is left", "devices: [" + partitioned("{memory: 80Gi}", "{memory: 500m}") + "]",
			[]string{typeAt + `devices[1].consumesCounters[0].counters["memory"]: Invalid value: "500m": is not a whole number: multiply ` +
				`this counter, ` +
				`wherever it is written, so that it is one`}},
		"CounterName": {"the API server would refuse it", "devices: [" + partitioned("{Memory: -1}", "{Memory: -1}") + "]",
			[]string{typeAt + `devices[0].sharedCounters[0].counters["Memory"]: Invalid value: "Memory": is not a DNS label of lower-case ` +
				`letters, digits ` +
				`and dashes: use a name like memory-slice-0`, `counters["Memory"]: Invalid value: "-1": is less than nothing`,
				`devices[1].consumesCounters[0].counters["Memory"]: Invalid value: "Memory"`, `Invalid value: "-1"`}},
		"NoSet": {"of another driver there is one", "devices: [" + partitioned("{memory: 1}", "{memory: 1}") + ", {driver: e, count: 1, " +
			"consumesCounters: [{counterSet: gpu, counters: {memory: 1}}]}]",
			[]string{typeAt + `devices[2].consumesCounters[0].counterSet: Invalid value: "gpu": is not the name of a counter set: write ` +
				`one that ` +
				`sharedCounters of an entry of driver e has`}},
		"TwoSets": {"a name says which", "devices: [" + partitioned("{memory: 1}", "{memory: 1}") + ", {driver: d, count: 1, " +
			"sharedCounters: " +
			"[{name: gpu, counters: {memory: 1}}], consumesCounters: [{counterSet: gpu, counters: {memory: 1}}, {counterSet: gpu, " +
			"counters: {memory: 1}}]}]",
			[]string{typeAt + `devices[2].sharedCounters[0].name: Invalid value: "gpu": is the name of two counter sets of driver d: ` +
				`rename one of them`,
				typeAt + `devices[2].consumesCounters[1].counterSet: Invalid value: "gpu": is consumed from twice: write all counters in one ` +
					`entry`}},
		"OnError": {"what becomes of them is said", "onError: Replace, provisioningDeadline: 90m", nil},
		"Short": {"servers that are well would be given up", "provisioningDeadline: 90s",
			[]string{"warning: " + typeAt + "provisioningDeadline: 1m30s is less than servers take to boot, and those that boot are given " +
				"up: set " +
				"it"}},
		"Replaced": {"and kept out of the pool", "onError: Replace, provisioningDeadline: 1m",
			[]string{"warning: " + typeAt + "provisioningDeadline: 1m0s is less than servers take to boot, and those that boot are given " +
				"up and " +
				"quarantined: set it"}},
		"Just": {"as long as some take", "provisioningDeadline: 5m", nil},
	} {
		t.Run(name, func(t *testing.T) {
			mentions(t, tc.reason,
				NodeProvider(newCluster(t), nil, provided(t, fine+tc.profile+", bareMetalHosts: {selector: {matchLabels: {class: cpu, rack: "+
					"r9}}}")),
				tc.want...)
		})
	}
}

func TestKubeletArgs(t *testing.T) {
	prefix := func(name string) string { return `spec.kubeletArgs["` + name + `"]: Invalid value: ` }
	for name, tc := range map[string]struct {
		reason, args string
		want         []string
	}{
		"Good": {"as kubelet takes them", "max-pods: '200', v: '2'", nil},
		"Identity": {"the join sets the node's identity", "provider-id: x, node-labels: a=b",
			[]string{prefix("node-labels") + `"a=b": kubelet argument "node-labels" cannot be given: use the labels`,
				prefix("provider-id") + `"x": kubelet argument "provider-id" cannot be given`}},
		"Reserved": {"Karpenter reckons with the NodeType's", "kube-reserved: cpu=1",
			[]string{prefix("kube-reserved") + `"cpu=1": kubelet argument "kube-reserved" cannot be given: set the overhead of the ` +
				`NodeType`}},
		"Dashes": {"they are added", "--max-pods: '200'",
			[]string{prefix("--max-pods") + `"200": kubelet argument "--max-pods" is not a flag name; write it without leading dashes`}},
		"Blank": {"systemd would split it", "feature-gates: a b",
			[]string{prefix("feature-gates") + `"a b": the value of kubelet argument "feature-gates" holds a blank`}},
	} {
		t.Run(name, func(t *testing.T) {
			machine := func(args string) *v1alpha1.Machine {
				return parse[v1alpha1.Machine](t, "{metadata: {namespace: a, name: m}, spec: {nodeTypeRef: {name: h100}, tenantClusterRef: "+
					"{name: a}, "+
					"kubeletArgs: {"+args+"}}}")
			}
			mentions(t, tc.reason, Machine(newCluster(t), nil, machine(tc.args)), tc.want...)
			mentions(t, tc.reason+", also later", Machine(newCluster(t), machine(""), machine(tc.args)), tc.want...)
			mentions(t, "what is not changed is not held against it", Machine(newCluster(t), machine(tc.args), machine(tc.args)))
			pool := tenantWith(t, "c", "privateNodes: {autoNodes: [{provider: fleet, dynamic: [{name: d, kubeletArgs: {"+
				tc.args+"}}]}]}")
			var ofPool []string
			for _, line := range tc.want {
				ofPool = append(ofPool, strings.Replace(line, "spec.", autoNodesAt+".dynamic[0].", 1))
			}
			mentions(t, tc.reason+", in a pool", TenantCluster(newCluster(t), open, pool), ofPool...)
		})
	}
}

// TestKubeletConfig: what stands for arguments is validated as these are, where it is written.
func TestKubeletConfig(t *testing.T) {
	const config = "spec.privateNodes.kubelet.config."
	many := make([]string, v1alpha1.MaxKubeletArgs)
	for i := range many {
		many[i] = fmt.Sprintf("a%d: b", i)
	}
	const pool = "autoNodes: [{provider: fleet, dynamic: [{name: d, kubeletArgs: {max-pods: '50'}}]}]"
	for name, tc := range map[string]struct {
		reason, nodes string
		want          []string
	}{
		"Good": {"the pool says more of one", "kubelet: {config: {maxPods: 200, cpuManagerPolicy: static}}, " + pool, nil},
		"NotANumber": {"kubelet would not start", "kubelet: {config: {maxPods: many}}, " + pool,
			[]string{config + `maxPods: Invalid value: "many": kubelet would not start with max-pods=many`}},
		"Blank": {"systemd would split it", "kubelet: {config: {staticPodPath: a b}}, " + pool,
			[]string{config + `staticPodPath: Invalid value: "a b": the value of kubelet argument "pod-manifest-path" holds a ` +
				"blank"}},
		"Form": {"no KubeletConfiguration has it", "kubelet: {config: {clusterDNS: 10.0.0.10}}",
			[]string{config + `clusterDNS: Invalid value: "\"10.0.0.10\"": must be a list of texts`}},
		"TooMany": {"a class takes no more", "kubelet: {config: {cpuManagerPolicy: static}}, autoNodes: [{provider: fleet, " +
			"static: [{name: s, quantity: 1, kubeletArgs: {" + strings.Join(many, ", ") + "}}]}]", []string{autoNodesAt +
			".static[0].kubeletArgs: Invalid value: 33: is how many arguments a kubelet of the pool would get, with those of " +
			"privateNodes.kubelet.config, and 32 is the most"}},
	} {
		t.Run(name, func(t *testing.T) {
			tenant := tenantWith(t, "c", "privateNodes: {"+tc.nodes+"}")
			mentions(t, tc.reason, TenantCluster(newCluster(t), open, tenant), tc.want...)
		})
	}
}

// A Machine that asks for devices by their driver gets what has them, whether or not it asks for a resource too.
func TestRequestedDrivers(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, drivers string
		want            []string
	}{
		"Theirs": {"the type has such devices", "[gpu.nvidia.com]", nil},
		"Nobodys": {"no type has", "[fpga.example.com]", []string{"spec.requirements: Forbidden: this tenant is allowed no NodeType " +
			"that fits"}},
		"NoName": {"no driver has such a name", "[GPU]",
			[]string{`spec.requestedDrivers[0]: Invalid value: "GPU": is not the DNS name of a DRA driver: use a name like ` +
				`gpu.nvidia.com`}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t)
			nodeType := cluster.NodeType("h100")
			nodeType.Spec.Devices = []v1alpha1.NodeTypeDevice{{Driver: "gpu.nvidia.com", Count: 8}}
			if invalid := cluster.inventory.AddType(nodeType, cluster.providers[0], ""); invalid != nil {
				t.Fatal(invalid)
			}
			machine := parse[v1alpha1.Machine](t, "{metadata: {namespace: a, name: m}, spec: {resources: {cpu: 1}, requestedDrivers: "+
				""+tc.drivers+
				", tenantClusterRef: {name: a}}}")
			mentions(t, tc.reason, Machine(cluster, nil, machine), tc.want...)
		})
	}
}

// A quarantined server can be pinned to. The remedy is in the warning of a pool for any value of the annotation, and in
// the condition Claimed of a Machine.
func TestPinnedToQuarantined(t *testing.T) {
	const wayOut = "until an operator removes the annotation karpenter.metal3.io/quarantined from it"
	const poolPinAt = autoNodesAt + `.static[0].properties["karpenter.metal3.io/server-name"]: `
	poolWaits := []string{"warning: " + poolPinAt + "server q1 is quarantined: the pool waits " + wayOut}
	for name, tc := range map[string]struct {
		reason, server, annotation string
		machine, pool              []string
	}{
		"ByManager": {"a Machine was given up on it", "q1",
			`{"reason":"HostError","since":"2026-01-02T15:04:05Z","machine":"tenant/x"}`, nil,
			poolWaits},
		"ByPeople": {"with a long text", "q1", strings.Repeat("it smells ", 100), nil, poolWaits},
		"WrongType": {"it would not do if it were well", "q2", "",
			[]string{pinAt + `Invalid value: "q2": pinned to server "q2", which cannot be had: h100: server metal3-system/q2 is not of ` +
				`this type`},
			[]string{poolPinAt + `Invalid value: "q2": the server is of NodeType cpu, and the pool is for h100`, "warning: " + poolPinAt +
				"server q2 is quarantined"}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t)
			for server, set := range map[string]map[string]string{"q1": {"gpu": "h100"}, "q2": {"class": "cpu"}} {
				cluster.server(server, set, func(h *bmov1alpha1.BareMetalHost) {
					h.Annotations = map[string]string{v1alpha1.QuarantinedAnnotationKey: tc.annotation}
				})
			}
			mentions(t, tc.reason, Machine(cluster, nil, pinned(t, "a", "m", tc.server)), tc.machine...)
			pool := "{name: s, quantity: 1, nodeTypeSelector: [{property: karpenter.metal3.io/node-type, value: h100}], properties: " +
				"{karpenter.metal3.io/server-name: " + tc.server + "}}"
			mentions(t, tc.reason,
				TenantCluster(cluster, open, tenantWith(t, "c", "privateNodes: {autoNodes: [{provider: fleet, static: ["+pool+"]}]}")),
				tc.pool...)
		})
	}
}

// TestDevicesTwice: the same GPUs may be listed for a device plugin and for a driver.
func TestDevicesTwice(t *testing.T) {
	profile := parse[v1alpha1.HardwareProfile](t, "{resources: {cpu: 8, memory: 1Gi, nvidia.com/gpu: 8}, "+
		"devices: [{driver: gpu.nvidia.com, count: 8}]}")
	result := &Result{}
	result.profile(field.NewPath("spec"), profile)
	mentions(t, "they count once", result.done(), "warning: spec.devices: are taken for the same accelerators as nvidia.com/gpu "+
		"in resources: they count once, as 8 in cost and quota")
}
