// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestCheckKubeletArgs(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		args   map[string]string
		want   string
	}{
		"None": {"most Machines have none", nil, ""},
		"Good": {"kubelet has many",
			map[string]string{"max-pods": "200", "feature-gates": "A=true,B=false", "eviction-hard": "memory.available<100Mi,nodefs.available<10%"},
			""},
		"Empty": {"an empty value switches some off", map[string]string{"resolv-conf": ""}, ""},
		"Dashes": {"kubeadm adds them", map[string]string{"--max-pods": "200"},
			`kubelet argument "--max-pods" is not a flag name; write it without leading dashes`},
		"Identity": {"two provider IDs would contradict", map[string]string{"provider-id": "x"}, `"provider-id" cannot be given`},
		"Address": {"it would be the same on every server", map[string]string{"node-ip": "10.0.0.1"},
			`"node-ip" cannot be given: the kubelet finds the address`},
		"Config": {"kubeadm writes it", map[string]string{"config": "/etc/kubelet.yaml"}, `"config" cannot be given: kubeadm sets it`},
		"Reserved": {"Karpenter reckons with the type", map[string]string{"kube-reserved": "cpu=1"},
			`"kube-reserved" cannot be given: set the overhead of the NodeType`},
		"Blank": {"it would be two arguments", map[string]string{"v": "4 --kubeconfig=/mine"},
			`the value of kubelet argument "v" holds a blank`},
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

// TestKubeletArgsArrive follows arguments onto a server, in both modes. test/emulator reads them back.
func TestKubeletArgsArrive(t *testing.T) {
	args := map[string]string{"max-pods": "200", "feature-gates": "A=true,B=false",
		"eviction-hard": "memory.available<100Mi,nodefs.available<10%", "resolv-conf": ""}
	kubeadm, vcluster := exampleJoin(t), vclusterJoin(t)
	kubeadm.KubeletArgs, vcluster.KubeletArgs = args, args

	configuration := boot(t, mustJoin(t, kubeadm)).read(joinConfigurationPath)
	if out, err := exec.CommandContext(t.Context(), binary(t, "kubeadm"), "config", "validate", "--config",
		file(t, "join.yaml", []byte(configuration))).CombinedOutput(); err != nil {
		t.Errorf("kubeadm says %v:\n%s", err, out)
	}
	var read joinConfiguration
	if err := yaml.Unmarshal([]byte(configuration), &read); err != nil {
		t.Fatal(err)
	}
	for name, value := range args {
		if !slices.Contains(read.NodeRegistration.KubeletExtraArgs, kubeletArg{Name: name, Value: value}) {
			t.Errorf("kubeadm gives the kubelet no --%s=%s: %v", name, value, read.NodeRegistration.KubeletExtraArgs)
		}
	}
	environment := boot(t, mustJoin(t, vcluster)).read(kubeletEnvironmentPaths[0])
	for name, value := range args {
		if !strings.Contains(environment, " --"+name+"="+value) {
			t.Errorf("the kubelet's service has no --%s=%s: %s", name, value, environment)
		}
	}
}
