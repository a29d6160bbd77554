// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"embed"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/klog/v2/textlogger"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
)

// kwokNodes selects the nodes of kwok: an emulated server annotates its Node with it when it registers.
const kwokNodes = "kwok.x-k8s.io/node=fake"

//go:embed manifests/kwok.yaml
var kwokStages []byte

// startMetal3 starts Metal3's operator, with its demo provisioner instead of Ironic.
func (s *Sandbox) startMetal3() error {
	return s.config.Binaries.Start(s.supervisor, Metal3Name, process.Spec{
		Rank: cluster.RankClients, Restart: true,
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
	return s.config.Binaries.Start(s.supervisor, "kwok", process.Spec{
		Rank: cluster.RankClients, Restart: true, Args: args,
		// Otherwise it would read the user's own kwok settings.
		Env: []string{"HOME=" + dir, "KWOK_WORKDIR=" + dir},
	})
}

// startManager starts our manager in the management cluster, and returns when it is ready.
func (s *Sandbox) startManager(ctx context.Context) error {
	// There is one replica, and a lease would only delay its restart after a crash.
	return s.startProgram(ctx, ManagerName, append([]string{
		"--kubeconfig=" + s.kubeconfigs.Manager, "--leader-elect=false", "--metrics-secure=false",
	}, s.config.ManagerArgs...)...)
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
	metrics, err := freeport.Address()
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

// startRack switches on the rack of emulated servers. It is the only part that runs in this process, and it ends with s.ctx.
func (s *Sandbox) startRack() error {
	path := filepath.Join(s.config.Dir, "log", "rack.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of the rack, %w", err)
	}
	servers := make([]emulator.Server, 0, len(s.config.Fleet))
	for _, server := range s.config.Fleet {
		servers = append(servers, emulator.Server{
			Name: server.Name, Architecture: server.Architecture, Capacity: server.Capacity, Devices: server.Devices,
		})
	}
	rack, err := emulator.NewRack(emulator.Config{
		RESTConfig: s.ManagementConfig(), Namespace: HostNamespace, Servers: servers,
		Logger: textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log))),
	})
	if err != nil {
		_ = log.Close()
		return err
	}
	s.servers = rack
	s.rack.Go(func() {
		defer func() { _ = log.Close() }()
		if err := rack.Run(s.ctx); err != nil && s.ctx.Err() == nil {
			s.cancel(fmt.Errorf("the rack of emulated servers failed, %w; its log is %s", err, path))
		}
	})
	return nil
}

const (
	// screenName is the plugin of kubectl, which serves the page about the fleet.
	screenName = "kubectl-metal3"
	// viewerUser may read what the page shows, in both clusters, and nothing else.
	viewerUser = "karpenter-metal3-viewer"
	viewerFile = "manifests/viewer.yaml"
)

//go:embed manifests/viewer.yaml
var viewerRights embed.FS

// startScreen starts the page about the fleet, and returns when its address is known.
func (s *Sandbox) startScreen(ctx context.Context) error {
	rights, err := rbac.Read(viewerRights, viewerFile, "")
	if err != nil {
		return err
	}
	for kubeconfig, c := range map[string]*cluster.Cluster{
		s.kubeconfigs.ViewerManagement: s.management, s.kubeconfigs.ViewerTenant: s.tenant,
	} {
		for _, object := range rights {
			if err := cluster.Apply(ctx, c.Client, object); err != nil {
				return fmt.Errorf("granting %s its rights, %w", viewerUser, err)
			}
		}
		if err := c.WriteKubeconfig(kubeconfig, viewerUser); err != nil {
			return err
		}
	}
	if err := s.config.Binaries.Start(s.supervisor, screenName, process.Spec{
		Rank: cluster.RankClients + 1, Restart: true,
		Args: []string{"ui", "--kubeconfig=" + s.kubeconfigs.ViewerManagement, "--tenant-kubeconfig=" + s.kubeconfigs.ViewerTenant},
	}); err != nil {
		return err
	}
	return cluster.Await(ctx, "the page about the fleet to be served", func(context.Context) error {
		if s.Screen() == "" {
			return errors.New("it has not printed its address")
		}
		return nil
	})
}

// Screen returns the address of the page about the fleet; empty if there is none.
func (s *Sandbox) Screen() string { return screenOf(s.config.Dir) }

// screenOf is the address that the page of the sandbox in dir has printed last: it has another token when it is started again.
func screenOf(dir string) string {
	lines, err := process.LastLines(filepath.Join(dir, "log", screenName+".log"), logTail)
	if err != nil {
		return "" // it was not started
	}
	for _, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "http://127.0.0.1:") {
			return line
		}
	}
	return ""
}
