// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const (
	// fleetServers are those of the fleet that the sum is for, usesPerDay how often each is used, and recordedDays for how long.
	fleetServers, usesPerDay, recordedDays = 10000, 8, 90
	// serverTenants use a server, of storedTenants.
	serverTenants, storedTenants = 5, 30
	// histories are made, which the servers have in turn.
	histories = 50
	// storageBound is what etcd may have, in MiB.
	storageBound = 500
	// compaction is how old a revision can become before etcd has compacted it: the API server compacts what is older than five minutes,
	// every five minutes.
	compaction = 10 * time.Minute
)

// storedServers is the number of servers that are measured.
var storedServers = 1000

// BenchmarkStorage has servers, as inspected, that were used eight times a day for 90 days, each by five of 30 tenants, and has the
// manager claim all of them and release them. It reports:
//
//	record-KiB   a HostUsage, on average
//	server-KiB   what a server in use takes in etcd after compaction: BareMetalHost, HostUsage, Machine, Secret, events
//	use-KiB      what a claim and its release write, until etcd is compacted. Those of Metal3 are of an emulated one, which writes less
//	burst-MiB    that, of 1,500 claims
//	fleet-MiB    10,000 servers in use, with all that their uses write until etcd is compacted
//	file-MiB     etcd's file, as it is here before the compaction
func BenchmarkStorage(b *testing.B) {
	for b.Loop() {
		measureStorage(b)
	}
}

func measureStorage(b *testing.B) {
	cluster := management.New(b, nil)
	empty := compacted(b, cluster)
	cluster.CreateInspectedHosts(b, storedServers)
	records := make([]v1alpha1.HostUsageSpec, min(histories, storedServers))
	recorded := 0
	for n := range records {
		records[n] = usedFor90Days(rand.New(rand.NewPCG(1, uint64(n))))
		recorded += usage.Bytes(records[n])
	}
	management.Each(b, storedServers, func(ctx context.Context, n int) error {
		key := metav1.ObjectMeta{Namespace: management.HostsNamespace, Name: management.HostName(n)}
		return cluster.Client.Create(ctx, &v1alpha1.HostUsage{ObjectMeta: key, Spec: records[n%len(records)]})
	})
	manager := cluster.StartManager(b)
	awaitTypes(b, cluster, storedServers)
	cluster.PlayMetal3(b)
	settle(b, manager)

	before := etcdMetrics(b, cluster)[etcdWritten]
	provisioned := cluster.Count(b, management.InPhase(v1alpha1.MachineProvisioned))
	management.Each(b, storedServers, func(ctx context.Context, n int) error {
		machine := management.Machine(n)
		machine.Spec.Bootstrap.DataSecretName = management.UserDataName
		return cluster.Client.Create(ctx, machine)
	})
	provisioned.Wait(b, "provisioned", storedServers)
	settle(b, manager)
	claimed := etcdMetrics(b, cluster)[etcdWritten] - before
	inUse := compacted(b, cluster)
	before = etcdMetrics(b, cluster)[etcdWritten]
	management.Each(b, storedServers, func(ctx context.Context, n int) error {
		return cluster.Client.Delete(ctx, management.Machine(n))
	})
	poll.Eventually(b, "all servers are released", func(ctx context.Context) error {
		list := &v1alpha1.MachineList{}
		if err := cluster.Client.List(ctx, list); err != nil || len(list.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d Machines are left", len(list.Items))
	})
	settle(b, manager)
	released := etcdMetrics(b, cluster)[etcdWritten] - before

	servers := float64(storedServers)
	server, use := (inUse-empty)/servers, (claimed+released)/servers
	// These uses are short, so their records are written at the end alone.
	longUse := use + float64(usage.MaxBytes)
	uses := fleetServers * usesPerDay * compaction.Hours() / 24
	b.ReportMetric(float64(recorded)/float64(len(records))/(1<<10), "record-KiB")
	b.ReportMetric(server/(1<<10), "server-KiB")
	b.ReportMetric(use/(1<<10), "use-KiB")
	b.ReportMetric(use*1500/(1<<20), "burst-MiB")
	b.ReportMetric(etcdMetrics(b, cluster)[etcdFile]/(1<<20), "file-MiB")
	reportAtMost(b, (empty+server*fleetServers+longUse*uses)/(1<<20), "fleet-MiB", storageBound, "the record of a server is bounded "+
		"(MaxBytes of pkg/fleet/usage), and so is what each use writes")
}

// usedFor90Days is the record of a server.
func usedFor90Days(random *rand.Rand) (record v1alpha1.HostUsageSpec) {
	const retention = recordedDays * 24 * time.Hour
	tenants := random.Perm(storedTenants)[:serverTenants]
	now, each := time.Now().Add(-retention), 24*time.Hour/usesPerDay
	for range recordedDays * usesPerDay {
		tenant := fmt.Sprintf("team-research-%02d", tenants[random.IntN(serverTenants)])
		use := v1alpha1.HostUse{
			HostUID: types.UID(uuid(random)), Start: usage.Time(now), TenantCluster: tenant, NodeType: "metal3-provider.h100-8x",
			Machine: v1alpha1.MachineReference{Namespace: tenant, Name: fmt.Sprintf("gpu-pool-%05x", random.IntN(1<<20)),
				UID: types.UID(uuid(random))},
			Cost: ptr.To(int64(82496)),
		}
		length := each/2 + time.Duration(random.Int64N(int64(each)/3))
		record = usage.Next(record, usage.Observation{At: now.Add(length), Claim: &use, Ending: true}, retention)
		now = now.Add(each)
	}
	return record
}

func uuid(random *rand.Rand) string {
	return fmt.Sprintf("%08x-7ab4-4f8c-9a52-%012x", random.Uint32(), random.Uint64()>>16)
}

// etcdMetrics are etcd's own.
func etcdMetrics(b *testing.B, cluster *management.Cluster) management.Metrics {
	b.Helper()
	metrics, err := management.ReadMetrics(b.Context(), cluster.EtcdURL()+"/metrics")
	if err != nil {
		b.Fatal(err)
	}
	return metrics
}

const (
	etcdRevision = "etcd_debugging_mvcc_current_revision"
	etcdWritten  = "etcd_debugging_mvcc_total_put_size_in_bytes"
	etcdFile     = "etcd_mvcc_db_total_size_in_bytes"
)

// compacted has etcd forget what was before its newest revision, and returns the bytes of what is left.
func compacted(b *testing.B, cluster *management.Cluster) float64 {
	b.Helper()
	for _, call := range []struct{ path, body string }{
		{"kv/compaction", fmt.Sprintf(`{"physical": true, "revision": "%.0f"}`, etcdMetrics(b, cluster)[etcdRevision])},
		{"maintenance/defragment", "{}"},
	} {
		request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, cluster.EtcdURL()+"/v3/"+call.path, strings.NewReader(call.body))
		if err != nil {
			b.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			b.Fatalf("etcd, %s: %v", call.path, err)
		}
		_ = answer.Body.Close() // it says no more than its status
		if answer.StatusCode != http.StatusOK {
			b.Fatalf("etcd, %s: %s", call.path, answer.Status)
		}
	}
	return etcdMetrics(b, cluster)[etcdFile]
}
