// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/scheduler"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
)

// schedulerArgs are the arguments of the scheduler. With a configuration file it ignores its flag --kubeconfig.
func (c *Cluster) schedulerArgs() ([]string, error) {
	args := []string{"--leader-elect=false", "--secure-port=0", "--profiling=false"}
	if len(c.options.Packed) == 0 {
		return append(args, "--kubeconfig="+c.files.scheduler), nil
	}
	content, err := packing(c.options.Packed, c.files.scheduler)
	if err != nil {
		return nil, fmt.Errorf("writing the configuration of the scheduler, %w", err)
	}
	file := filepath.Join(c.dir(), "scheduler.yaml")
	if err := pki.WriteFile(file, content); err != nil {
		return nil, err
	}
	return append(args, "--config="+file), nil
}

// packing is config/scheduler/packing.yaml with more resources and a kubeconfig.
func packing(resources []corev1.ResourceName, kubeconfig string) ([]byte, error) {
	configuration := map[string]any{}
	if err := yaml.Unmarshal(scheduler.Packing, &configuration); err != nil {
		return nil, err
	}
	typed := &configv1.KubeSchedulerConfiguration{}
	if err := yaml.Unmarshal(scheduler.Packing, typed); err != nil {
		return nil, err
	}
	args := &configv1.NodeResourcesFitArgs{}
	if err := yaml.Unmarshal(typed.Profiles[0].PluginConfig[0].Args.Raw, args); err != nil {
		return nil, err
	}
	for _, name := range resources {
		if !slices.ContainsFunc(args.ScoringStrategy.Resources, func(known configv1.ResourceSpec) bool { return known.Name == string(name) }) {
			args.ScoringStrategy.Resources = append(args.ScoringStrategy.Resources, configv1.ResourceSpec{Name: string(name), Weight: 1})
		}
	}
	configuration["clientConnection"] = map[string]any{"kubeconfig": kubeconfig}
	configuration["profiles"].([]any)[0].(map[string]any)["pluginConfig"].([]any)[0].(map[string]any)["args"] = args
	return yaml.Marshal(configuration)
}
