// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const header = "apiVersion: sandbox.karpenter.metal3.io/v1alpha1\nkind: Fleet\n"

func TestParse(t *testing.T) {
	small := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}
	type want struct {
		servers []Server
		err     string
	}
	cases := map[string]struct {
		reason  string
		content string
		want    want
	}{
		"Plain": {
			reason: "Labels and all kinds of capacity are taken as written.",
			content: header + `servers:
- name: h100
  labels: {rack: r1, tenant: "7"}
  capacity: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8}
- name: cpu
  capacity: {cpu: "4", memory: 8Gi}
`,
			want: want{servers: []Server{
				{Name: "h100", Labels: map[string]string{"rack": "r1", "tenant": "7"}, Capacity: corev1.ResourceList{
					"cpu": resource.MustParse("64"), "memory": resource.MustParse("512Gi"), "nvidia.com/gpu": resource.MustParse("8"),
				}},
				{Name: "cpu", Capacity: small},
			}},
		},
		"Count": {
			reason: "A template makes numbered servers, also when it makes one.",
			content: header + "servers:\n- {name: a, count: 2, capacity: {cpu: 4, memory: 8Gi}}\n- {name: b, count: 1, capacity: {cpu: 4, memory: " +
				"8Gi}}\n",
			want: want{servers: []Server{
				{Name: "a-01", Capacity: small}, {Name: "a-02", Capacity: small}, {Name: "b-01", Capacity: small},
			}},
		},
		"Architecture": {
			reason:  "Fleets may have both architectures.",
			content: header + "servers:\n- {name: a, architecture: arm64, capacity: {cpu: 4, memory: 8Gi}}\n",
			want:    want{servers: []Server{{Name: "a", Architecture: ARM64, Capacity: small}}},
		},
		"BadArchitecture": {
			reason:  "kubernetes.io/arch has other words than uname.",
			content: header + "servers:\n- {name: a, architecture: x86_64, capacity: {cpu: 4, memory: 8Gi}}\n",
			want:    want{err: `servers[0].architecture: "x86_64" of server a is not known; write amd64 or arm64`},
		},
		"Empty": {
			reason:  "An empty file is not an empty fleet.",
			content: "",
			want:    want{err: "is empty"},
		},
		"UnknownField": {
			reason:  "A misspelt field must not be ignored; the line says where it is.",
			content: header + "servers:\n- name: a\n  capcity: {cpu: 4}\n",
			want:    want{err: `line 5: unknown field "capcity"; known are name, count, architecture, labels, capacity`},
		},
		"UnknownTopField": {
			reason:  "The same at the top.",
			content: header + "server: []\n",
			want:    want{err: `line 3: unknown field "server"; known are apiVersion, kind, servers`},
		},
		"DuplicateField": {
			reason:  "Of two values one would be lost.",
			content: header + "servers:\n- name: a\n  name: b\n",
			want:    want{err: `line 5: mapping key "name" already defined at line 4`},
		},
		"NotYAML": {
			reason:  "A syntax error names its line.",
			content: header + "servers: [\n",
			want:    want{err: "line 3: did not find"},
		},
		"OtherKind": {
			reason:  "Some other manifest is not a fleet.",
			content: "apiVersion: v1\nkind: ConfigMap\n",
			want:    want{err: `kind "ConfigMap"`},
		},
		"TwoDocuments": {
			reason:  "A second document would be ignored.",
			content: header + "servers: [{name: a, capacity: {cpu: 4, memory: 8Gi}}]\n---\n" + header,
			want:    want{err: "more than one YAML document"},
		},
		"NoServers": {
			reason:  "A fleet without servers cannot be meant.",
			content: header,
			want:    want{err: "servers is empty"},
		},
		"NoName": {
			reason:  "A server without a name cannot be registered.",
			content: header + "servers: [{capacity: {cpu: 4, memory: 8Gi}}]\n",
			want:    want{err: "servers[0].name: is missing"},
		},
		"BadName": {
			reason:  "Names become names of objects.",
			content: header + "servers: [{name: GPU_1, capacity: {cpu: 4, memory: 8Gi}}]\n",
			want:    want{err: `servers[0].name: "GPU_1" cannot be a server's name`},
		},
		"DuplicateName": {
			reason:  "Also a name that comes of counting must be unique.",
			content: header + "servers: [{name: a, count: 2, capacity: {cpu: 4, memory: 8Gi}}, {name: a-02, capacity: {cpu: 4, memory: 8Gi}}]\n",
			want:    want{err: `servers[1].name: "a-02" is already the name of a server of servers[0]`},
		},
		"CountZero": {
			reason:  "No server is written by leaving it out.",
			content: header + "servers: [{name: a, count: 0, capacity: {cpu: 4, memory: 8Gi}}]\n",
			want:    want{err: "servers[0].count: 0 is not between"},
		},
		"CountText": {
			reason:  "A count is a number.",
			content: header + "servers:\n- name: a\n  count: many\n",
			want:    want{err: "line 5"},
		},
		"BadLabelValue": {
			reason:  "Labels end up on objects.",
			content: header + "servers: [{name: a, labels: {gpu: NVIDIA H100}, capacity: {cpu: 4, memory: 8Gi}}]\n",
			want:    want{err: `servers[0].labels[gpu]: "NVIDIA H100" of server a is not a label value`},
		},
		"BadLabelKey": {
			reason:  "So do their keys.",
			content: header + "servers: [{name: a, labels: {gpu model: h100}, capacity: {cpu: 4, memory: 8Gi}}]\n",
			want:    want{err: `servers[0].labels: key "gpu model" of server a is not a label key`},
		},
		"NoMemory": {
			reason:  "No server is without memory.",
			content: header + "servers: [{name: a, capacity: {cpu: 4}}]\n",
			want:    want{err: "servers[0].capacity: server a has no memory"},
		},
		"BadQuantity": {
			reason:  "A quantity that does not parse is named.",
			content: header + "servers: [{name: a, capacity: {cpu: 4, memory: lots}}]\n",
			want:    want{err: `servers[0].capacity[memory]: "lots" of server a is not a quantity`},
		},
		"BadQuantityOfMany": {
			reason:  "So is one of many servers.",
			content: header + "servers: [{name: a, count: 2, capacity: {cpu: 4, memory: lots}}]\n",
			want:    want{err: `servers[0].capacity[memory]: "lots" of server a is not a quantity`},
		},
		"Devices": {
			reason: "Devices are written as in a NodeType, and each server has its own.",
			content: header + "servers: [{name: a, count: 2, capacity: {cpu: 4, memory: 8Gi}, devices: [{driver: gpu.example.com, count: 8, " +
				"capacity: {memory: 80Gi}, attributes: {model: {string: big}}}]}]\n",
			want: want{servers: []Server{
				{Name: "a-01", Capacity: small, Devices: bigGPUs()}, {Name: "a-02", Capacity: small, Devices: bigGPUs()},
			}},
		},
		"UnknownDeviceField": {
			reason: "A slip of the pen must not be a device without capacity.",
			content: header + "servers: [{name: a, capacity: {cpu: 4, memory: 8Gi}, devices: [{driver: gpu.example.com, count: 8, capacities: " +
				"{memory: 80Gi}}]}]\n",
			want: want{err: `servers[0].devices: json: unknown field "capacities"`},
		},
		"BadDevice": {
			reason:  "The API server would refuse its slice.",
			content: header + "servers: [{name: a, capacity: {cpu: 4, memory: 8Gi}, devices: [{count: 8}]}]\n",
			want:    want{err: `servers[0].devices[0].driver: Invalid value: "": is not the DNS name of a driver`},
		},
		"ZeroQuantity": {
			reason:  "A GPU count of zero is a GPU that is not there.",
			content: header + "servers: [{name: a, capacity: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 0}}]\n",
			want:    want{err: `servers[0].capacity[nvidia.com/gpu]: "0" of server a is not positive`},
		},
		"HalfDevice": {
			reason:  "Devices come whole.",
			content: header + "servers: [{name: a, capacity: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 500m}}]\n",
			want:    want{err: `is not a whole number`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Parse("fleet.yaml", []byte(tc.content))
			if tc.want.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want.err) || !strings.HasPrefix(err.Error(), "fleet file fleet.yaml: ") {
					t.Fatalf("%s\nerror is %v, want one of the file with %q", tc.reason, err, tc.want.err)
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("%s\nthe error is more than one line:\n%v", tc.reason, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s\n%v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want.servers, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func bigGPUs() []v1alpha1.NodeTypeDevice {
	return []v1alpha1.NodeTypeDevice{{
		Driver: "gpu.example.com", Count: 8, Capacity: map[string]resource.Quantity{"memory": resource.MustParse("80Gi")},
		Attributes: map[string]v1alpha1.NodeTypeDeviceAttribute{"model": {String: ptr.To("big")}},
	}}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("the error of a missing file does not name it: %v", err)
	}
	if err := os.WriteFile(path, []byte(header+"servers: [{name: a, capacity: {cpu: 4, memory: 8Gi}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	servers, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(servers) != 1 || servers[0].Name != "a" {
		t.Errorf("got %v, want server a", servers)
	}
}
