// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
)

const (
	// workers is the manager's number of concurrent reconciles.
	workers = 10
	// restPatience bounds how long the manager may take to become idle, and interval is the poll interval.
	restPatience, interval = 5 * time.Minute, 2 * time.Second
)

var (
	// claims is the number of Machines, and claimHosts are the numbers of servers.
	claims     = 1000
	claimHosts = []int{1000, 10000}
	// quiet is how long the idle manager is measured.
	quiet = 30 * time.Second
)

// BenchmarkClaims has the manager claim 1,000 servers out of 1,000 and out of 10,000, provision them and then do
// nothing. The API server is real, and Metal3 takes no time. It reports, beside the bare rate of compare-and-swaps that
// the same API server takes from as many workers, one for each host (cas/s):
//
//	claims/s        claims per second, from the first of the thousand to the last
//	of-cas-%        that, of the bare rate
//	writes-of-cas-% all writes of the manager meanwhile, events included, of the bare rate: what the API server has left
//	writes/claim    writes of the manager for a claim, without events
//	events/claim
//	409s            writes that were refused because the object had changed
//	reads/claim     reads past the cache
//	looks/claim     times that a Machine was looked at
//	cpu-ms/claim    CPU time of the manager for a claim, beyond that of a start with as many servers
//	provisioned/s   Machines that go from user data to provisioned, per second
//	MiB             resident memory of the manager
//	idle-req/min    requests of the manager to the API server per minute, with all Machines provisioned
func BenchmarkClaims(b *testing.B) {
	for _, hosts := range claimHosts {
		b.Run(fmt.Sprintf("machines=%d/hosts=%d", claims, hosts), func(b *testing.B) {
			for b.Loop() {
				measureClaims(b, hosts)
			}
		})
	}
}

func measureClaims(b *testing.B, hosts int) {
	cluster := management.New(b, nil)
	cluster.CreateHosts(b, hosts)
	bare := bareRate(b, cluster)
	// Without NodeTypes the first Machines would be told that there are none: how many are is a race at the start.
	maker := cluster.StartManager(b)
	awaitTypes(b, cluster, hosts)
	settle(b, maker)
	start := maker.Metrics(b)
	maker.Stop(b)
	_, earlier := eventsByReason(b, cluster)
	management.Each(b, claims, func(ctx context.Context, n int) error { return cluster.Client.Create(ctx, management.Machine(n)) })

	count := float64(claims)
	claimed := cluster.Count(b, func(machine *v1alpha1.Machine) bool { return machine.Status.ProviderID != "" })
	manager := cluster.StartManager(b)
	first, last := claimed.Wait(b, "claimed", claims)
	rate := (count - 1) / last.Sub(first).Seconds()
	settle(b, manager)
	reasons, made := eventsByReason(b, cluster)
	after, events := manager.Metrics(b), float64(made-earlier)
	b.ReportMetric(bare, "cas/s")
	b.ReportMetric(rate, "claims/s")
	b.ReportMetric(100*rate/bare, "of-cas-%")
	b.ReportMetric(100*rate/bare*after.Writes()/count, "writes-of-cas-%")
	reportAtMost(b, (after.Writes()-events)/count, "writes/claim", 5,
		"the finalizer and the host on the Machine, the claim on the host, the status of the Machine; "+
			"the statuses of NodeType and NodeProvider once for all claims of 100 ms, so once a claim at the most")
	reportAtMost(b, after.Conflicts(), "409s", count/10, "the manager alone writes what it compares")
	reportAtMost(b, after.Requests("GET")/count, "reads/claim", 1.5,
		"the owner of a claim that the cache does not show yet (OrphanHosts), a host whose claim was refused")
	b.ReportMetric(after.Reconciles("machine")/count, "looks/claim")
	b.ReportMetric(1000*(after.CPUSeconds()-start.CPUSeconds())/count, "cpu-ms/claim")
	reportAtMost(b, events/count, "events/claim", 1.2, fmt.Sprintf(
		"Claimed, and little else; with those of the manager before there are %v", reasons))

	cluster.PlayMetal3(b)
	provisioned := cluster.Count(b, management.InPhase(v1alpha1.MachineProvisioned))
	management.Each(b, claims, func(ctx context.Context, n int) error {
		patch := client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"bootstrap":{"dataSecretName":"`+management.UserDataName+`"}}}`))
		return cluster.Client.Patch(ctx, management.Machine(n), patch)
	})
	first, last = provisioned.Wait(b, "provisioned", claims)
	b.ReportMetric((count-1)/last.Sub(first).Seconds(), "provisioned/s")

	settle(b, manager)
	before := manager.Metrics(b)
	pass(b, quiet)
	after = manager.Metrics(b)
	b.ReportMetric((after.Requests()-before.Requests())/quiet.Minutes(), "idle-req/min")
	b.ReportMetric(after.Resident()/(1<<20), "MiB")
}

// bareRate is the number of compare-and-swaps per second that the API server takes, one for each of as many hosts as
// will be claimed.
func bareRate(b *testing.B, cluster *management.Cluster) float64 {
	hosts := cluster.Hosts(b)
	begin := time.Now()
	management.EachOf(b, workers, claims, func(ctx context.Context, n int) error {
		before := hosts[n].DeepCopy()
		hosts[n].Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: "n",
			Name: "m", UID: "u"}
		return cluster.Client.Patch(ctx, &hosts[n], client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	rate := float64(claims) / time.Since(begin).Seconds()
	management.Each(b, claims, func(ctx context.Context, n int) error {
		before := hosts[n].DeepCopy()
		hosts[n].Spec.ConsumerRef = nil
		return cluster.Client.Patch(ctx, &hosts[n], client.MergeFrom(before))
	})
	return rate
}

// settle waits until the manager is idle: its queues are empty, no worker is busy, and between two polls there was no
// request. The last is for events, which have a queue of their own.
func settle(b *testing.B, manager *management.Manager) {
	b.Helper()
	requests := -1.0
	for range int(restPatience / interval) {
		now := manager.Metrics(b)
		if now.Busy() == 0 && now.Requests() == requests {
			return
		}
		requests = now.Requests()
		pass(b, interval)
	}
	b.Fatalf("after %s the manager still has something to do", restPatience)
}

// pass waits.
func pass(b *testing.B, span time.Duration) {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.Context().Done():
	}
}

// eventsByReason counts the events.
func eventsByReason(b *testing.B, cluster *management.Cluster) (reasons map[string]int, all int) {
	list := &corev1.EventList{}
	if err := cluster.Client.List(b.Context(), list); err != nil {
		b.Fatal(err)
	}
	reasons = map[string]int{}
	for _, event := range list.Items {
		reasons[event.Reason]++
	}
	return reasons, len(list.Items)
}
