// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"
)

const fit = "NodeResourcesFit"

// kubeconfig is of no cluster: kube-scheduler requires one to check its configuration.
const kubeconfig = `apiVersion: v1
kind: Config
current-context: nowhere
clusters: [{name: nowhere, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: nowhere, context: {cluster: nowhere}}]
`

// TestSchedulerAcceptsPacking makes the real kube-scheduler read the configuration, set up its plugins, and write the
// result.
func TestSchedulerAcceptsPacking(t *testing.T) {
	packed := []configv1.ResourceSpec{
		{Name: "amd.com/gpu", Weight: 1}, {Name: "gpu.intel.com/i915", Weight: 1}, {Name: "gpu.intel.com/xe", Weight: 1},
		{Name: "habana.ai/gaudi", Weight: 1}, {Name: "nvidia.com/gpu", Weight: 1},
	}
	for name, tc := range map[string]struct {
		reason   string
		old, new string
		want     []configv1.ResourceSpec
		err      string
	}{
		"AsItIs": {
			reason: "users run the file", want: packed,
		},
		"MoreResources": {
			reason: "users add the accelerators of their NodeTypes",
			old:    "        - {name: nvidia.com/gpu, weight: 1}\n",
			new:    "        - {name: nvidia.com/gpu, weight: 1}\n        - {name: nvidia.com/mig-1g.10gb, weight: 1}\n",
			want:   append(packed[:5:5], configv1.ResourceSpec{Name: "nvidia.com/mig-1g.10gb", Weight: 1}),
		},
		"UnknownStrategy": {
			reason: "kube-scheduler must report a strategy that it does not have",
			old:    "MostAllocated", new: "MostAlocated", err: "scoringStrategy.type: Unsupported value",
		},
		"UnknownPlugin": {
			reason: "arguments of a plugin that does not exist would have no effect",
			old:    "name: NodeResourcesFit", new: "name: NodeResourceFit", err: "NodeResourceFit",
		},
		"UnknownField": {
			reason: "a field that is misspelt would have no effect",
			old:    "scoringStrategy:", new: "scoring:", err: "unknown field",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "kubeconfig")
			if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(string(Packing), "# clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}",
				"clientConnection: {kubeconfig: "+path+"}")
			if tc.old != "" {
				text = strings.ReplaceAll(text, tc.old, tc.new)
			}
			got, err := parsed(t, dir, text)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: kube-scheduler refuses the configuration: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, resourcesOf(t, got)); diff != "" {
				t.Errorf("%s: packed resources (-want +got):\n%s", tc.reason, diff)
			}
			if got.ClientConnection.Kubeconfig != path {
				t.Errorf("kubeconfig %q, want %q", got.ClientConnection.Kubeconfig, path)
			}
			if plugins := got.Profiles[0].Plugins.Score.Enabled; len(plugins) != 1 || plugins[0].Name != fit || *plugins[0].Weight != 20 {
				t.Errorf("plugins with a weight of their own are %v, want %s alone with 20", plugins, fit)
			}
		})
	}
}

// TestPageShowsTheFile: users copy it from the page.
func TestPageShowsTheFile(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "finite-hardware", "packing.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := bytes.Cut(Packing, []byte("\n\n"))
	if !bytes.Contains(page, append([]byte("```yaml\n"), append(text, "```\n"...)...)) {
		t.Error("docs/finite-hardware/packing.md does not show config/scheduler/packing.yaml")
	}
}

// parsed returns the configuration that kube-scheduler has read, or its error.
func parsed(t *testing.T, dir, text string) (*configv1.KubeSchedulerConfiguration, error) {
	t.Helper()
	in, out := filepath.Join(dir, "in.yaml"), filepath.Join(dir, "out.yaml")
	if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	scheduler := exec.CommandContext(t.Context(), binary(t, "kube-scheduler"),
		"--config="+in, "--write-config-to="+out, "--secure-port=0", "--leader-elect=false")
	if output, err := scheduler.CombinedOutput(); err != nil {
		return nil, errors.New(string(output))
	}
	content, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	got := &configv1.KubeSchedulerConfiguration{}
	if err := yaml.Unmarshal(content, got); err != nil {
		t.Fatal(err)
	}
	return got, nil
}

func resourcesOf(t *testing.T, configuration *configv1.KubeSchedulerConfiguration) []configv1.ResourceSpec {
	t.Helper()
	for _, plugin := range configuration.Profiles[0].PluginConfig {
		if plugin.Name != fit {
			continue
		}
		args := &configv1.NodeResourcesFitArgs{}
		if err := yaml.Unmarshal(plugin.Args.Raw, args); err != nil {
			t.Fatal(err)
		}
		if args.ScoringStrategy.Type != configv1.MostAllocated {
			t.Errorf("strategy %q, want %q", args.ScoringStrategy.Type, configv1.MostAllocated)
		}
		return args.ScoringStrategy.Resources
	}
	t.Fatalf("%s has no arguments", fit)
	return nil
}

// binary returns the path of one of the programs that `make tools` builds.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is not built, run `make tools`: %v", name, err)
	}
	return path
}
