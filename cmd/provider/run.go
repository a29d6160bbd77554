// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/awslabs/operatorpkg/controller"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/identity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/protection"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// run connects Karpenter's core, our CloudProvider and the tenant's controllers to the two clusters, and works until
// ctx ends.
func (o *options) run(ctx context.Context) error {
	karpenter, err := o.complete()
	if err != nil {
		return err
	}
	o.gates.Record()
	ctx = karpenter.ToContext(ctx)

	ctx, tenantConfig, err := o.tenant.RESTConfig(ctx, name)
	if err != nil {
		return err
	}
	ctx, managementConfig, err := o.management.RESTConfig(ctx, name)
	if err != nil {
		return err
	}
	if err := o.preflight(ctx, tenantConfig, managementConfig, karpenter); err != nil {
		return err
	}
	// Core looks up the group and kind of the NodeClass in client-go's scheme, so everything here uses that scheme.
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return fmt.Errorf("adding our kinds to client-go's scheme, %w", err)
	}
	if o.runs(karpenterControllers) {
		if err := o.registerLabels(ctx, managementConfig); err != nil {
			return err
		}
	}

	guard, err := identity.NewGuard(tenantConfig, managementConfig, o.tenantClusterKey(), scheme.Scheme, clock.RealClock{})
	if err != nil {
		return err
	}
	guard.Begin(ctx)
	tenantConfig, managementConfig = guard.Guarded(tenantConfig), guard.Guarded(managementConfig)
	rights := newRights(karpenter)
	mgr, err := o.newManager(ctx, tenantConfig, rights)
	if err != nil {
		return err
	}
	if err := errors.Join(mgr.Add(guard), mgr.AddReadyzCheck("kubeconfigs", guard.Ready)); err != nil {
		return fmt.Errorf("adding the guard of the tenant cluster, %w", err)
	}
	management, err := o.newManagementCluster(managementConfig, rights)
	if err != nil {
		return err
	}
	if err := mgr.Add(management); err != nil {
		return fmt.Errorf("adding the management cluster, %w", err)
	}
	all, err := o.all(ctx, mgr, management)
	if err != nil {
		return err
	}
	for _, c := range all {
		if err := c.Register(ctx, mgr); err != nil {
			return fmt.Errorf("registering a controller, %w", err)
		}
	}
	log.FromContext(ctx).Info("Starting", "controllers", o.controllers, "tenantCluster", o.tenantClusterKey(), "tenant", tenantConfig.Host,
		"management", managementConfig.Host)
	if err := rights.Start(ctx, mgr); err != nil {
		return fmt.Errorf("running the controllers, %w", err)
	}
	return nil
}

// newManager returns the manager of the tenant cluster, under which everything runs. Its lease is in the tenant
// cluster, too: a provider that loses only the management cluster goes on writing to the tenant cluster, so no other
// provider may become the leader meanwhile.
func (o *options) newManager(ctx context.Context, tenantConfig *rest.Config, rights *operator.Rights) (manager.Manager, error) {
	mgr, err := o.process.NewManager(tenantConfig, manager.Options{
		Scheme: scheme.Scheme,
		Logger: log.FromContext(ctx),
		Cache:  cache.Options{ByObject: trimmed(), DefaultWatchErrorHandler: rights.Handler(tenantName, tenantConfig)},
		// Core reads its settings from the context.
		BaseContext: func() context.Context { return context.WithoutCancel(ctx) },
	}, &operator.Lease{Config: tenantConfig, Namespace: metav1.NamespaceSystem, Name: o.leaseName()})
	if err != nil {
		return nil, err
	}
	if o.runs(karpenterControllers) {
		if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
			return nil, err
		}
		if err := watchOptional(ctx, mgr.GetCache()); err != nil {
			return nil, err
		}
	}
	return mgr, nil
}

// newManagementCluster returns the part of the management cluster that this tenant may see: its own namespace, and
// the cluster-scoped kinds.
func (o *options) newManagementCluster(config *rest.Config, rights *operator.Rights) (cluster.Cluster, error) {
	management, err := cluster.New(config, func(options *cluster.Options) {
		options.Scheme = scheme.Scheme
		options.Cache.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
		options.Cache.DefaultTransform = operator.TrimObject
		options.Cache.ByObject = map[client.Object]cache.ByObject{&v1alpha1.NodeType{}: {Transform: operator.TrimAlso(shareLabels)}}
		options.Cache.DefaultWatchErrorHandler = rights.Handler(managementName, config)
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the %s, %w", managementName, err)
	}
	return management, nil
}

// all returns the controllers of the groups that --controllers names.
func (o *options) all(ctx context.Context, mgr manager.Manager, management cluster.Cluster) ([]controller.Controller, error) {
	realClock := clock.RealClock{}
	//lint:ignore SA1019 core's recorder takes no other
	recorder := events.NewRecorder(mgr.GetEventRecorderFor(name))
	clusters := tenant.Clusters{TenantCluster: o.tenantClusterKey(), Tenant: tenant.ClusterOf(mgr), Management: tenant.ClusterOf(management)}
	var all []controller.Controller
	if o.runs(karpenterControllers) {
		provisioning, err := o.provisioningControllers(ctx, realClock, mgr, management, clusters, recorder)
		if err != nil {
			return nil, err
		}
		all = append(all, provisioning...)
	} else if err := mgr.AddReadyzCheck(managementName, operator.CacheSynced(management.GetCache())); err != nil {
		return nil, fmt.Errorf("adding a readiness check, %w", err)
	}
	if o.runs(draControllers) {
		all = append(all, dra.Controllers(clusters, realClock, recorder, protection.NewDeviceClassController(clusters, o.trustedUsers))...)
	}
	return all, nil
}
