// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
)

// startCluster starts the management cluster: an API server and the garbage collector.
func (s *Stack) startCluster(ctx context.Context) error {
	ports, err := controlplane.FreePorts(3)
	if err != nil {
		return err
	}
	binaries := controlplane.Binaries{s.config.Bin}
	s.etcd, err = controlplane.StartEtcd(ctx, controlplane.EtcdConfig{
		Dir: filepath.Join(s.config.Dir, "etcd"), Binaries: binaries, Supervisor: s.Processes, Clock: s.config.Clock,
		ClientPort: ports[0], PeerPort: ports[1],
	})
	if err != nil {
		return err
	}
	s.Kubeconfig = filepath.Join(s.config.Dir, "management.kubeconfig")
	s.cluster, err = controlplane.New(controlplane.Config{
		Name: "management", Dir: filepath.Join(s.config.Dir, "management"), Kubeconfig: s.Kubeconfig,
		Binaries: binaries, Supervisor: s.Processes, Clock: s.config.Clock, Etcd: s.etcd, Port: ports[2],
	})
	if err != nil {
		return err
	}
	if err := s.cluster.StartAPIServer(ctx); err != nil {
		return err
	}
	s.REST = s.cluster.REST
	if s.Client, err = client.NewWithWatch(s.REST, client.Options{Scheme: env.Scheme()}); err != nil {
		return fmt.Errorf("making a client of the management cluster, %w", err)
	}
	if err := sandbox.PrepareManagement(ctx, s.Client, binaries, HostsNamespace, MachinesNamespace); err != nil {
		return err
	}
	if err := s.cluster.StartControllers(ctx); err != nil {
		return err
	}
	s.config.Progress("the management cluster has the CRDs of Metal3 and ours")
	return nil
}

// useCluster makes a client of the management cluster that exists, and installs the CRDs of Metal3 there.
func (s *Stack) useCluster(ctx context.Context) error {
	var err error
	s.Kubeconfig = s.config.Management
	if s.REST, err = clientcmd.BuildConfigFromFlags("", s.Kubeconfig); err != nil {
		return fmt.Errorf("reading the kubeconfig of the management cluster, %w", err)
	}
	if s.Client, err = client.NewWithWatch(s.REST, client.Options{Scheme: env.Scheme()}); err != nil {
		return fmt.Errorf("making a client of the management cluster, %w", err)
	}
	if err := sandbox.PrepareMetal3(ctx, s.Client, controlplane.Binaries{s.config.Bin}, HostsNamespace); err != nil {
		return err
	}
	s.config.Progress("the management cluster has the CRDs of Metal3")
	return nil
}
