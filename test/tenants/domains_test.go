// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpentercloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management/inprocess"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// Three tenants take servers of four NVLink domains of 18, and give them back, each as it likes. A domain has servers of one tenant at any
// time, by the order in which the API server has written them. Then each tenant in turn gets all servers.
func TestDomainsOfThreeTenants(t *testing.T) {
	system.Only(t)
	const domains, size, rounds = 4, 18, 4
	tenants := []string{management.TenantNamespace, "other", "third"}
	fleet, providers := newFleet(t, domains*size, func(n int, labels map[string]string) {
		labels[v1alpha1.NVLinkDomainLabelKey] = fmt.Sprint("n", n/size)
	}, tenants[1:]...)

	watcher, err := client.NewWithWatch(fleet.Config, client.Options{Scheme: fleet.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	hosts := &bmov1alpha1.BareMetalHostList{}
	if err := watcher.List(t.Context(), hosts); err != nil {
		t.Fatal(err)
	}
	events, err := watcher.Watch(t.Context(), hosts, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: hosts.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	var following sync.WaitGroup
	var ended atomic.Bool
	had := map[string]sets.Set[string]{} // tenants that a domain ever had
	following.Go(func() {
		consumers := map[string]map[string]string{} // by domain and host
		for event := range events.ResultChan() {
			host, ok := event.Object.(*bmov1alpha1.BareMetalHost)
			if !ok {
				if !ended.Load() {
					t.Errorf("the watch says %v", event.Object)
				}
				return
			}
			domain := host.Labels[v1alpha1.NVLinkDomainLabelKey]
			if consumers[domain] == nil {
				consumers[domain], had[domain] = map[string]string{}, sets.New[string]()
			}
			if delete(consumers[domain], host.Name); host.Spec.ConsumerRef != nil {
				consumers[domain][host.Name] = host.Spec.ConsumerRef.Namespace
			}
			now := sets.New[string]()
			for _, tenant := range consumers[domain] {
				now.Insert(tenant)
			}
			if had[domain] = had[domain].Union(now); len(now) > 1 {
				t.Errorf("domain %s has servers of %v since %s was written", domain, sets.List(now), host.Name)
			}
		}
	})

	// take asks for so many servers at once, and returns how many it got.
	take := func(i, count int, name string) int {
		var asked sync.WaitGroup
		var got atomic.Int32
		for n := range count {
			asked.Go(func() {
				switch _, err := providers[i].Create(t.Context(), inprocess.NodeClaim(fmt.Sprintf("%s-%s-%02d", tenants[i], name, n))); {
				case err == nil:
					got.Add(1)
				case !karpentercloud.IsInsufficientCapacityError(err):
					t.Errorf("tenant %s: %v", tenants[i], err)
				}
			})
		}
		asked.Wait()
		return int(got.Load())
	}
	// giveBack releases the servers of a tenant, but for those that it keeps.
	giveBack := func(i int, keeps func() bool) {
		machines := &v1alpha1.MachineList{}
		if err := fleet.Client.List(t.Context(), machines, client.InNamespace(tenants[i])); err != nil {
			t.Error(err)
		}
		for n := range machines.Items {
			if keeps() {
				continue
			}
			if err := client.IgnoreNotFound(fleet.Client.Delete(t.Context(), &machines.Items[n])); err != nil {
				t.Error(err)
			}
		}
	}
	var all sync.WaitGroup
	for i := range tenants {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for round := range rounds {
				count := 1 + random.IntN(3)
				if (i+round)%len(tenants) == 0 {
					count = size + random.IntN(size)
				}
				got := take(i, count, fmt.Sprint(round))
				t.Logf("tenant %s got %d of %d servers", tenants[i], got, count)
				giveBack(i, func() bool { return round < rounds-1 && random.IntN(20) == 0 })
			}
		})
	}
	all.Wait()
	for i := range tenants { // one after the other gets all, so that each domain had each tenant
		untilFree(t, providers, domains*size)
		if got := take(i, domains*size, "all"); got != domains*size {
			t.Errorf("tenant %s got %d of %d servers, and all were free", tenants[i], got, domains*size)
		}
		giveBack(i, func() bool { return false })
	}
	untilFree(t, providers, domains*size)
	ended.Store(true)
	events.Stop()
	following.Wait()
	for domain, tenants := range had {
		if len(tenants) != 3 {
			t.Errorf("domain %s had %v, want each tenant once", domain, sets.List(tenants))
		}
	}
	if len(had) != domains {
		t.Errorf("servers of domains %v were given", slices.Sorted(maps.Keys(had)))
	}
}
