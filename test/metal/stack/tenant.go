// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
)

const (
	// TenantName is the name of the TenantCluster, in the namespace MachinesNamespace.
	TenantName = MachinesNamespace

	providerName = "provider"
	webhookName  = "webhook"
)

// MissingForTenant returns an error with what a tenant needs and is missing, beyond Missing.
func MissingForTenant(bin string) error {
	var errs []error
	for _, program := range []string{"kube-scheduler", "kubeadm", providerName, webhookName} {
		_, err := cluster.Binaries{bin}.Find(program)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// StartTenant starts a tenant's cluster, which servers can join, and our provider, and returns when both work. The API server listens on
// the address, which servers must be able to reach.
func (s *Stack) StartTenant(caller context.Context, address netip.Addr) (*cluster.Cluster, error) {
	ctx, stop := s.Context(caller)
	defer stop()
	ctx, done := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the tenant was not up after %s", startTimeout))
	defer done()
	tenant, err := cluster.Start(ctx, cluster.Options{
		Name: "tenant", Dir: s.config.Dir, Binaries: cluster.Binaries{s.config.Bin}, Processes: s.Processes,
		Etcd: s.cluster.Etcd, Address: address.String(), Nodes: true, Prepare: cluster.PrepareTenant,
	})
	if err != nil {
		return nil, err
	}
	described := &v1alpha1.TenantCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: MachinesNamespace, Name: TenantName},
		Spec: v1alpha1.TenantClusterSpec{
			APIServerEndpoint: strings.TrimPrefix(tenant.Server, "https://"), StandAloneMachines: v1alpha1.StandAloneAllowed,
			TenantProperties: &v1alpha1.TenantProperties{Keys: []string{"*"}},
		},
	}
	if err := s.Client.Create(ctx, described); err != nil {
		return nil, fmt.Errorf("creating the TenantCluster, %w", err)
	}
	if err := s.startProvider(ctx, tenant); err != nil {
		return nil, err
	}
	s.config.Progress("the tenant is at %s", tenant.Server)
	return tenant, nil
}

// startProvider starts the tenant's provider, with its own rights in both clusters.
func (s *Stack) startProvider(ctx context.Context, tenant *cluster.Cluster) error {
	onManagement := filepath.Join(s.config.Dir, "provider-management.kubeconfig")
	if err := s.cluster.Grant(ctx, cluster.ProviderUser, MachinesNamespace, onManagement, cluster.ProviderManagementRights...); err != nil {
		return err
	}
	inTenant := filepath.Join(s.config.Dir, "provider-tenant.kubeconfig")
	if err := tenant.Grant(ctx, cluster.ProviderUser, MachinesNamespace, inTenant, cluster.ProviderTenantRights...); err != nil {
		return err
	}
	return tenant.StartProgram(ctx, providerName, s.ours(
		"--management-kubeconfig="+onManagement, "--tenant-kubeconfig="+inTenant,
		"--namespace="+MachinesNamespace, "--tenant-cluster="+TenantName, "--feature-gates="+sandbox.FeatureGates,
		"--leader-elect=false"))
}

// StartWebhook configures and starts our webhook in the management cluster, and returns when it answers.
func (s *Stack) StartWebhook(caller context.Context) error {
	ctx, stop := s.Context(caller)
	defer stop()
	ctx, done := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the webhook was not up after %s", startTimeout))
	defer done()
	kubeconfig := filepath.Join(s.config.Dir, "webhook.kubeconfig")
	if err := s.cluster.Grant(ctx, cluster.WebhookUser, metav1.NamespaceDefault, kubeconfig, "webhook.yaml"); err != nil {
		return err
	}
	return s.cluster.StartWebhook(ctx, kubeconfig, s.ours())
}
