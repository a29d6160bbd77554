// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

// kwokNodes selects the nodes of kwok: an emulated server annotates its Node with it when it registers.
const kwokNodes = "kwok.x-k8s.io/node=fake"

//go:embed manifests/kwok.yaml
var kwokStages []byte

// startMetal3 starts Metal3's operator, with its demo provisioner instead of Ironic.
func (s *Sandbox) startMetal3() error {
	return s.run(process.Spec{
		Name: "baremetal-operator", Rank: controlplane.RankClients, Restart: true,
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
		Name: "kwok", Rank: controlplane.RankClients, Restart: true, Args: args,
		// Otherwise it would read the user's own kwok settings.
		Env: []string{"HOME=" + dir, "KWOK_WORKDIR=" + dir},
	})
}

// startManager starts our manager in the management cluster, and returns when it is ready.
func (s *Sandbox) startManager(ctx context.Context) error {
	return s.runReady(ctx, process.Spec{
		Name: ManagerName, Rank: controlplane.RankClients + 1, Restart: true,
		// There is one replica, and a lease would only delay its restart after a crash.
		Args: []string{"--kubeconfig=" + s.kubeconfigs.Manager, "--leader-elect=false", "--metrics-secure=false"},
	})
}

// startProvider starts our provider between the two clusters, and returns when it is ready.
func (s *Sandbox) startProvider(ctx context.Context) error {
	return s.runReady(ctx, process.Spec{
		Name: ProviderName, Rank: controlplane.RankClients + 1, Restart: true,
		Args: append([]string{
			"--management-kubeconfig=" + s.kubeconfigs.ProviderManagement, "--tenant-kubeconfig=" + s.kubeconfigs.ProviderTenant,
			"--namespace=" + s.config.Tenant, "--tenant-cluster=" + s.config.Tenant, "--leader-elect=false",
			"--feature-gates=" + s.config.FeatureGates,
		}, s.config.ProviderArgs...),
	})
}

// runReady starts one of our programs, and returns when its readiness probe succeeds.
func (s *Sandbox) runReady(ctx context.Context, spec process.Spec) error {
	ports, err := controlplane.FreePorts(2)
	if err != nil {
		return err
	}
	address, metrics := fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	spec.Args = append(spec.Args, "--health-probe-bind-address="+address, "--metrics-bind-address="+metrics)
	if len(s.config.TopologyLabels) > 0 {
		spec.Args = append(spec.Args, "--topology-labels="+strings.Join(s.config.TopologyLabels, ","))
	}
	if err := s.run(spec); err != nil {
		return err
	}
	s.mu.Lock()
	s.metrics[spec.Name] = "http://" + metrics + "/metrics"
	s.mu.Unlock()
	return controlplane.AwaitURL(ctx, "the "+spec.Name+" to be ready", http.DefaultClient, "http://"+address+"/readyz")
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
