// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/ironic"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
)

// Names of programs in bin, and of their processes.
const (
	operatorName = "baremetal-operator"
	managerName  = "manager"
	rackName     = "rack"
)

// startIronic starts Ironic, and the web server of the images that it hands to servers.
func (s *Stack) startIronic(ctx context.Context) error {
	var err error
	if s.Media, err = startMedia(s.config.Host); err != nil {
		return err
	}
	if len(s.config.Provisioning) > 0 {
		if err := s.Media.addRamdisk(s.config.Bin); err != nil {
			return err
		}
	}
	s.Ironic, err = ironic.Start(ctx, ironic.Config{
		Tree: filepath.Join(s.config.Bin, "ironic"), Dir: filepath.Join(s.config.Dir, "ironic"), Host: s.config.Host, Supervisor: s.Processes,
		Inspector: s.Rack.hasIPMI(), Provisioning: s.config.Provisioning, Guard: s.config.Guard,
		AgentTimeout: s.config.AgentTimeout, PowerTimeout: s.config.PowerTimeout, Environment: s.environment(),
	})
	if err == nil {
		s.config.Progress("Ironic takes work at %s", s.Ironic.URL)
	}
	return err
}

// startOperator starts Metal3's operator, with Ironic behind it.
func (s *Stack) startOperator(ctx context.Context) error {
	health, err := freeport.Address()
	if err != nil {
		return err
	}
	err = s.run(operatorName, process.Spec{
		Rank: cluster.RankClients,
		Args: []string{
			"--namespace=" + HostsNamespace, "--dev",
			// No certificates and no metrics.
			"--webhook-port=0", "--metrics-addr=0", "--health-addr=" + health,
			"--kube-api-qps=100", "--kube-api-burst=200", "--controller-concurrency=8",
		},
		Env: []string{
			"KUBECONFIG=" + s.Kubeconfig, "IRONIC_ENDPOINT=" + s.Ironic.Endpoint, "DEPLOY_ISO_URL=" + s.Media.DeployISO,
			// For servers without virtual media.
			"DEPLOY_KERNEL_URL=" + s.Media.DeployKernel, "DEPLOY_RAMDISK_URL=" + s.Media.DeployRamdisk,
			"METAL3_AUTH_ROOT_DIR=" + filepath.Join(s.config.Dir, "no-auth"),
		},
	})
	if err != nil {
		return err
	}
	if err := cluster.AwaitURL(ctx, operatorName+" to be ready", http.DefaultClient, "http://"+health+"/readyz"); err != nil {
		return err
	}
	s.config.Progress("%s is ready", operatorName)
	return nil
}

// startManager starts our manager, with its own rights.
func (s *Stack) startManager(ctx context.Context) error {
	kubeconfig := filepath.Join(s.config.Dir, "manager.kubeconfig")
	if err := s.cluster.Grant(ctx, cluster.ManagerUser, MachinesNamespace, kubeconfig, "manager.yaml"); err != nil {
		return err
	}
	// One replica.
	spec := s.ours(append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false"}, s.config.ManagerFlags...)...)
	if err := s.cluster.StartProgram(ctx, managerName, spec); err != nil {
		return err
	}
	s.config.Progress("our %s is ready", managerName)
	return nil
}

// ours describes the process of one of our programs, without metrics.
func (s *Stack) ours(args ...string) process.Spec {
	return process.Spec{Args: append(args, "--metrics-bind-address=0"), Env: s.environment()}
}

// run starts a program.
func (s *Stack) run(program string, spec process.Spec) error {
	spec.Env = append(spec.Env, s.environment()...)
	return cluster.Binaries{s.config.Bin}.Start(s.Processes, program, spec)
}

// environment keeps the files of a program within the stack.
func (s *Stack) environment() []string {
	return []string{"HOME=" + filepath.Join(s.config.Dir, "home"), "TMPDIR=" + filepath.Join(s.config.Dir, "tmp")}
}

const (
	// TenantName is the name of the TenantCluster, in the namespace MachinesNamespace.
	TenantName = MachinesNamespace

	providerName = "provider"
	webhookName  = "webhook"
)

// MissingForTenant returns an error with what a tenant needs and is missing, beyond Missing.
func MissingForTenant(bin string) error {
	return cluster.Binaries{bin}.Missing("kube-scheduler", "kubeadm", providerName, webhookName)
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
