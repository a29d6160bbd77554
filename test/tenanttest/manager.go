// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenanttest

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// Registrar is a controller that can be added to a manager.
type Registrar interface {
	Register(context.Context, manager.Manager) error
}

// Run runs controllers as the provider does, with caches and watches: a manager of the tenant cluster, and a second
// cluster whose cache has only the tenant's namespace. They stop at the end of the test.
func Run(t *testing.T, environment *env.Environment, tenantCluster types.NamespacedName,
	construct func(tenant.Clusters, manager.Manager) Registrar) {
	t.Helper()
	skip := true
	m, err := controllerruntime.NewManager(environment.Config, manager.Options{
		Scheme:  environment.Scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		// Each test has controllers of the same names.
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		t.Fatal(err)
	}
	management, err := cluster.New(environment.Config, func(options *cluster.Options) {
		options.Scheme = environment.Scheme
		options.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{tenantCluster.Namespace: {}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Add(management); err != nil {
		t.Fatal(err)
	}
	if err := m.GetFieldIndexer().IndexField(t.Context(), &corev1.Node{}, tenant.NodeProviderIDField, func(object client.Object) []string {
		return []string{object.(*corev1.Node).Spec.ProviderID}
	}); err != nil {
		t.Fatal(err)
	}
	clusters := tenant.Clusters{TenantCluster: tenantCluster, Tenant: tenant.ClusterOf(m), Management: tenant.ClusterOf(management)}
	if err := construct(clusters, m).Register(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- m.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("running the manager, %v", err)
		}
	})
}

// Eventually waits until the condition holds, and fails the test if it does not.
func Eventually(t testing.TB, what string, condition func(ctx context.Context) (bool, error)) {
	t.Helper()
	poll.Eventually(t, what, func(ctx context.Context) error {
		if holds, err := condition(ctx); err != nil || holds {
			return err
		}
		return errors.New("it is not so")
	})
}
