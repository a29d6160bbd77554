// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// The tenants that are not like the others.
const greedy, broken = 0, 1

// probesPerSecond is how many claims are made in a second to see how long one takes.
const probesPerSecond = 5

var httpClient = &http.Client{Timeout: 10 * time.Second}

// BenchmarkFleet measures one size: TENANTS and HOSTS of the environment, 10 and 1,000 by default. It prints a table of all phases. Metal3
// writes the status of each server once in BEAT seconds, 60 by default.
func BenchmarkFleet(b *testing.B) {
	wanted := size{
		tenants: number(b, "TENANTS", 10), hosts: number(b, "HOSTS", 1000), free: 15, wanted: 20, probes: 100, pending: 10000,
		beat: time.Duration(number(b, "BEAT", 60)) * time.Second,
	}
	wanted.processes = number(b, "PROVIDERS", min(10, wanted.tenants/2))
	for b.Loop() {
		f := newFleet(b, wanted)
		idle, burst := f.run(b)
		cpu, sent := burst.perClaim(idle)
		fmt.Printf("\n%d tenants, %d servers; a claim of the burst took %.1f ms of the managers and %.0f KiB of the API server\n\n%s\n",
			wanted.tenants, wanted.hosts, cpu.Seconds()*1000, sent/1024, table(f.phases))
	}
}

func number(t testing.TB, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	value, err := strconv.Atoi(text)
	if err != nil || value < 1 {
		t.Fatalf("%s is %q: it must be a number above 0", variable, text)
	}
	return value
}

// TestMain registers the labels of the servers with Karpenter, as a provider does.
func TestMain(m *testing.M) {
	log.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	if err := instancetypes.Register(topology.Defaults()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// measure has a phase between two samples.
func (f *fleet) measure(t testing.TB, name string, do func() (note string)) *phase {
	t.Helper()
	f.say("%s", name)
	f.claims.reset()
	p := &phase{name: name, before: f.sample(t)}
	p.note = do()
	p.after = f.sample(t)
	p.took = f.claims.reset()
	slices.Sort(p.took)
	f.phases = append(f.phases, p)
	return p
}

// run has all phases one after the other.
func (f *fleet) run(t testing.TB) (idle, burst *phase) {
	t.Helper()
	idle = f.measure(t, "idle", func() string { return f.awaitBeats(t) })
	f.measure(t, "probes", func() string { return f.probe(t, f.probes) })
	burst = f.measure(t, "burst", func() string { return f.burst(t) })
	f.release(t)
	f.measure(t, "rack fails", func() string { return f.failRack(t) })
	f.measure(t, "manager killed", func() string { return f.killManager(t) })
	f.settle(t)
	f.measure(t, "all providers restart", func() string { return f.restartAll(t) })
	f.measure(t, "greedy and broken", func() string { return f.greedyAndBroken(t) })
	return idle, burst
}

// maxBeats bounds how many statuses Metal3 writes while nothing else happens.
const maxBeats = 2000

// awaitBeats waits until Metal3 has written many statuses.
func (f *fleet) awaitBeats(t testing.TB) string {
	t.Helper()
	begin, count := time.Now(), int64(min(f.hosts, maxBeats))
	until := f.beats.Load() + count
	poll.Eventually(t, "Metal3 has written statuses", func(context.Context) error {
		if missing := until - f.beats.Load(); missing > 0 {
			return fmt.Errorf("%d are missing", missing)
		}
		return nil
	})
	return fmt.Sprintf("%.0f statuses/s", float64(count)/time.Since(begin).Seconds())
}

// probe claims servers and gives them back, at a fixed rate.
func (f *fleet) probe(t testing.TB, count int) string {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	limit := rate.NewLimiter(probesPerSecond, 1)
	for range count {
		if limit.Wait(ctx) != nil {
			break
		}
		group.Go(func() error { _, err := f.probeOnce(ctx); return err })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return ""
}

// probeOnce claims a server and gives it back. It returns when it was claimed.
func (f *fleet) probeOnce(ctx context.Context) (claimed time.Time, err error) {
	machine := management.Machine(int(f.probed.Add(1)))
	machine.Spec.NodeTypeRef, machine.Spec.Resources = nil, gpus // of whatever type, as providers ask
	waiting := f.claims.await(client.ObjectKeyFromObject(machine))
	if err := f.Client.Create(ctx, machine); err != nil {
		return claimed, fmt.Errorf("creating Machine %s, %w", machine.Name, err)
	}
	ctx, cancel := poll.WithPatience(ctx)
	defer cancel()
	select {
	case claimed = <-waiting:
	case <-ctx.Done():
		return claimed, fmt.Errorf("waiting for a server of Machine %s, %w", machine.Name, ctx.Err())
	}
	return claimed, client.IgnoreNotFound(f.Client.Delete(ctx, machine))
}

// burst has all tenants want more servers than there are at once, until none is free.
func (f *fleet) burst(t testing.TB) string {
	t.Helper()
	before := f.claims.count()
	group, ctx := errgroup.WithContext(t.Context())
	for _, tenant := range f.tenants {
		group.Go(func() error { return tenant.want(t.Context(), f.wanted) })
	}
	if err := group.Wait(); err != nil || ctx.Err() == nil {
		t.Fatal(err)
	}
	f.awaitAvailable(t, 0)
	poll.Eventually(t, "the watch has seen all claims", func(context.Context) error {
		if missing := before + f.free*f.size.tenants - f.claims.count(); missing > 0 {
			return fmt.Errorf("%d are missing", missing)
		}
		return nil
	})
	return fmt.Sprintf("%d wanted, %d free", f.wanted*f.size.tenants, f.free*f.size.tenants)
}

// settle waits until the leading manager has looked at everything that it has found at its start.
func (f *fleet) settle(t testing.TB) {
	t.Helper()
	url := f.metrics[f.leader(t)]
	poll.Eventually(t, "the manager has nothing to do", func(ctx context.Context) error {
		metrics, err := management.ReadMetrics(ctx, url)
		if err == nil && metrics.Busy() > 0 {
			err = fmt.Errorf("it is at %v things", metrics.Busy())
		}
		return err
	})
}

// release has the tenants without processes give back what they got.
func (f *fleet) release(t testing.TB) {
	t.Helper()
	management.EachOf(t, 8, f.size.tenants-f.size.processes, func(ctx context.Context, n int) error {
		return f.tenants[f.size.processes+n].(*insideTenant).release(ctx)
	})
	// What those with processes still want, they get meanwhile.
	f.awaitCapacity(t, "servers are free again", func(all v1alpha1.Capacity) bool { return int(all.Available) >= f.size.tenants })
}

// failRack has Metal3 report an error of one server of twenty, 25 racks of 10,000, and all be well again.
func (f *fleet) failRack(t testing.TB) string {
	t.Helper()
	failed, url := f.hosts/20, f.metrics[f.leader(t)]
	for _, state := range []struct {
		status string
		failed int
	}{
		{`{"status":{"operationalStatus":"error","errorType":"power management error","errorMessage":"no route to host"}}`, failed},
		{`{"status":{"operationalStatus":"OK","errorType":null,"errorMessage":""}}`, 0},
	} {
		management.EachOf(t, 8, failed, func(ctx context.Context, n int) error {
			host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: management.HostsNamespace, Name: management.HostName(n)}}
			return f.Client.Status().Patch(ctx, host, client.RawPatch(types.MergePatchType, []byte(state.status)))
		})
		poll.Eventually(t, fmt.Sprintf("%d servers are in error", state.failed), func(ctx context.Context) error {
			metrics, err := management.ReadMetrics(ctx, url)
			if err == nil && int(metrics.HostsInError()) != state.failed {
				err = fmt.Errorf("the manager counts %v", metrics.HostsInError())
			}
			return err
		})
	}
	return fmt.Sprintf("%d servers, and back", failed)
}

// killManager kills the leader, and returns how long it takes until the other one has claimed.
func (f *fleet) killManager(t testing.TB) string {
	t.Helper()
	if err := f.processes.Kill(managerName(f.leader(t))); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	claimed, err := f.probeOnce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%.1f s until the next claim", claimed.Sub(begin).Seconds())
}

// restartAll restarts all providers at once, and claims meanwhile.
func (f *fleet) restartAll(t testing.TB) string {
	t.Helper()
	begin := time.Now()
	var ready time.Duration
	group, _ := errgroup.WithContext(t.Context())
	group.Go(func() error {
		restarts, _ := errgroup.WithContext(t.Context())
		for _, tenant := range f.tenants {
			restarts.Go(func() error { return tenant.restart(t.Context()) })
		}
		err := restarts.Wait()
		ready = time.Since(begin)
		return err
	})
	f.probe(t, f.probes)
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("all ready after %.1f s", ready.Seconds())
}

// greedyAndBroken has one tenant want many more servers than it may have, and another one's API server answer nothing, and claims
// meanwhile.
func (f *fleet) greedyAndBroken(t testing.TB) string {
	t.Helper()
	pid := f.pid(f.tenants[broken].(*processTenant).name + "-kube-apiserver")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stopping the API server of a tenant, %v", err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	// While the pods are created, its API server has the normal priority: at the lowest one it makes five of them a second.
	if err := errors.Join(f.prioritize(0), f.tenants[greedy].want(t.Context(), f.pending), f.prioritize(lowest)); err != nil {
		t.Fatal(err)
	}
	f.claims.reset() // the pods themselves took the machine's cores
	return f.probe(t, f.probes)
}

const (
	// maxProviderBytes is how much memory of its own a provider of a small tenant may have.
	maxProviderBytes = 60 << 20
	// maxSentPerClaim and maxNodeTypesPerClaim are what the API server may send for a claim to all ten tenants, the managers and the
	// watches of the test, whatever the speed of the machine.
	maxSentPerClaim, maxNodeTypesPerClaim = 1 << 20, 256 << 10
	// maxBookmarks are the bytes of watches in which nothing happens, 80 a minute each. One NodeType for all tenants is some 80 KiB.
	maxBookmarks = 16 << 10
)

// TestFleet has a small fleet go through all of it. Whatever was killed or restarted meanwhile, no server has two Machines and no Machine
// two servers, and what a claim costs and what providers are sent is bounded.
func TestFleet(t *testing.T) {
	system.Only(t)
	f := newFleet(t, size{
		tenants: 10, processes: 2, hosts: 1000, free: 15, wanted: 20, beat: 20 * time.Second, probes: 30, pending: 300,
	})
	idle, burst := f.run(t)
	t.Logf("\n%s", table(f.phases))
	if sent := idle.nodeTypes(); sent > maxBookmarks {
		t.Errorf("while nothing happened, the API server sent %.0f bytes of NodeTypes", sent)
	}
	if sent := burst.nodeTypes() / float64(burst.claims()); sent > maxNodeTypesPerClaim {
		t.Errorf("the API server sent %.0f bytes of NodeTypes for each claim, want at most %d", sent, maxNodeTypesPerClaim)
	}
	if _, sent := burst.perClaim(idle); sent > maxSentPerClaim {
		t.Errorf("the API server sent %.0f bytes for each claim, want at most %d", sent, maxSentPerClaim)
	}
	for _, p := range f.phases {
		if provider, count := p.taken("-" + providerProcess); provider.anonymous > uint64(count)*maxProviderBytes {
			t.Errorf("%s: %d providers have %d bytes, want at most %d each", p.name, count, provider.anonymous, maxProviderBytes)
		}
	}
	f.checkClaims(t)
}

// checkClaims compares the claims of the servers with the Machines.
func (f *fleet) checkClaims(t testing.TB) {
	t.Helper()
	poll.Eventually(t, "claims and Machines agree", func(ctx context.Context) error {
		machines := &v1alpha1.MachineList{}
		if err := f.Client.List(ctx, machines); err != nil {
			return err
		}
		claimedBy, having := map[string]string{}, 0
		for _, host := range f.Hosts(t) {
			if consumer := host.Spec.ConsumerRef; consumer != nil {
				claimedBy[host.Name] = string(consumer.UID)
			}
		}
		for i := range machines.Items {
			machine := &machines.Items[i]
			if machine.Status.HostRef == nil {
				continue
			}
			having++
			if claimedBy[machine.Status.HostRef.Name] != string(machine.UID) {
				return fmt.Errorf("server %s of Machine %s/%s is claimed by %q", machine.Status.HostRef.Name, machine.Namespace, machine.Name,
					claimedBy[machine.Status.HostRef.Name])
			}
		}
		if having != len(claimedBy) {
			return fmt.Errorf("%d servers are claimed, and %d Machines have one", len(claimedBy), having)
		}
		return nil
	})
	machines := &v1alpha1.MachineList{}
	if err := f.Client.List(t.Context(), machines, client.InNamespace(f.tenants[greedy].(*processTenant).name)); err != nil {
		t.Fatal(err)
	}
	// Some may be refused, and not deleted yet.
	if have := len(machines.Items); have > 2*f.wanted {
		t.Errorf("the greedy tenant has %d Machines, and its quota is %d servers", have, f.wanted)
	}
}
