// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	controlplane "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/dra/environment"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

const draPatience = 10 * time.Minute

var (
	draTenants = 20
	draClasses = 100
	draClaims  = []int{2500, 5000}
	// draIdle is how long requests are counted while nothing changes.
	draIdle = 20 * time.Second
)

// BenchmarkDRA keeps 100 device classes and as many claims as the name says in sync between a host and 20 tenants, each
// with an API server of its own; the test plays the host's scheduler. It starts with claims in the tenants and nothing on
// the host, and reports how long it took until all tenants had their classes and the host all claims (sync-s), and from
// the first allocation on the host until all of them were in the tenants (status-s); how many writes each claim took, all
// in all (writes/claim), of which are the creates on the host (creates/claim), the status in the tenant (status/claim) and
// the finalizer there (patches/claim); the requests of all 20 tenants per minute when nothing changes (idle-req/min); and the heap
// of all 20 (MiB), the test's own things included.
func BenchmarkDRA(b *testing.B) {
	for _, claims := range draClaims {
		b.Run(fmt.Sprintf("Claims=%d", claims), func(b *testing.B) {
			ctrl.SetLogger(logr.Discard())
			var total draResult
			for b.Loop() {
				result, err := measureDRA(b.Context(), b.TempDir(), claims)
				if err != nil {
					b.Fatal(err)
				}
				total.add(result)
			}
			total.report(b, float64(claims))
		})
	}
}

type draResult struct {
	sync, status                       time.Duration
	creates, statuses, patches, writes int64
	idle                               float64
	heap                               uint64
}

func (r *draResult) add(other draResult) {
	r.sync += other.sync
	r.status += other.status
	r.creates += other.creates
	r.statuses += other.statuses
	r.patches += other.patches
	r.writes += other.writes
	r.idle += other.idle
	r.heap += other.heap
}

func (r *draResult) report(b *testing.B, claims float64) {
	n := float64(b.N)
	b.ReportMetric(r.sync.Seconds()/n, "sync-s")
	b.ReportMetric(r.status.Seconds()/n, "status-s")
	reportAtMost(b, float64(r.writes)/n/claims, "writes/claim", 3, "the finalizer, the claim on the host, its status in the tenant")
	reportAtMost(b, float64(r.creates)/n/claims, "creates/claim", 1, "the claim on the host")
	reportAtMost(b, float64(r.statuses)/n/claims, "status/claim", 1, "the allocation, written to the tenant once")
	reportAtMost(b, float64(r.patches)/n/claims, "patches/claim", 1, "the finalizer in the tenant")
	reportAtMost(b, r.idle/n, "idle-req/min", 0, "nothing changes")
	b.ReportMetric(float64(r.heap)/n/(1<<20), "MiB")
}

func measureDRA(ctx context.Context, dir string, claims int) (result draResult, err error) {
	names := make([]string, draTenants)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%02d", i+1)
	}
	w, err := environment.Start(ctx, environment.Config{
		Dir: dir, Binaries: controlplane.Binaries{filepath.Join("..", "..", "bin")}, Tenants: names,
	})
	defer func() { err = errors.Join(err, w.Close()) }()
	if err != nil {
		return result, err
	}
	if err := populate(ctx, w, claims); err != nil {
		return result, err
	}

	requests := &counter{counts: map[string]*atomic.Int64{}}
	runCtx, stop := context.WithCancel(ctx)
	var running errgroup.Group
	defer func() {
		stop()
		err = errors.Join(err, running.Wait())
	}()
	begin := time.Now()
	for _, t := range w.Tenants {
		mgr, err := newSync(w, t, requests)
		if err != nil {
			return result, err
		}
		running.Go(func() error { return mgr.Start(runCtx) })
	}
	if err := settled(ctx, "all classes and claims", func(ctx context.Context) (int, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(resourcev1.SchemeGroupVersion.WithKind("ResourceClaimList"))
		if err := w.Host.Client.List(ctx, list); err != nil {
			return 0, err
		}
		done := len(list.Items)
		for _, t := range w.Tenants {
			classes := &metav1.PartialObjectMetadataList{}
			classes.SetGroupVersionKind(resourcev1.SchemeGroupVersion.WithKind("DeviceClassList"))
			if err := t.Client.List(ctx, classes); err != nil {
				return 0, err
			}
			done += len(classes.Items)
		}
		return done, nil
	}, claims+draTenants*draClasses); err != nil {
		return result, err
	}
	result.sync = time.Since(begin)

	begin = time.Now()
	if err := allocateAll(ctx, w); err != nil {
		return result, err
	}
	if err := settled(ctx, "all allocations", func(ctx context.Context) (int, error) {
		done := 0
		for _, t := range w.Tenants {
			list := &resourcev1.ResourceClaimList{}
			if err := t.Client.List(ctx, list); err != nil {
				return 0, err
			}
			for i := range list.Items {
				if list.Items[i].Status.Allocation != nil {
					done++
				}
			}
		}
		return done, nil
	}, claims); err != nil {
		return result, err
	}
	result.status = time.Since(begin)
	result.creates = requests.countOf("host POST resourceclaims")
	result.statuses = requests.countOf("tenant PUT resourceclaims/status")
	result.patches = requests.countOf("tenant PATCH resourceclaims") + requests.countOf("host PATCH resourceclaims")
	result.writes = requests.countOf("resourceclaims")

	before := requests.all()
	select {
	case <-time.After(draIdle):
	case <-ctx.Done():
		return result, ctx.Err()
	}
	result.idle = float64(requests.all()-before) / draIdle.Minutes()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	result.heap = memory.HeapInuse
	return result, nil
}

// populate makes the classes on the host, a TenantCluster that allows all of them for each tenant, and the claims in the
// tenants.
func populate(ctx context.Context, w *environment.Environment, claims int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range draClasses {
		group.Go(func() error {
			return w.Host.Client.Create(ctx, &resourcev1.DeviceClass{
				ObjectMeta: metav1.ObjectMeta{Name: class(i)},
				Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{
					CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf(`device.driver == %q`, environment.Driver)},
				}}},
			})
		})
	}
	for _, t := range w.Tenants {
		enabled := v1alpha1.SyncSwitch{Enabled: true}
		group.Go(func() error {
			return w.Host.Client.Create(ctx, &v1alpha1.TenantCluster{
				ObjectMeta: metav1.ObjectMeta{Namespace: t.Name, Name: t.Name},
				Spec: v1alpha1.TenantClusterSpec{APIServerEndpoint: "192.0.2.1:6443", Sync: v1alpha1.Sync{
					FromHost: v1alpha1.SyncFromHost{DeviceClasses: v1alpha1.DeviceClassSync{SyncSwitch: enabled}},
					ToHost: v1alpha1.SyncToHost{ResourceClaims: v1alpha1.ClaimSync{SyncSwitch: enabled},
						ResourceClaimTemplates: v1alpha1.ClaimSync{SyncSwitch: enabled}},
				}},
			})
		})
	}
	for i := range claims {
		t := w.Tenants[i%draTenants]
		group.Go(func() error {
			return t.Client.Create(ctx, &resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("claim-%05d", i)},
				Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
					Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class(i % draClasses)},
				}}}},
			})
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("making classes and claims, %w", err)
	}
	return nil
}

func class(i int) string { return fmt.Sprintf("class-%03d", i) }

// newSync is what the provider of a tenant runs with --controllers=dra, over connections that count.
func newSync(w *environment.Environment, t *environment.Tenant, requests *counter) (ctrl.Manager, error) {
	scheme := env.Scheme()
	mgr, err := ctrl.NewManager(requests.counting(t.REST, "tenant"), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultTransform: operator.TrimObject},
		// This process runs twenty of each.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("setting up %s, %w", t.Name, err)
	}
	host, err := cluster.New(requests.counting(w.Host.REST, "host"), func(options *cluster.Options) {
		options.Scheme = scheme
		options.Cache.DefaultNamespaces = map[string]cache.Config{t.Name: {}}
		options.Cache.DefaultTransform = operator.TrimObject
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the host for %s, %w", t.Name, err)
	}
	if err := mgr.Add(host); err != nil {
		return nil, fmt.Errorf("setting up the host for %s, %w", t.Name, err)
	}
	clusters := tenant.Clusters{
		TenantCluster: types.NamespacedName{Namespace: t.Name, Name: t.Name},
		Tenant:        tenant.ClusterOf(mgr), Management: tenant.ClusterOf(host),
	}
	//lint:ignore SA1019 core's recorder takes no other
	recorder := events.NewRecorder(mgr.GetEventRecorderFor("karpenter-metal3-provider"))
	for _, c := range dra.Controllers(clusters, clock.RealClock{}, recorder) {
		if err := c.Register(context.Background(), mgr); err != nil {
			return nil, fmt.Errorf("registering a controller of %s, %w", t.Name, err)
		}
	}
	return mgr, nil
}

// allocateAll allocates all claims, as the scheduler does.
func allocateAll(ctx context.Context, w *environment.Environment) error {
	list := &resourcev1.ResourceClaimList{}
	if err := w.Host.Client.List(ctx, list); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range list.Items {
		claim := &list.Items[i]
		group.Go(func() error {
			claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
				Results: []resourcev1.DeviceRequestAllocationResult{{
					Request: "gpu", Driver: environment.Driver, Pool: "gpu-server-1", Device: fmt.Sprintf("gpu-%d", i),
				}},
			}}
			return w.Host.Client.Status().Update(ctx, claim)
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("allocating claims, %w", err)
	}
	return nil
}

// settled polls until there are as many objects as expected.
func settled(ctx context.Context, what string, count func(context.Context) (int, error), want int) error {
	var got int
	if err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, draPatience, true, func(ctx context.Context) (bool, error) {
		var err error
		got, err = count(ctx)
		return got == want, err
	}); err != nil {
		return fmt.Errorf("waiting for %s, %d of %d, %w", what, got, want, err)
	}
	return nil
}

// counter counts requests by cluster, verb and resource.
type counter struct {
	mu     sync.Mutex
	counts map[string]*atomic.Int64
}

// counting returns a connection whose requests are counted.
func (c *counter) counting(connection *rest.Config, cluster string) *rest.Config {
	connection = rest.CopyConfig(connection)
	connection.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			c.count(cluster + " " + request.Method + " " + resourceOf(request.URL.Path))
			return next.RoundTrip(request)
		})
	})
	return connection
}

func (c *counter) count(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[key] == nil {
		c.counts[key] = &atomic.Int64{}
	}
	c.counts[key].Add(1)
}

func (c *counter) countOf(key string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !strings.Contains(key, " ") {
		return c.writesOf(key)
	}
	if c.counts[key] == nil {
		return 0
	}
	return c.counts[key].Load()
}

// writesOf counts all that changes a resource, or a part of it.
func (c *counter) writesOf(resource string) int64 {
	var sum int64
	for key, count := range c.counts {
		words := strings.Fields(key)
		if words[1] != http.MethodGet && strings.HasPrefix(words[2], resource) && !strings.HasPrefix(words[2], resource+"templates") {
			sum += count.Load()
		}
	}
	return sum
}

func (c *counter) all() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum int64
	for _, count := range c.counts {
		sum += count.Load()
	}
	return sum
}

// resourceOf returns the resource of a path, with its sub-resource.
func resourceOf(path string) string {
	words := strings.Split(strings.Trim(path, "/"), "/")
	for i, word := range words {
		if word == "namespaces" && i+2 < len(words) {
			words = words[i+2:]
			if len(words) > 2 {
				return words[0] + "/" + words[2]
			}
			return words[0]
		}
	}
	return words[min(3, len(words)-1)]
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
