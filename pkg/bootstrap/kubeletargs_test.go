// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestCheckKubeletArgs(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		args   map[string]string
		want   string
	}{
		"None":      {"most Machines have none", nil, ""},
		"Good":      {"kubelet has many", map[string]string{"max-pods": "200", "feature-gates": "A=true,B=false", "eviction-hard": "memory.available<100Mi,nodefs.available<10%"}, ""},
		"Empty":     {"an empty value switches some off", map[string]string{"resolv-conf": ""}, ""},
		"Dashes":    {"kubeadm adds them", map[string]string{"--max-pods": "200"}, `kubelet argument "--max-pods" is not a flag name; write it without leading dashes`},
		"Identity":  {"two provider IDs would contradict", map[string]string{"provider-id": "x"}, `"provider-id" cannot be given`},
		"Address":   {"it would be the same on every server", map[string]string{"node-ip": "10.0.0.1"}, `"node-ip" cannot be given: the kubelet finds the address`},
		"Config":    {"kubeadm writes it", map[string]string{"config": "/etc/kubelet.yaml"}, `"config" cannot be given: kubeadm sets it`},
		"Reserved":  {"Karpenter reckons with the type", map[string]string{"kube-reserved": "cpu=1"}, `"kube-reserved" cannot be given: set the overhead of the NodeType`},
		"Blank":     {"it would be two arguments", map[string]string{"v": "4 --kubeconfig=/mine"}, `the value of kubelet argument "v" holds a blank`},
		"Quote":     {"it would end the line", map[string]string{"v": `4"`}, `the value of kubelet argument "v" holds a blank, a quote`},
		"Expansion": {"systemd would put a variable in", map[string]string{"v": "$HOME"}, "a dollar sign"},
		"Several":   {"all at once", map[string]string{"kubeconfig": "/k", "v": "\n"}, "kubeadm sets it, the value of kubelet argument"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckKubeletArgs(tc.args)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// TestKubeletArgsArrive follows arguments through the document that a server boots with, in both modes: cloud-init
// takes it, kubeadm takes the join in it, and reading it gives the same arguments.
func TestKubeletArgsArrive(t *testing.T) {
	args := map[string]string{"max-pods": "200", "feature-gates": "A=true,B=false", "eviction-hard": "memory.available<100Mi,nodefs.available<10%", "resolv-conf": ""}
	for mode, join := range map[v1alpha1.JoinMode]Join{v1alpha1.JoinKubeadm: exampleJoin(t), v1alpha1.JoinVCluster: vclusterJoin(t)} {
		t.Run(string(mode), func(t *testing.T) {
			join.KubeletArgs = args
			document, err := UserData(join)
			if err != nil {
				t.Fatal(err)
			}
			mustBeCloudConfig(t, document)
			read, err := ParseUserData(document)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(args, read.KubeletArgs); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if mode != v1alpha1.JoinKubeadm {
				return
			}
			content, err := fileAt(writtenFiles(t, document), joinConfigurationPath)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "join.yaml")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), binary(t, "kubeadm"), "config", "validate", "--config", path).CombinedOutput(); err != nil {
				t.Errorf("kubeadm says %v:\n%s", err, out)
			}
		})
	}
}
