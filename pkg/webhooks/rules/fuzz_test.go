// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// Whatever an object holds, the answer is one that can be sent: every error has a field, every warning is a line, and
// neither grows with the object. That it does not panic and comes in time, the fuzzer sees by itself.
func checkResult(t *testing.T, result Result) {
	t.Helper()
	for _, err := range result.Errors {
		if err.Field == "" || err.Detail == "" && err.Type != "FieldValueDuplicate" && err.Type != "FieldValueNotSupported" {
			t.Errorf("an error without a field or a reason: %#v", err)
		}
		if size := len(err.Error()); size > 16<<10 {
			t.Errorf("an error of %d bytes: %.200s", size, err.Error())
		}
	}
	for _, warning := range result.Warnings {
		if len(warning) > maxWarning || strings.ContainsAny(warning, "\r\n") {
			t.Errorf("not a line: %q", warning)
		}
	}
	if len(result.Errors) > maxErrors+1 || len(result.Warnings) > maxWarnings+1 {
		t.Errorf("%d errors and %d warnings", len(result.Errors), len(result.Warnings))
	}
}

// decoded is an object as the API server would hand it over; false if it would not.
func decoded[T any](text string) (*T, bool) {
	object := new(T)
	return object, len(text) < 1<<20 && yaml.Unmarshal([]byte(text), object) == nil
}

func FuzzNodeProvider(f *testing.F) {
	f.Add(fleetYAML)
	f.Add("{metadata: {name: other}, spec: {metal3: {clusterRef: {namespace: a}, nodeTypes: [{name: h100, resources: {cpu: -1, a/b/c: 1.5}, " +
		"bareMetalHosts: {selector: {matchExpressions: [{key: 'x y', operator: Like}]}}, overhead: {kubeReserved: {cpu: 5}}}]}}}")
	f.Add("{metadata: {name: other}, spec: {metal3: {clusterRef: {namespace: elsewhere}, nodeTypes: [{name: t, resources: {cpu: 1, memory: " +
		"1}, provisioningDeadline: 1s, onError: Replace, devices: [{driver: a..b, count: 0, pcieRoots: [a], attributes: {'x y/z': {version: " +
		"v1}, resource.kubernetes.io/pcieRoot: {}}, capacity: {m: -1}, " +
		"requestPolicies: {m: {validRange: {step: 0}}}, sharedCounters: [{name: G, count: 9, counters: {x: 1m}}], consumesCounters: " +
		"[{counterSet: g, counters: {}}]}], bareMetalHosts: {selector: {}}}]}}}")
	cluster := newCluster(f)
	f.Fuzz(func(t *testing.T, text string) {
		after, ok := decoded[v1alpha1.NodeProvider](text)
		if !ok {
			return
		}
		checkResult(t, NodeProvider(cluster, nil, after))
		checkResult(t, NodeProvider(cluster, after, cluster.providers[0]))
		for i := range after.Spec.Metal3.NodeTypes {
			nodeType := &v1alpha1.NodeType{}
			nodeType.Name, nodeType.Spec.HardwareProfile = after.Name, after.Spec.Metal3.NodeTypes[i].HardwareProfile
			checkResult(t, NodeType(cluster, nil, nodeType))
		}
	})
}

func FuzzMachine(f *testing.F) {
	f.Add("{metadata: {namespace: a, name: m}, spec: {nodeTypeRef: {name: h100}, tenantClusterRef: {name: a}, properties: " +
		"{karpenter.metal3.io/server-name: h1, rack: 'a,*'}}}")
	f.Add("{metadata: {namespace: a, name: m}, spec: {resources: {nvidia.com/gpu: 1500m}, requirements: [{key: rack, operator: In, values: " +
		"[r1]}, {key: gen, operator: Gt, values: ['5']}, {key: gen, operator: Lt, values: [x]}], labels: {a: b}, taints: [{key: x, effect: " +
		"No}]}, status: {hostRef: {name: h1}}}")
	f.Add("{metadata: {namespace: a, name: m}, spec: {resources: {cpu: 1}, requestedDrivers: [gpu.nvidia.com, 'x y'], tenantClusterRef: " +
		"{name: a}, kubeletArgs: {provider-id: x, '--v': '2 3'}, properties: {'a b': c}}, status: {hostRef: {name: h1}, conditions: [{type: " +
		"Provisioned, status: 'True'}]}}")
	cluster := newCluster(f)
	cluster.machines = append(cluster.machines, pinned(f, "b", "other", "h2"))
	f.Fuzz(func(t *testing.T, text string) {
		after, ok := decoded[v1alpha1.Machine](text)
		if !ok {
			return
		}
		checkResult(t, Machine(cluster, nil, after))
		checkResult(t, Machine(cluster, after, pinned(t, "a", "m", "h2")))
	})
}

func FuzzTenantCluster(f *testing.F) {
	f.Add("{metadata: {namespace: c, name: t}, spec: {apiServerEndpoint: 't:6443', allowedNodeTypes: [h100, 'fleet.*'], privateNodes: " +
		"{autoNodes: [{provider: fleet, static: [{name: s, quantity: 1, nodeTypeSelector: [{property: " +
		"karpenter.metal3.io/node-type, value: h100}], properties: {karpenter.metal3.io/server-name: h1}}], dynamic: [{name: d, " +
		"nodeTypeSelector: [{property: rak, operator: Exists}], limits: {nodes: 1.5}, kubeletArgs: {'--v': '2 3'}}]}], " +
		"kubelet: {config: {maxPods: x, evictionHard: {a: 5%}, reservedMemory: [{numaNode: 0}], a: {c: d}}}}}}")
	cluster := newCluster(f)
	f.Fuzz(func(t *testing.T, text string) {
		if after, ok := decoded[v1alpha1.TenantCluster](text); ok {
			checkResult(t, TenantCluster(cluster, nil, after))
			checkResult(t, TenantCluster(cluster, cluster.tenants[0], after))
		}
	})
}

func FuzzOtherKinds(f *testing.F) {
	f.Add("{{ if .Values.Project }}x{{ end }}", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAfBTTODvtUTvt6MIKSCdwSl4XIKVUE95P8SIJPBWL6e me",
		"https://x/y.qcow2", "abc", "#cloud-config\n", "version: 2")
	cluster := newCluster(f)
	f.Fuzz(func(t *testing.T, template, key, url, checksum, userData, networkData string) {
		object := &v1alpha1.MachineConfigTemplate{}
		object.Spec.CloudInitTemplate, object.Spec.NetworkDataTemplate = template, template
		checkResult(t, MachineConfigTemplate(nil, nil, object))
		sshKey := &v1alpha1.SSHKey{}
		sshKey.Spec.PublicKey = key
		checkResult(t, SSHKey(nil, nil, sshKey))
		image := &v1alpha1.OSImage{}
		image.Spec.Properties = map[string]string{v1alpha1.PropertyImageURL: url, v1alpha1.PropertyImageChecksum: checksum,
			v1alpha1.PropertyUserData: userData, v1alpha1.PropertyNetworkData: networkData, key: template}
		checkResult(t, OSImage(cluster, nil, image))
	})
}

// FuzzTemplate renders what parses, with a made-up server: no template may crash the manager.
func FuzzTemplate(f *testing.F) {
	f.Add("#cloud-config\nhostname: {{ .Values.NodeClaim.Name }}\n{{ range .Values.SSHKeys }}- {{ . | quote }}\n{{ end }}")
	f.Add(`{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}`)
	f.Add(`{{ repeat 5 "x" }}{{ until 5 }}{{ dict "a" (list 1 2) | toJson }}`)
	f.Add(strings.Repeat("{{ if true }}", 1000) + strings.Repeat("{{ end }}", 1000))
	f.Add("{{ " + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + " }}")
	f.Fuzz(func(t *testing.T, text string) {
		template := bootstrap.Template{Name: "fuzzed", Text: text}
		if bootstrap.CheckSyntax(template) != nil {
			return
		}
		document, err := bootstrap.Render(template,
			bootstrap.Values{BareMetalHost: &bmov1alpha1.BareMetalHost{}, NodeClaim: &v1alpha1.Machine{}, Project: "a",
				Properties: map[string]string{"rack": "r1"}, SSHKeys: []string{"k"}})
		if err == nil && len(document) > bootstrap.MaxDocumentBytes {
			t.Errorf("a document of %d bytes", len(document))
		}
	})
}

// FuzzAddresses makes a pool of whatever passes for a network.
func FuzzAddresses(f *testing.F) {
	f.Add("192.168.100.1/24", "192.168.100.10-192.168.100.50, 192.168.100.60", "10.0.0.53,2001:db8::53")
	f.Add("2001:db8::1/64", "2001:db8::10-2001:db8::ffff", "")
	f.Fuzz(func(t *testing.T, cidr, ranges, dns string) {
		set := properties.Merge(properties.Layer{Source: "Machine a/m", Values: map[string]string{
			v1alpha1.PropertyNetworkCIDR: cidr, v1alpha1.PropertyNetworkIPRange: ranges, v1alpha1.PropertyDNSServers: dns}})
		faults := set.Validate()
		network, there, err := set.Network()
		if (err != nil) != (len(faults) > 0) {
			t.Fatalf("%v, and all at once: %v", err, faults)
		}
		if err != nil || !there {
			return
		}
		pool, err := ipam.NewPool(network.CIDR, network.Gateway, network.Ranges...)
		if err == nil && (pool.Contains(network.Gateway) || pool.Size() == 0) {
			t.Errorf("%s holds its gateway %s, or nothing", pool, network.Gateway)
		}
	})
}

// FuzzConflict looks for a label that meets what is said to be a contradiction.
func FuzzConflict(f *testing.F) {
	f.Add("gpu in (a,b),gpu notin (b),gpu", "a")
	f.Add("gen>5,gen<7", "6")
	f.Add("rack=r1,!rack", "")
	f.Add("gen>5,gen notin (6)", "7")
	f.Add("gen>5,gen<6", "5")
	f.Add("gen in (9223372036854775807),gen>3", "4")
	f.Add("rack in (r1,r2),rack notin (r1),rack!=r2", "r3")
	f.Add("rack!=r1,rack", "r2")
	f.Fuzz(func(t *testing.T, text, value string) {
		selector, err := labels.Parse(text)
		if err != nil {
			return
		}
		requirements, _ := selector.Requirements()
		about, why := conflict(requirements)
		if about == "" {
			return
		}
		var ours []labels.Requirement
		candidates := []string{value}
		for i := range requirements {
			if requirements[i].Key() == about {
				ours = append(ours, requirements[i])
				candidates = append(candidates, requirements[i].Values().List()...)
			}
		}
		met := func(set labels.Set) bool {
			return !slices.ContainsFunc(ours, func(requirement labels.Requirement) bool { return !requirement.Matches(set) })
		}
		if met(labels.Set{}) {
			t.Errorf("%s: %s of %s, but a server without the label matches", text, why, about)
		}
		for _, candidate := range candidates {
			if met(labels.Set{about: candidate}) {
				t.Errorf("%s: %s of %s, but %q matches", text, why, about, candidate)
			}
		}
	})
}
