// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	_ "embed"
	"path/filepath"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
)

// kwokNodes selects the nodes of kwok: an emulated server annotates its Node with it when it registers.
const kwokNodes = "kwok.x-k8s.io/node=fake"

//go:embed manifests/kwok.yaml
var kwokStages []byte

// startMetal3 starts Metal3's operator, with its demo provisioner instead of Ironic.
func (s *Sandbox) startMetal3() error {
	return s.run(process.Spec{
		Name: Metal3Name, Rank: cluster.RankClients, Restart: true,
		Args: []string{
			"--demo-mode", "--namespace=" + HostNamespace, "--dev",
			// No certificates and no metrics.
			"--webhook-port=0", "--metrics-addr=0", "--health-addr=0",
			"--kube-api-qps=100", "--kube-api-burst=200",
			// Its default is the number of processors, but here it mostly waits.
			"--controller-concurrency=16",
		},
		Env: []string{"KUBECONFIG=" + s.kubeconfigs.Management},
	})
}

// startKwok starts what keeps the emulated nodes alive, and their pods running.
func (s *Sandbox) startKwok() error {
	dir := filepath.Join(s.config.Dir, "kwok")
	stages := filepath.Join(dir, "stages.yaml")
	if err := pki.WriteFile(stages, kwokStages); err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + s.kubeconfigs.Tenant, "--config=" + stages,
		"--manage-all-nodes=false", "--manage-nodes-with-label-selector=" + kwokNodes,
		"--node-lease-duration-seconds=40",
	}
	for _, file := range s.config.KwokConfigs {
		args = append(args, "--config="+file)
	}
	return s.run(process.Spec{
		Name: "kwok", Rank: cluster.RankClients, Restart: true, Args: args,
		// Otherwise it would read the user's own kwok settings.
		Env: []string{"HOME=" + dir, "KWOK_WORKDIR=" + dir},
	})
}

// startManager starts our manager in the management cluster, and returns when it is ready.
func (s *Sandbox) startManager(ctx context.Context) error {
	// There is one replica, and a lease would only delay its restart after a crash.
	return s.startProgram(ctx, ManagerName, "--kubeconfig="+s.kubeconfigs.Manager, "--leader-elect=false", "--metrics-secure=false")
}

// startProvider starts our provider between the two clusters, and returns when it is ready.
func (s *Sandbox) startProvider(ctx context.Context) error {
	return s.startProgram(ctx, ProviderName, append([]string{
		"--management-kubeconfig=" + s.kubeconfigs.ProviderManagement, "--tenant-kubeconfig=" + s.kubeconfigs.ProviderTenant,
		"--namespace=" + s.config.Tenant, "--tenant-cluster=" + s.config.Tenant, "--leader-elect=false",
		"--feature-gates=" + FeatureGates,
	}, s.config.ProviderArgs...)...)
}

func (s *Sandbox) startProgram(ctx context.Context, name string, args ...string) error {
	spec, err := s.program(name, args...)
	if err != nil {
		return err
	}
	return s.management.StartProgram(ctx, name, spec)
}

// program describes the process of one of our programs.
func (s *Sandbox) program(name string, args ...string) (process.Spec, error) {
	metrics, err := cluster.FreeAddress()
	if err != nil {
		return process.Spec{}, err
	}
	s.mu.Lock()
	s.metrics[name] = "http://" + metrics + "/metrics"
	s.mu.Unlock()
	args = append(args, "--metrics-bind-address="+metrics)
	if len(s.config.TopologyLabels) > 0 {
		args = append(args, "--topology-labels="+strings.Join(s.config.TopologyLabels, ","))
	}
	return process.Spec{Restart: true, Args: args}, nil
}

// run starts a program that is named like its process.
func (s *Sandbox) run(spec process.Spec) error {
	path, err := s.config.Binaries.Find(spec.Name)
	if err != nil {
		return err
	}
	spec.Path = path
	return s.supervisor.Start(spec)
}
