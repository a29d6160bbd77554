// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/audit"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
)

// start starts etcd, then both clusters concurrently, then the programs between them.
func (s *Sandbox) start(ctx context.Context) error {
	ports, err := s.choosePorts()
	if err != nil {
		return err
	}
	etcd, err := controlplane.StartEtcd(ctx, controlplane.EtcdConfig{
		Dir: filepath.Join(s.config.Dir, "etcd"), Binaries: s.config.Binaries, Supervisor: s.supervisor, Clock: s.config.Clock,
		ClientPort: ports.etcd, PeerPort: ports.etcdPeer,
	})
	if err != nil {
		return err
	}
	s.progress.say("etcd is ready")
	s.managementEtcd = etcd
	if s.config.ManagementEtcd {
		if s.managementEtcd, err = s.startManagementEtcd(ctx); err != nil {
			return err
		}
	}

	management, err := s.clusterConfig("management", s.managementEtcd, ports.management, false, s.kubeconfigs.Management)
	if err != nil {
		return err
	}
	if s.management, err = controlplane.New(management); err != nil {
		return err
	}
	tenant, err := s.clusterConfig("tenant", etcd, ports.tenant, true, s.kubeconfigs.Tenant)
	if err != nil {
		return err
	}
	tenant.Packed = s.config.packed()
	s.tenant, err = controlplane.New(tenant)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.startManagement(groupCtx) })
	group.Go(func() error { return s.startTenant(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	return s.startControllers(ctx)
}

func (s *Sandbox) clusterConfig(
	name string, etcd *controlplane.Etcd, port int, nodes bool, kubeconfig string,
) (controlplane.Config, error) {
	flags, err := audit.Flags(s.config.AuditLogs, name)
	if err != nil {
		return controlplane.Config{}, err
	}
	return controlplane.Config{
		Name: name, Dir: filepath.Join(s.config.Dir, name), Kubeconfig: kubeconfig,
		Binaries: s.config.Binaries, Supervisor: s.supervisor, Clock: s.config.Clock,
		Etcd: etcd, Port: port, Nodes: nodes, APIServerFlags: flags,
	}, nil
}

type chosenPorts struct{ etcd, etcdPeer, management, tenant int }

func (s *Sandbox) choosePorts() (chosenPorts, error) {
	free, err := controlplane.FreePorts(4)
	if err != nil {
		return chosenPorts{}, err
	}
	ports := chosenPorts{etcd: free[0], etcdPeer: free[1], management: free[2], tenant: free[3]}
	if s.config.Ports.ManagementAPI != 0 {
		ports.management = s.config.Ports.ManagementAPI
	}
	if s.config.Ports.TenantAPI != 0 {
		ports.tenant = s.config.Ports.TenantAPI
	}
	return ports, nil
}

// startManagement starts the management cluster, Metal3 in it, and registers the servers.
func (s *Sandbox) startManagement(ctx context.Context) error {
	if err := s.management.StartAPIServer(ctx); err != nil {
		return err
	}
	s.progress.say("management API server is ready at %s", s.management.Server)
	var err error
	if s.managementClient, err = newClient(s.management); err != nil {
		return err
	}
	prepare := PrepareManagement
	if s.config.Bare {
		prepare = PrepareMetal3
	}
	if err := prepare(ctx, s.managementClient, s.config.Binaries, HostNamespace, s.config.Tenant); err != nil {
		return err
	}
	s.progress.say("management cluster has the CRDs that it needs")
	if err := s.startMetal3(); err != nil {
		return err
	}
	if err := s.management.StartControllers(ctx); err != nil {
		return err
	}
	if err := registerHosts(ctx, s.managementClient, s.config.Fleet); err != nil {
		return err
	}
	s.progress.say("Metal3 has registered %d servers", len(s.config.Fleet))
	if s.config.Bare {
		return nil
	}
	err = grant(ctx, s.management, s.managementClient, managerUser, "manager.yaml", s.config.Tenant, s.kubeconfigs.Manager)
	if err != nil {
		return err
	}
	err = grantProvider(ctx, s.management, s.managementClient, s.config.Tenant, s.kubeconfigs.ProviderManagement, managementRights...)
	if err != nil {
		return err
	}
	return s.startWebhook(ctx)
}

// startTenant starts the tenant cluster, and prepares it for nodes and for Karpenter.
func (s *Sandbox) startTenant(ctx context.Context) error {
	if err := s.tenant.StartAPIServer(ctx); err != nil {
		return err
	}
	s.progress.say("tenant API server is ready at %s", s.tenant.Server)
	if err := s.tenant.StartControllers(ctx); err != nil {
		return err
	}
	if err := s.tenant.EnableJoin(ctx); err != nil {
		return err
	}
	s.progress.say("tenant cluster schedules pods, and nodes can join it")
	var err error
	if s.tenantClient, err = newClient(s.tenant); err != nil {
		return err
	}
	if s.config.Bare {
		return s.startKwok()
	}
	if err := PrepareTenant(ctx, s.tenantClient); err != nil {
		return err
	}
	err = grantProvider(ctx, s.tenant, s.tenantClient, s.config.Tenant, s.kubeconfigs.ProviderTenant, tenantRights...)
	if err != nil {
		return err
	}
	s.progress.say("tenant cluster has the CRDs of Karpenter and ours")
	return s.startKwok()
}

// startControllers starts the rack of servers, our manager and our provider.
func (s *Sandbox) startControllers(ctx context.Context) error {
	if !s.config.Bare {
		if err := s.applyTenantCluster(ctx); err != nil {
			return err
		}
	}
	if err := s.startRack(); err != nil {
		return err
	}
	s.progress.say("rack of %d emulated servers is switched on", len(s.config.Fleet))
	for _, part := range []struct {
		name  string
		start func(context.Context) error
	}{{ManagerName, s.startManager}, {ProviderName, s.startProvider}} {
		if slices.Contains(s.config.Without, part.name) {
			s.progress.say("%s is left to you", part.name)
			continue
		}
		if err := part.start(ctx); err != nil {
			return err
		}
		s.progress.say("%s is ready", part.name)
	}
	if s.config.Screen {
		return s.startScreen(ctx)
	}
	return nil
}

func (s *Sandbox) applyTenantCluster(ctx context.Context) error {
	return apply(ctx, s.managementClient, &v1alpha1.TenantCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.config.Tenant, Name: s.config.Tenant},
		Spec: v1alpha1.TenantClusterSpec{
			APIServerEndpoint: strings.TrimPrefix(s.tenant.Server, "https://"), StandAloneMachines: v1alpha1.StandAloneAllowed,
			TenantProperties: &v1alpha1.TenantProperties{Keys: []string{v1alpha1.PropertyOSImage, v1alpha1.PropertySSHKeys,
				v1alpha1.PropertyUserDataTemplate, v1alpha1.PropertyUserData, v1alpha1.PropertyServerName}},
		},
	})
}

func newClient(cluster *controlplane.Cluster) (client.Client, error) {
	c, err := client.New(cluster.REST, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, fmt.Errorf("making a client of %s, %w", cluster.Server, err)
	}
	return c, nil
}
