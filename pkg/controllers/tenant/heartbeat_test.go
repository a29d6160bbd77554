// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/heartbeat"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

func read(t *testing.T, key client.ObjectKey) *v1alpha1.TenantCluster {
	t.Helper()
	cluster := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(t.Context(), key, cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// TestHeartbeat: each pass renews, and the next one comes in time, also if another client has written in between, or the TenantCluster is
// not there.
func TestHeartbeat(t *testing.T) {
	key := tenanttest.TenantCluster(t, &environment)
	interfere := false
	busy := interceptor.NewClient(environment.Client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, object, opts...)
			if interfere && err == nil {
				interfere = false
				other := object.DeepCopyObject().(client.Object)
				other.SetLabels(map[string]string{"written": "meanwhile"})
				err = c.Update(ctx, other)
			}
			return err
		},
	})
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC))
	pass := func(key client.ObjectKey) time.Duration {
		t.Helper()
		result, err := heartbeat.NewController(clk, tenanttest.ClustersOf(key, busy, busy)).Reconcile(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	for range 2 {
		if again := pass(key); again != v1alpha1.ProviderRenewPeriod {
			t.Errorf("the next renewal comes in %v", again)
		}
		if renewed := read(t, key).Status.ProviderRenewTime; renewed == nil || !renewed.Time.Equal(clk.Now()) {
			t.Errorf("renewed at %v, and it is %v", renewed, clk.Now())
		}
		clk.SetTime(clk.Now().Add(time.Minute))
	}
	interfere = true
	if again := pass(key); again != kube.ConflictRetry || read(t, key).Labels["written"] == "" {
		t.Errorf("after another client's write the next renewal comes in %v", again)
	}
	if again := pass(client.ObjectKey{Namespace: key.Namespace, Name: "none"}); again != v1alpha1.ProviderRenewPeriod {
		t.Errorf("without a TenantCluster the next look comes in %v", again)
	}
}

// TestHeartbeatBegins: the controller renews as soon as it runs.
func TestHeartbeatBegins(t *testing.T) {
	key := tenanttest.TenantCluster(t, &environment)
	tenanttest.Run(t, &environment, key, func(clusters tenant.Clusters, _ manager.Manager) tenanttest.Registrar {
		return heartbeat.NewController(clock.RealClock{}, clusters)
	})
	tenanttest.Eventually(t, "the provider has renewed", func(context.Context) (bool, error) {
		return read(t, key).Status.ProviderRenewTime != nil, nil
	})
}
