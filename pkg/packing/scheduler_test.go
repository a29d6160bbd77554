// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package packing

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"
)

// kubeconfig leads nowhere: to check its configuration, kube-scheduler only has to find one.
const kubeconfig = `apiVersion: v1
kind: Config
current-context: nowhere
clusters: [{name: nowhere, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: nowhere, context: {cluster: nowhere}}]
`

// TestSchedulerTakesTheConfiguration has the real kube-scheduler read the configuration, set up its plugins by it, and
// write down what it has understood.
func TestSchedulerTakesTheConfiguration(t *testing.T) {
	packed := []configv1.ResourceSpec{
		{Name: "amd.com/gpu", Weight: 1}, {Name: "gpu.intel.com/i915", Weight: 1}, {Name: "gpu.intel.com/xe", Weight: 1},
		{Name: "habana.ai/gaudi", Weight: 1}, {Name: "nvidia.com/gpu", Weight: 1}, {Name: "nvidia.com/mig-1g.10gb", Weight: 1},
	}
	for name, tc := range map[string]struct {
		reason string
		change func(string) string
		want   []configv1.ResourceSpec
		err    string
	}{
		"AsPrinted": {
			reason: "what the subcommand prints is what users run",
			change: func(text string) string { return text },
			want:   packed,
		},
		"UnknownStrategy": {
			reason: "a strategy that kube-scheduler does not have must not pass for one that packs",
			change: func(text string) string { return strings.ReplaceAll(text, "MostAllocated", "MostAlocated") },
			err:    "scoringStrategy.type: Unsupported value",
		},
		"UnknownPlugin": {
			reason: "arguments of a plugin that does not exist would be of no effect",
			change: func(text string) string {
				return strings.ReplaceAll(text, "name: NodeResourcesFit", "name: NodeResourceFit")
			},
			err: "NodeResourceFit",
		},
		"UnknownField": {
			reason: "a field that is misspelt would be of no effect",
			change: func(text string) string { return strings.ReplaceAll(text, "scoringStrategy:", "scoring:") },
			err:    "unknown field",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			settings := DefaultSettings()
			settings.Kubeconfig = filepath.Join(dir, "kubeconfig")
			settings.Resources = With(settings.Resources, corev1.ResourceList{"nvidia.com/mig-1g.10gb": one})
			if err := os.WriteFile(settings.Kubeconfig, []byte(kubeconfig), 0o600); err != nil {
				t.Fatal(err)
			}
			text, err := YAML(Configuration(settings))
			if err != nil {
				t.Fatal(err)
			}
			got, err := understood(t, dir, tc.change(string(text)))
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
			if got.ClientConnection.Kubeconfig != settings.Kubeconfig {
				t.Errorf("kubeconfig %q, want %q", got.ClientConnection.Kubeconfig, settings.Kubeconfig)
			}
			if plugins := got.Profiles[0].Plugins.Score.Enabled; len(plugins) != 1 || plugins[0].Name != fit || *plugins[0].Weight != DefaultWeight {
				t.Errorf("preferences with a weight of their own are %v, want %s alone with %d", plugins, fit, DefaultWeight)
			}
		})
	}
}

// understood returns what kube-scheduler makes of a configuration, or what it says is wrong with it.
func understood(t *testing.T, dir, text string) (*configv1.KubeSchedulerConfiguration, error) {
	t.Helper()
	in, out := filepath.Join(dir, "in.yaml"), filepath.Join(dir, "out.yaml")
	if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	scheduler := exec.CommandContext(t.Context(), binary(t, "kube-scheduler"),
		"--config="+in, "--write-config-to="+out, "--secure-port=0", "--leader-elect=false")
	if output, err := scheduler.CombinedOutput(); err != nil {
		return nil, &refusal{string(output)}
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

type refusal struct{ output string }

func (r *refusal) Error() string { return r.output }

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
