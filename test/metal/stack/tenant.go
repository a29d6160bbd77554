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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
)

const (
	// TenantName is the name of the TenantCluster, in the namespace MachinesNamespace.
	TenantName = MachinesNamespace

	providerName = "provider"
	webhookName  = "webhook"
)

// A Tenant is a cluster that servers can join, with our provider beside it. It ends with its stack.
type Tenant struct {
	// Client is the administrator's. It reads from the API server itself.
	Client client.WithWatch
	// REST is the administrator's access. Callers copy it before they change it.
	REST *rest.Config
	// Kubeconfig is the path of the administrator's kubeconfig file.
	Kubeconfig string

	cluster *controlplane.Cluster
}

// CertificateAuthority returns the CA certificate of the tenant's cluster, PEM.
func (t *Tenant) CertificateAuthority() []byte { return t.cluster.CertificateAuthority() }

// MissingForTenant returns an error with what a tenant needs and is missing, beyond Missing.
func MissingForTenant(bin string) error {
	var errs []error
	for _, program := range []string{"kube-scheduler", "kubeadm", providerName, webhookName} {
		_, err := controlplane.Binaries{bin}.Find(program)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// StartTenant starts a tenant's cluster and our provider, and returns when both work. The API server listens on the address,
// which servers must be able to reach.
func (s *Stack) StartTenant(caller context.Context, address netip.Addr) (*Tenant, error) {
	ctx, stop := s.Context(caller)
	defer stop()
	ctx, done := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the tenant was not up after %s", startTimeout))
	defer done()
	t, err := s.startTenantCluster(ctx, address)
	if err != nil {
		return nil, err
	}
	if err := sandbox.PrepareTenant(ctx, t.Client); err != nil {
		return nil, err
	}
	described := &v1alpha1.TenantCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: MachinesNamespace, Name: TenantName},
		Spec: v1alpha1.TenantClusterSpec{
			APIServerEndpoint: strings.TrimPrefix(t.cluster.Server, "https://"), StandAloneMachines: v1alpha1.StandAloneAllowed,
			TenantProperties: &v1alpha1.TenantProperties{Keys: []string{"*"}},
		},
	}
	if err := s.Client.Create(ctx, described); err != nil {
		return nil, fmt.Errorf("creating the TenantCluster, %w", err)
	}
	if err := s.startProvider(ctx, t); err != nil {
		return nil, err
	}
	s.config.Progress("the tenant is at %s", t.cluster.Server)
	return t, nil
}

func (s *Stack) startTenantCluster(ctx context.Context, address netip.Addr) (*Tenant, error) {
	ports, err := controlplane.FreePorts(1)
	if err != nil {
		return nil, err
	}
	t := &Tenant{Kubeconfig: filepath.Join(s.config.Dir, "tenant.kubeconfig")}
	t.cluster, err = controlplane.New(controlplane.Config{
		Name: "tenant", Dir: filepath.Join(s.config.Dir, "tenant"), Kubeconfig: t.Kubeconfig,
		Binaries: controlplane.Binaries{s.config.Bin}, Supervisor: s.Processes, Clock: s.config.Clock,
		Etcd: s.etcd, Address: address.String(), Port: ports[0], Nodes: true,
	})
	if err != nil {
		return nil, err
	}
	for _, start := range []func(context.Context) error{t.cluster.StartAPIServer, t.cluster.StartControllers, t.cluster.EnableJoin} {
		if err := start(ctx); err != nil {
			return nil, err
		}
	}
	t.REST = t.cluster.REST
	if t.Client, err = client.NewWithWatch(t.REST, client.Options{Scheme: env.Scheme()}); err != nil {
		return nil, fmt.Errorf("making a client of the tenant cluster, %w", err)
	}
	return t, nil
}

// startProvider starts the tenant's provider, with its own rights in both clusters.
func (s *Stack) startProvider(ctx context.Context, t *Tenant) error {
	management, err := sandbox.GrantProviderManagement(ctx, s.cluster, s.Client, MachinesNamespace, s.config.Dir)
	if err != nil {
		return err
	}
	tenant, err := sandbox.GrantProviderTenant(ctx, t.cluster, t.Client, MachinesNamespace, s.config.Dir)
	if err != nil {
		return err
	}
	return s.startOurs(ctx, providerName,
		"--management-kubeconfig="+management, "--tenant-kubeconfig="+tenant,
		"--namespace="+MachinesNamespace, "--tenant-cluster="+TenantName, "--feature-gates="+sandbox.DefaultFeatureGates,
		"--leader-elect=false")
}

// StartWebhook configures and starts our webhook in the management cluster, and returns when it answers.
func (s *Stack) StartWebhook(caller context.Context) error {
	ctx, stop := s.Context(caller)
	defer stop()
	ctx, done := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the webhook was not up after %s", startTimeout))
	defer done()
	at, err := address()
	if err != nil {
		return err
	}
	kubeconfig, err := sandbox.GrantWebhook(ctx, s.cluster, s.Client, at, metav1.NamespaceDefault, s.config.Dir)
	if err != nil {
		return err
	}
	return s.startOurs(ctx, webhookName,
		"--kubeconfig="+kubeconfig, "--webhook-bind-address="+at, "--cert-names=127.0.0.1", "--namespace="+metav1.NamespaceDefault,
		"--shutdown-delay=0")
}
