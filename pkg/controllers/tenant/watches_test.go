// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"context"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/garbagecollection"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// With caches and watches: with a NodeClaim its own Machine is deleted, and no other.
func TestMachineWatches(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	going, staying := createNodeClaim(t, "going-"+cluster.Namespace), createNodeClaim(t, "staying-"+cluster.Namespace)
	goingMachine := createMachine(t, cluster, going.Name, going.UID)
	stayingMachine := createMachine(t, cluster, staying.Name, staying.UID)
	orphan := createMachine(t, cluster, "orphan-"+cluster.Namespace, otherUID)
	tenanttest.Run(t, &environment, cluster, func(clusters tenant.Clusters, _ manager.Manager) tenanttest.Registrar {
		return garbagecollection.NewMachineController(clock.RealClock{}, clusters)
	})
	tenanttest.Eventually(t, "the orphaned Machine is gone", func(context.Context) (bool, error) {
		return !exists(t, orphan), nil
	})
	if !exists(t, goingMachine) {
		t.Fatal("the machine went before its nodeclaim")
	}
	if err := environment.Client.Delete(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	tenanttest.Eventually(t, "the machine has followed its nodeclaim", func(context.Context) (bool, error) {
		return !exists(t, goingMachine), nil
	})
	if !exists(t, stayingMachine) {
		t.Error("the machine of a nodeclaim that exists was deleted")
	}
}

func TestLeftoverWatches(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	machine := createMachine(t, cluster, "machine", "x")
	token, userData := invited(t, cluster.Namespace, "machine", machine.UID)
	before, _ := invited(t, cluster.Namespace, "before", uidFrom(cluster, 1))
	tenanttest.Run(t, &environment, cluster, func(clusters tenant.Clusters, _ manager.Manager) tenanttest.Registrar {
		return garbagecollection.NewLeftoverController(clusters)
	})
	tenanttest.Eventually(t, "what was left over before the start is gone", func(context.Context) (bool, error) {
		return !exists(t, before), nil
	})
	if !exists(t, token) {
		t.Fatal("the token went before its machine")
	}
	if err := environment.Client.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	tenanttest.Eventually(t, "the secrets have followed their machine", func(context.Context) (bool, error) {
		return !exists(t, token) && !exists(t, userData), nil
	})
}
