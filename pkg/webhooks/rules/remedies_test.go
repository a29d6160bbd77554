// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestRemedies does what messages say: the first text is refused with the remedy, and the second, which follows it, is accepted.
func TestRemedies(t *testing.T) {
	oci := "oci://r.example.com/os@sha256:" + strings.Repeat("ab", 32)
	for name, objects := range map[string]struct {
		// around the text is the rest of an object.
		around string
		judge  func(t *testing.T, text string) Result
		cases  []remedy
	}{
		"Property": {"{metadata: {name: other}, spec: {properties: {%s}, metal3: {clusterRef: {namespace: other}}}}",
			judgeText(NodeProvider), []remedy{
				{
					`karpenter.metal3.io/user-data: '{"ignition":{"version":"3.4.0"}}'`,
					"use an image that has cloud-init, and write the document for it",
					`karpenter.metal3.io/user-data: "#cloud-config\npackages: [curl]\n"`,
				},
				{
					`karpenter.metal3.io/user-data: "#cloud-config\n{\"ignition\":{\"version\":\"3.4.0\"}}"`,
					"use an image that has cloud-init, and write the document for it",
					`karpenter.metal3.io/user-data: "#cloud-config\nruncmd: [ls]\n"`,
				},
				{
					`karpenter.metal3.io/user-data: "#cloud-config\nvariant: flatcar\nversion: 1.0.0\n"`,
					"use an image that has cloud-init, and write the document for it",
					`karpenter.metal3.io/user-data: "#cloud-config\nruncmd: [ls]\n"`,
				},
				{
					`karpenter.metal3.io/user-data: '{"packages":["curl"]}'`,
					"this is JSON: put the header above it",
					`karpenter.metal3.io/user-data: "#cloud-config\n{\"packages\":[\"curl\"]}"`,
				},
				{
					`karpenter.metal3.io/user-data: "packages: [curl]\n"`,
					`its first line must be "#cloud-config"`,
					`karpenter.metal3.io/user-data: "#cloud-config\npackages: [curl]\n"`,
				},
				{
					`karpenter.metal3.io/user-data: "echo hello\n"`,
					`such as "#!/bin/sh"`,
					`karpenter.metal3.io/user-data: "#!/bin/sh\necho hello\n"`,
				},
				{
					`karpenter.metal3.io/user-data: "#cloud-config\nruncmd: ls\n"`,
					"write each entry after a dash",
					`karpenter.metal3.io/user-data: "#cloud-config\nruncmd:\n- ls\n"`,
				},
				{
					`karpenter.metal3.io/user-data: "#cloud-config\nssh_authorized_keys:\n"`,
					"write a list, or leave the key out",
					`karpenter.metal3.io/user-data: "#cloud-config\nssh_authorized_keys: []\n"`,
				},
				{
					`karpenter.metal3.io/image-url: '` + strings.Replace(oci, "@", ":1.0@", 1) + `'`,
					"write the digest without the tag: " + oci,
					`karpenter.metal3.io/image-url: '` + oci + `'`,
				},
				{
					`karpenter.metal3.io/image-url: 'oci://r.example.com/os:1.0'`,
					"write the digest of the manifest behind the name",
					`karpenter.metal3.io/image-url: '` + oci + `'`,
				},
				{
					`karpenter.metal3.io/image-url: 'ftp://r/os'`,
					"set it to one, for example https://images.example.com/ubuntu.qcow2",
					`karpenter.metal3.io/image-url: 'https://images.example.com/ubuntu.qcow2', karpenter.metal3.io/image-checksum: ` +
						strings.Repeat("a", 64),
				},
				{
					`karpenter.metal3.io/image-url: 'https://i.example.com/u.qcow2', karpenter.metal3.io/image-checksum: x`,
					"set it to the 32 (md5), 64 (sha256)",
					`karpenter.metal3.io/image-url: 'https://i.example.com/u.qcow2', karpenter.metal3.io/image-checksum: ` +
						strings.Repeat("a", 32),
				},
				{
					`karpenter.metal3.io/image-url: 'https://i.example.com/u.qcow2', karpenter.metal3.io/image-checksum-type: sha512, ` +
						`karpenter.metal3.io/image-checksum: ` +
						strings.Repeat("a", 64),
					"set it to sha256 or leave it out",
					`karpenter.metal3.io/image-url: 'https://i.example.com/u.qcow2', karpenter.metal3.io/image-checksum-type: sha256, ` +
						`karpenter.metal3.io/image-checksum: ` +
						strings.Repeat("a", 64),
				},
				{
					`karpenter.metal3.io/network-cidr: 10.0.0.0`,
					"set it to the gateway and the prefix length of the network, for example 192.168.100.1/24",
					`karpenter.metal3.io/network-cidr: 192.168.100.1/24`,
				},
				{
					`karpenter.metal3.io/network-cidr: 10.0.0.1/24, karpenter.metal3.io/network-ip-range: 10.0.0.9-10.0.0.2`,
					"write it as 10.0.0.2-10.0.0.9",
					`karpenter.metal3.io/network-cidr: 10.0.0.1/24, karpenter.metal3.io/network-ip-range: 10.0.0.2-10.0.0.9`,
				},
				{
					`karpenter.metal3.io/network-cidr: 10.0.0.1/24, karpenter.metal3.io/dns-servers: dns`,
					"write addresses, separated by commas, for example 10.0.0.53,10.0.1.53",
					`karpenter.metal3.io/network-cidr: 10.0.0.1/24, karpenter.metal3.io/dns-servers: '10.0.0.53,10.0.1.53'`,
				},
				{
					`karpenter.metal3.io/ntp-servers: '0.0.0.0'`,
					"write addresses or host names, separated by commas, for example 10.0.0.123,ntp.example.com",
					`karpenter.metal3.io/ntp-servers: '10.0.0.123,ntp.example.com'`,
				},
				{
					`karpenter.metal3.io/os-image: ubuntu, ` + v1alpha1.ReferenceKey(v1alpha1.PropertyOSImage) + `: other`,
					"write one of the two",
					`karpenter.metal3.io/os-image: ubuntu`,
				},
			}},
		"Type": {"{metadata: {name: other}, spec: {metal3: {clusterRef: {namespace: other}, nodeTypes: [{name: new, %s}]}}}",
			judgeText(NodeProvider), []remedy{
				{
					"resources: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 500m}",
					"write a whole number",
					"resources: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}",
				},
				{
					"resources: {cpu: 1, memory: 1Gi, gpu: 1}",
					"write it with its domain, for example nvidia.com/gpu",
					"resources: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}",
				},
				{
					"resources: {cpu: 1, memory: 1Gi}, overhead: {kubeReserved: {cpu: 2}}",
					"set less aside",
					"resources: {cpu: 1, memory: 1Gi}, overhead: {kubeReserved: {cpu: 500m}}",
				},
				{
					"bareMetalHosts: {selector: {}}",
					"name a label that the servers of this type have",
					"bareMetalHosts: {selector: {matchLabels: {a: b}}}",
				},
				{
					"devices: [{driver: GPU, count: 1}]",
					"use a name like gpu.nvidia.com",
					"devices: [{driver: gpu.nvidia.com, count: 1}]",
				},
				{
					"zone: 'a b'",
					"it is a label of the nodes",
					"zone: a-b",
				},
			}},
		"Tenant": {"{metadata: {namespace: c, name: c}, spec: {apiServerEndpoint: 'c:6443', " + anyProperty + ", %s}}",
			judgeText(TenantCluster), []remedy{
				{
					"privateNodes: {autoNodes: [{provider: fleet, dynamic: [{name: a}, {name: a}]}]}",
					"give each dynamic pool of the tenant a name of its own",
					"privateNodes: {autoNodes: [{provider: fleet, dynamic: [{name: a}, {name: b}]}]}",
				},
				{
					"privateNodes: {autoNodes: [{provider: fleet, static: [{name: a, quantity: 1, limits: {cpu: 1}}]}]}",
					"a static pool has no limit but nodes: take it away",
					"privateNodes: {autoNodes: [{provider: fleet, static: [{name: a, quantity: 1}]}]}",
				},
				{
					"privateNodes: {autoNodes: [{provider: fleet, dynamic: [{name: a, limits: {nodes: 1500m}}]}]}",
					"write a whole number",
					"privateNodes: {autoNodes: [{provider: fleet, dynamic: [{name: a, limits: {nodes: 2}}]}]}",
				},
				{
					"allowedNodeTypes: [cpu], privateNodes: {autoNodes: " +
						"[{provider: fleet, dynamic: [{name: a, nodeTypeSelector: [{property: " +
						"karpenter.metal3.io/node-type, value: h100}]}]}]}",
					"allow it, or select another",
					"allowedNodeTypes: [cpu, h100], privateNodes: {autoNodes: " +
						"[{provider: fleet, dynamic: [{name: a, " +
						"nodeTypeSelector: [{property: karpenter.metal3.io/node-type, value: h100}]}]}]}",
				},
				{
					"allowedNodeTypes: ['H100!']",
					"is neither the name of a NodeType nor that of a NodeProvider followed by .*",
					"allowedNodeTypes: ['fleet.*']",
				},
			}},
		"Endpoint": {"{metadata: {namespace: c, name: c}, spec: {%s}}",
			judgeText(TenantCluster), []remedy{
				{
					"apiServerEndpoint: 'c'",
					"such as 10.0.0.1:6443 or [2001:db8::1]:6443",
					"apiServerEndpoint: '[2001:db8::1]:6443'",
				},
			}},
		"Machine": {"{metadata: {namespace: a, name: m}, spec: {tenantClusterRef: {name: a}, %s}}", judgeText(Machine), []remedy{
			{
				"properties: {karpenter.metal3.io/server-name: c1}, nodeTypeRef: {name: h100}",
				"pin to another server, or ask for another type",
				"properties: {karpenter.metal3.io/server-name: h1}, nodeTypeRef: {name: h100}",
			},
			{
				"properties: {karpenter.metal3.io/server-name: h9}, nodeTypeRef: {name: h100}",
				"correct it, or register the server first",
				"properties: {karpenter.metal3.io/server-name: h1}, nodeTypeRef: {name: h100}",
			},
			{
				"requirements: [{key: rack, operator: In, values: [r1]}, {key: rack, operator: NotIn, values: [r1]}], " +
					"resources: {nvidia.com/gpu: 1}",
				"take one of them away",
				"requirements: [{key: rack, operator: In, values: [r1]}], resources: {nvidia.com/gpu: 1}",
			},
			{
				"nodeTypeRef: {name: cpu}",
				"ask for one of these, or have them extended",
				"nodeTypeRef: {name: h100}",
			},
			{
				"nodeTypeRef: {name: h100}, bootstrap: {dataSecretName: b/s}",
				"write the name alone",
				"nodeTypeRef: {name: h100}, bootstrap: {dataSecretName: s}",
			},
			{
				"nodeTypeRef: {name: h100}, requestedDrivers: [GPU]",
				"use a name like gpu.nvidia.com",
				"nodeTypeRef: {name: h100}, requestedDrivers: [gpu.nvidia.com]",
			},
		}},
	} {
		for _, tc := range objects.cases {
			t.Run(name+"/"+tc.remedy, func(t *testing.T) {
				wrong := objects.judge(t, fmt.Sprintf(objects.around, tc.wrong))
				if !strings.Contains(strings.Join(linesOf(wrong), "\n"), tc.remedy) {
					t.Errorf("%s: no error has the remedy: %q", tc.wrong, linesOf(wrong))
				}
				if right := objects.judge(t, fmt.Sprintf(objects.around, tc.right)); !right.Allowed() {
					t.Errorf("%s: refused, although it follows the remedy %q: %q", tc.right, tc.remedy, linesOf(right))
				}
			})
		}
	}
}

// remedy is what a message says to do about a text, and the text when it is done.
type remedy struct{ wrong, remedy, right string }

func judgeText[T any](rule func(Cluster, *T, *T) Result) func(*testing.T, string) Result {
	return func(t *testing.T, text string) Result { return rule(newCluster(t), nil, parse[T](t, text)) }
}
