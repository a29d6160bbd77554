// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// startCluster starts the management cluster: an API server and the garbage collector.
func (s *Stack) startCluster(ctx context.Context) error {
	binaries := cluster.Binaries{s.config.Bin}
	var err error
	s.cluster, err = cluster.Start(ctx, cluster.Options{
		Name: "management", Dir: s.config.Dir, Binaries: binaries, Processes: s.Processes, Controllers: true,
		Prepare: func(ctx context.Context, c client.Client) error {
			return cluster.PrepareManagement(ctx, c, binaries, HostsNamespace, MachinesNamespace)
		},
	})
	if err != nil {
		return err
	}
	s.REST, s.Kubeconfig, s.Client = s.cluster.REST, s.cluster.Kubeconfig, s.cluster.Client
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
	if err := cluster.PrepareMetal3(ctx, s.Client, cluster.Binaries{s.config.Bin}, HostsNamespace); err != nil {
		return err
	}
	s.config.Progress("the management cluster has the CRDs of Metal3")
	return nil
}
