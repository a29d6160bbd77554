// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/audit"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
)

// start starts etcd, then both clusters concurrently, then the programs between them.
func (s *Sandbox) start(ctx context.Context) error {
	etcd, err := s.startEtcd(ctx, cluster.EtcdName)
	if err != nil {
		return err
	}
	s.progress.say("etcd is ready")
	s.managementEtcd = etcd
	if s.config.ManagementEtcd {
		if s.managementEtcd, err = s.startEtcd(ctx, ManagementEtcdName); err != nil {
			return err
		}
	}
	management, err := s.options(ctx, "management", s.config.ManagementKubernetes, s.managementEtcd)
	if err != nil {
		return err
	}
	tenant, err := s.options(ctx, "tenant", s.config.TenantKubernetes, etcd)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.startManagement(groupCtx, management) })
	group.Go(func() error { return s.startTenant(groupCtx, tenant) })
	if err := group.Wait(); err != nil {
		return err
	}
	if s.config.Screen {
		if err := s.startScreen(ctx); err != nil {
			return err
		}
		s.progress.say("watch the fleet in a browser: %s", s.Screen())
	}
	return s.startControllers(ctx)
}

func (s *Sandbox) startEtcd(ctx context.Context, name string) (*cluster.Etcd, error) {
	return cluster.StartEtcd(ctx, cluster.EtcdOptions{
		Name: name, Dir: s.config.Dir, Binaries: s.config.Binaries, Processes: s.supervisor,
	})
}

// options are what both clusters share.
func (s *Sandbox) options(ctx context.Context, name, minor string, etcd *cluster.Etcd) (cluster.Options, error) {
	binaries := s.config.Binaries
	if minor != "" {
		var err error
		if binaries, err = binaries.Kubernetes(ctx, minor); err != nil {
			return cluster.Options{}, fmt.Errorf("finding the programs of the %s cluster, %w", name, err)
		}
		s.progress.say("%s cluster is of Kubernetes %s", name, minor)
	}
	flags, err := audit.Flags(s.config.AuditLogs, name)
	return cluster.Options{
		Name: name, Dir: s.config.Dir, Binaries: binaries, Processes: s.supervisor,
		Etcd: etcd, APIServerFlags: flags,
	}, err
}

// startManagement starts the management cluster, Metal3 in it, and registers the servers.
func (s *Sandbox) startManagement(ctx context.Context, options cluster.Options) error {
	prepare := cluster.PrepareManagement
	if s.config.Bare {
		prepare = cluster.PrepareMetal3
	}
	options.Controllers = true
	options.Prepare = func(ctx context.Context, c client.Client) error {
		return prepare(ctx, c, s.config.Binaries, HostNamespace, s.config.Tenant)
	}
	var err error
	if s.management, err = cluster.Start(ctx, options); err != nil {
		return err
	}
	s.progress.say("management cluster with the CRDs that it needs is ready at %s", s.management.Server)
	if err := s.startMetal3(); err != nil {
		return err
	}
	if err := registerHosts(ctx, s.management.Client, s.config.Fleet); err != nil {
		return err
	}
	s.progress.say("Metal3 has registered %d servers", len(s.config.Fleet))
	if s.config.Bare {
		return nil
	}
	if err := s.grantManagement(ctx); err != nil {
		return err
	}
	if slices.Contains(s.config.Without, WebhookName) {
		s.progress.say("%s is left to you", WebhookName)
		return nil
	}
	spec, err := s.program(WebhookName)
	if err != nil {
		return err
	}
	if err := s.management.StartWebhook(ctx, s.kubeconfigs.Webhook, spec); err != nil {
		return err
	}
	s.progress.say("%s is ready", WebhookName)
	return nil
}

// grantManagement gives our programs their rights in the management cluster.
func (s *Sandbox) grantManagement(ctx context.Context) error {
	if err := s.management.Grant(ctx, cluster.ManagerUser, s.config.Tenant, s.kubeconfigs.Manager, "manager.yaml"); err != nil {
		return err
	}
	if err := s.management.Grant(ctx, cluster.WebhookUser, metav1.NamespaceDefault, s.kubeconfigs.Webhook, "webhook.yaml"); err != nil {
		return err
	}
	return s.management.Grant(ctx, cluster.ProviderUser, s.config.Tenant, s.kubeconfigs.ProviderManagement,
		cluster.ProviderManagementRights...)
}

// ManagementEtcd returns the etcd of the management cluster.
func (s *Sandbox) ManagementEtcd() *cluster.Etcd { return s.managementEtcd }

// PrepareAgain installs the CRDs, the namespaces and the rights of our programs in a management cluster that has lost
// its data.
func (s *Sandbox) PrepareAgain(ctx context.Context) error {
	if err := cluster.PrepareManagement(ctx, s.management.Client, s.config.Binaries, HostNamespace, s.config.Tenant); err != nil {
		return err
	}
	return s.grantManagement(ctx)
}

// startTenant starts the tenant cluster, which has nodes, with Karpenter's CRDs and ours.
func (s *Sandbox) startTenant(ctx context.Context, options cluster.Options) error {
	options.Nodes, options.Packed, options.Scheduler = true, s.config.packed(), s.config.Scheduler
	if !s.config.Bare {
		options.Prepare = cluster.PrepareTenant
	}
	if s.config.PodGroups {
		release, err := options.Binaries.KubernetesVersion(ctx)
		if err != nil {
			return err
		}
		gates, served := podGroups(release)
		options.FeatureGates = gates
		options.APIServerFlags = append(slices.Clone(options.APIServerFlags), "--runtime-config=scheduling.k8s.io/"+served+"=true")
	}
	var err error
	if s.tenant, err = cluster.Start(ctx, options); err != nil {
		return err
	}
	s.progress.say("tenant cluster at %s schedules pods, and nodes can join it", s.tenant.Server)
	if !s.config.Bare {
		if err := s.tenant.Grant(ctx, cluster.ProviderUser, s.config.Tenant, s.kubeconfigs.ProviderTenant,
			cluster.ProviderTenantRights...); err != nil {
			return err
		}
	}
	return s.startKwok()
}

// podGroups returns the feature gates of PodGroups, and the version of the API that the scheduler needs.
func podGroups(kubernetes *version.Version) (gates, served string) {
	gates = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
	if kubernetes.LessThan(version.MajorMinor(1, 37)) {
		return gates + ",GangScheduling=true,WorkloadAwarePreemption=true", "v1alpha2"
	}
	// Version 1.37 does not start with a gate that it does not know.
	return gates, "v1beta1"
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
	return nil
}

func (s *Sandbox) applyTenantCluster(ctx context.Context) error {
	return cluster.Apply(ctx, s.management.Client, &v1alpha1.TenantCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.config.Tenant, Name: s.config.Tenant},
		Spec: v1alpha1.TenantClusterSpec{
			APIServerEndpoint: strings.TrimPrefix(s.tenant.Server, "https://"), StandAloneMachines: v1alpha1.StandAloneAllowed,
			TenantProperties: &v1alpha1.TenantProperties{Keys: []string{v1alpha1.PropertyOSImage, v1alpha1.PropertySSHKeys,
				v1alpha1.PropertyUserDataTemplate, v1alpha1.PropertyUserData, v1alpha1.PropertyServerName}},
		},
	})
}
