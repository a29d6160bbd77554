// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenants has two tenants want the same servers: one manager, two providers.
package tenants

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpentercloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management/inprocess"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const servers = 10

// newTenants returns a management cluster with ten free servers and two tenants, and the providers of these.
func newTenants(t *testing.T) (fleet *management.Cluster, first, other *cloudprovider.CloudProvider) {
	t.Helper()
	fleet, providers := newFleet(t, servers, nil, "other")
	return fleet, providers[0], providers[1]
}

// newFleet returns a management cluster with free servers, and the providers of its tenant and of others. label labels the n-th server.
func newFleet(t *testing.T, count int, label func(n int, labels map[string]string), others ...string) (
	fleet *management.Cluster, providers []*cloudprovider.CloudProvider,
) {
	t.Helper()
	if err := instancetypes.Register(topology.Defaults()); err != nil {
		t.Fatal(err)
	}
	fleet = management.New(t, nil)
	fleet.CreateHosts(t, count)
	if label != nil {
		hosts := fleet.Hosts(t)
		management.Each(t, count, func(ctx context.Context, n int) error {
			label(n, hosts[n].Labels)
			return fleet.Client.Update(ctx, &hosts[n])
		})
	}
	for _, namespace := range others {
		for _, object := range []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
			&v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant"},
				Spec: v1alpha1.TenantClusterSpec{APIServerEndpoint: namespace + ".example.com:6443"}},
		} {
			if err := fleet.Client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	class := &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if err := fleet.Client.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	class.StatusConditions().SetTrue(v1alpha1.ConditionValidationSucceeded)
	if err := fleet.Client.Status().Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	fleet.StartManager(t)
	fleet.PlayMetal3(t)
	for _, namespace := range append([]string{management.TenantNamespace}, others...) {
		providers = append(providers, newProvider(t, fleet, namespace))
	}
	untilFree(t, providers, count)
	return fleet, providers
}

// untilFree waits until each tenant could have so many servers.
func untilFree(t *testing.T, providers []*cloudprovider.CloudProvider, count int) {
	t.Helper()
	poll.Eventually(t, "all servers are free", func(ctx context.Context) error {
		for _, provider := range providers {
			alike, err := provider.FreeServers(ctx)
			free := 0
			for _, servers := range alike {
				free += int(servers.Count)
			}
			if err != nil || free != count {
				return cmp.Or(err, fmt.Errorf("a tenant could have %d of %d", free, count))
			}
		}
		return nil
	})
}

// Both tenants want all ten servers at once. Each server goes to one of them, and a tenant that was refused leaves nothing
// behind. Then one tenant has everything, goes on asking, and gives one server back after the other: the other one gets
// its server all the same.
func TestTwoTenants(t *testing.T) {
	fleet, first, other := newTenants(t)

	// 1. At once.
	var group sync.WaitGroup
	var got atomic.Int32
	for n := range servers {
		for name, provider := range map[string]*cloudprovider.CloudProvider{"one": first, "other": other} {
			group.Go(func() {
				_, err := provider.Create(t.Context(), inprocess.NodeClaim(fmt.Sprintf("%s-%02d", name, n)))
				switch {
				case err == nil:
					got.Add(1)
				case !karpentercloud.IsInsufficientCapacityError(err):
					t.Errorf("tenant %s: %v", name, err)
				}
			})
		}
	}
	group.Wait()
	if got.Load() != servers {
		t.Errorf("%d NodeClaims got a server, want %d", got.Load(), servers)
	}
	machines := &v1alpha1.MachineList{}
	poll.Eventually(t, "Machines that got no server are gone", func(ctx context.Context) error {
		if err := fleet.Client.List(ctx, machines); err != nil {
			return err
		}
		for _, machine := range machines.Items {
			if machine.Status.HostRef == nil {
				return fmt.Errorf("%s/%s is still there", machine.Namespace, machine.Name)
			}
		}
		return nil
	})
	owners := map[string]string{}
	for _, machine := range machines.Items {
		if owner, taken := owners[machine.Status.HostRef.Name]; taken {
			t.Errorf("%s has two owners, %s and %s", machine.Status.HostRef.Name, owner, machine.Name)
		}
		owners[machine.Status.HostRef.Name] = machine.Namespace + "/" + machine.Name
	}

	// 2. The first tenant takes what it can get, and goes on asking while the other one wants a single server.
	ctx, stop := poll.WithPatience(t.Context())
	defer stop()
	var greedy sync.WaitGroup
	greedy.Go(func() {
		for n := 100; ctx.Err() == nil; n++ {
			if _, err := first.Create(ctx, inprocess.NodeClaim(fmt.Sprintf("greedy-%03d", n))); err != nil &&
				!karpentercloud.IsInsufficientCapacityError(err) && ctx.Err() == nil {
				t.Errorf("the greedy tenant: %v", err)
			}
		}
	})
	greedy.Go(func() {
		for _, machine := range machines.Items {
			// One after the other: each is fought over.
			if machine.Namespace != "other" {
				if err := fleet.Client.Delete(ctx, &machine); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		}
	})
	modest := 0
	for n := 0; modest == 0 && ctx.Err() == nil; n++ {
		if _, err := other.Create(ctx, inprocess.NodeClaim(fmt.Sprintf("modest-%03d", n))); err == nil {
			modest++
		}
	}
	if modest == 0 {
		t.Error("the other tenant starves")
	}
	stop()
	greedy.Wait()
}

// Each tenant has a gang of six, and asks for its servers at the same time as the other, again and again: one gang gets all six of the ten
// servers, the other none, and leaves nothing behind.
func TestGangsOfTwoTenants(t *testing.T) {
	const size = 6
	fleet, first, other := newTenants(t)
	for round := range 5 {
		gang := fmt.Sprintf(`[{"name":"default/Job train-%d","minCount":%d}]`, round, size)
		var group sync.WaitGroup
		var got [2]atomic.Int32
		for n := range size {
			for i, provider := range []*cloudprovider.CloudProvider{first, other} {
				group.Go(func() {
					asked := inprocess.NodeClaim(fmt.Sprintf("round-%d-%d-%02d", round, i, n))
					asked.Annotations = map[string]string{v1alpha1.GangsAnnotationKey: gang}
					switch _, err := provider.Create(t.Context(), asked); {
					case err == nil:
						got[i].Add(1)
					case !karpentercloud.IsInsufficientCapacityError(err):
						t.Errorf("tenant %d: %v", i, err)
					}
				})
			}
		}
		group.Wait()
		if a, b := got[0].Load(), got[1].Load(); a+b != size || a != 0 && b != 0 {
			t.Errorf("round %d: the tenants have %d and %d servers, and each needs %d", round, a, b, size)
		}
		machines := &v1alpha1.MachineList{}
		poll.Eventually(t, "the Machines of one gang are left", func(ctx context.Context) error {
			if err := fleet.Client.List(ctx, machines); err != nil || len(machines.Items) == size {
				return err
			}
			return fmt.Errorf("there are %d", len(machines.Items))
		})
		for i := range machines.Items {
			if err := fleet.Client.Delete(t.Context(), &machines.Items[i]); err != nil {
				t.Fatal(err)
			}
		}
		poll.Eventually(t, "all Machines are gone", func(ctx context.Context) error {
			if err := fleet.Client.List(ctx, machines); err != nil || len(machines.Items) > 0 {
				return cmp.Or(err, fmt.Errorf("there are %d", len(machines.Items)))
			}
			return nil
		})
		untilFree(t, []*cloudprovider.CloudProvider{first, other}, servers)
	}
}

// newProvider returns the CloudProvider of the tenant of a namespace.
func newProvider(t *testing.T, fleet *management.Cluster, namespace string) *cloudprovider.CloudProvider {
	t.Helper()
	provider, stop, err := inprocess.Start(t.Context(), fleet.Environment, fleet.Client, cloudprovider.Options{
		Namespace: namespace, TenantCluster: "tenant", ClaimTimeout: poll.Patience(),
	})
	if stop != nil {
		t.Cleanup(func() {
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return provider
}
