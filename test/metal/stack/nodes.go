// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
)

// Nodes describe a management cluster that servers can join.
type Nodes struct {
	// Address is what the API server listens on, which the servers must be able to reach.
	Address netip.Addr
	// Pods is the network of the pods, of which each node gets a part of 24 bits. The API server calls webhooks at their
	// pods' addresses, so this machine must have a route to them.
	Pods netip.Prefix
}

func (n *Nodes) describe(config *controlplane.Config) {
	config.Nodes, config.Address, config.PodCIDR = true, n.Address.String(), n.Pods.String()
	config.APIServerFlags = []string{
		// The API server runs on no node, so it cannot reach Services; pods reach it by the Service kubernetes.
		"--enable-aggregator-routing=true", "--endpoint-reconciler-type=lease",
	}
}

// startNodesCluster starts the rest of a management cluster with nodes, after its API server.
func (s *Stack) startNodesCluster(ctx context.Context, binaries controlplane.Binaries) error {
	if err := sandbox.PrepareMetal3(ctx, s.Client, binaries, HostsNamespace); err != nil {
		return err
	}
	for _, start := range []func(context.Context) error{s.cluster.StartControllers, s.cluster.EnableJoin} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	s.config.Progress("the management cluster has the CRDs of Metal3, and takes nodes")
	return nil
}

// CertificateAuthority returns the CA certificate of the management cluster, PEM.
func (s *Stack) CertificateAuthority() []byte { return s.cluster.CertificateAuthority() }

// WriteKubeconfig writes a kubeconfig file for a user of the management cluster.
func (s *Stack) WriteKubeconfig(path, user string) error {
	return s.cluster.WriteKubeconfig(path, user)
}

// StartTenantCluster starts a plain tenant cluster, without our objects and programs. The API server listens on the
// address, which servers must be able to reach.
func (s *Stack) StartTenantCluster(caller context.Context, address netip.Addr) (*Tenant, error) {
	ctx, stop := s.Context(caller)
	defer stop()
	ctx, done := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the tenant's cluster was not up after %s", startTimeout))
	defer done()
	t, err := s.startTenantCluster(ctx, address)
	if err != nil {
		return nil, err
	}
	s.config.Progress("the tenant has a cluster at %s", t.cluster.Server)
	return t, nil
}
