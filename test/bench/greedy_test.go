// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

const (
	greedyNamespace = "greedy"
	// greedyQuota is how many servers the greedy tenant may have, and greedyWorkers how many requests it has at a time.
	greedyQuota, greedyWorkers = 5, 8
)

var (
	// greedyMachines is how many Machines the greedy tenant tries to make, and servedMachines how many the other one makes meanwhile.
	greedyMachines, servedMachines = 10000, 30
)

// greedy is a management cluster with a tenant that makes Machines without end.
type greedy struct {
	*management.Cluster
	attempts, denied atomic.Int64
	// machines is how many the greedy tenant tries to make, and document what each has in its properties.
	machines int
	document string
	next     int
}

// newGreedy starts one with or without our webhook, and with a ResourceQuota on Machines unless stored is 0.
func newGreedy(t testing.TB, machines, stored int, admission bool) *greedy {
	t.Helper()
	g := &greedy{Cluster: management.New(t, nil), machines: machines, document: "#cloud-config\n"}
	if stored > 0 || admission { // without them the etcd of the test has to hold them all
		g.document += strings.Repeat("#", v1alpha1.MaxPropertyLength-len(g.document))
	}
	g.CreateHosts(t, 20*(greedyQuota+servedMachines)) // of ten types, for both, twice
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: greedyNamespace, Name: "greedy"}}
	tenant.Spec.APIServerEndpoint = "greedy.example.com:6443"
	tenant.Spec.Quota = &v1alpha1.Quota{Servers: ptr.To(int64(greedyQuota))}
	tenant.Spec.TenantProperties = &v1alpha1.TenantProperties{Keys: []string{"*"}}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: greedyNamespace}}, tenant} {
		if err := g.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	if stored > 0 {
		bounds := corev1.ResourceList{"count/machines.karpenter.metal3.io": resource.MustParse(fmt.Sprint(stored))}
		env.CreateQuota(t, g.Client, &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: greedyNamespace, Name: "tenant"}, Spec: corev1.ResourceQuotaSpec{Hard: bounds}})
	}
	g.StartManager(t)
	if admission {
		g.StartWebhook(t)
	}
	return g
}

// takeAll makes Machines with long properties until it has tried all and is told to stop, which it waits for.
func (g *greedy) takeAll(t testing.TB) (stop func()) {
	var workers sync.WaitGroup
	done := make(chan struct{})
	stopped := func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
	for range greedyWorkers {
		workers.Go(func() {
			for t.Context().Err() == nil {
				n := int(g.attempts.Add(1))
				if n > g.machines && stopped() {
					return
				}
				machine := management.Machine(n)
				machine.Namespace, machine.Spec.TenantClusterRef.Name = greedyNamespace, "greedy"
				machine.Spec.Properties = map[string]string{v1alpha1.PropertyUserData: g.document}
				if n > g.machines { // it goes on, with those that it has
					machine.Name = fmt.Sprintf("machine-%05d", n%g.machines+1)
				}
				switch err := g.Client.Create(t.Context(), machine); {
				case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
					g.denied.Add(1)
				case err != nil && !apierrors.IsAlreadyExists(err) && t.Context().Err() == nil:
					t.Errorf("making a Machine of the greedy tenant: %v", err)
					return
				}
			}
		})
	}
	return func() {
		close(done)
		workers.Wait()
	}
}

// serve makes the Machines of the other tenant, one after the other, and returns how long each waited for its server.
func (g *greedy) serve(t testing.TB) (took []time.Duration) {
	t.Helper()
	for range servedMachines {
		machine := management.Machine(g.next)
		g.next++
		begin := time.Now()
		if err := g.Client.Create(t.Context(), machine); err != nil {
			t.Fatalf("the other tenant cannot make a Machine: %v", err)
		}
		poll.Eventually(t, "Machine "+machine.Name+" has a server", func(ctx context.Context) error {
			if err := g.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
				return err
			}
			if machine.Status.ProviderID == "" {
				return fmt.Errorf("it is %s: %v", machine.Status.Phase, machine.Status.Conditions)
			}
			return nil
		})
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took
}

// counts of the greedy tenant's Machines: with a server, and in line for one.
func (g *greedy) counts(t testing.TB) (have, wait int) {
	t.Helper()
	for page, more := "", true; more; {
		list := &v1alpha1.MachineList{}
		if err := g.Client.List(t.Context(), list, client.InNamespace(greedyNamespace), client.Limit(500), client.Continue(page)); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if list.Items[i].Status.HostRef != nil {
				have++
			} else {
				wait++
			}
		}
		page, more = list.Continue, list.Continue != ""
	}
	return have, wait
}

// TestGreedyTenant: while a tenant makes Machines without end, another one's Machines have their servers; and the greedy one has what
// its quota says. The API server refuses its class of 1 MiB.
func TestGreedyTenant(t *testing.T) {
	system.Only(t)
	const stored = 100
	for name, tc := range map[string]struct {
		reason    string
		stored    int
		admission bool
	}{
		"Webhook":       {"it denies what is beyond the quota of servers", 0, true},
		"ResourceQuota": {"the webhook is switched off, and the API server denies most of them", stored, false},
		"Neither":       {"the manager has all of them", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Log(tc.reason)
			g := newGreedy(t, 1000, tc.stored, tc.admission)
			class := &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "greedy"}}
			class.Spec.Properties = map[string]string{"x": strings.Repeat("x", 1<<20)}
			if err := g.Client.Create(t.Context(), class); !apierrors.IsInvalid(err) {
				t.Errorf("a class of 1 MiB: %v", err)
			}
			stop := g.takeAll(t)
			poll.Eventually(t, "the greedy tenant has more Machines than servers", func(context.Context) error {
				if have, wait := g.counts(t); have < greedyQuota || wait == 0 {
					return fmt.Errorf("of %d attempts, %d Machines have a server and %d wait", g.attempts.Load(), have, wait)
				}
				return nil
			})
			g.serve(t)
			stop()
			have, wait := g.counts(t)
			t.Logf("of %d attempts %d were denied; %d Machines have a server, %d are in line", g.attempts.Load(), g.denied.Load(), have, wait)
			if have != greedyQuota {
				t.Errorf("the greedy tenant has %d servers, and its quota is %d", have, greedyQuota)
			}
			if bounded := tc.stored > 0 || tc.admission; bounded && have+wait > stored {
				t.Errorf("the greedy tenant has %d Machines", have+wait)
			}
		})
	}
}

// BenchmarkGreedyTenant has a tenant make 10,000 Machines, by 8 requests at a time, of 64 KiB each with a ResourceQuota of 1,000 and
// the webhook, and small ones without them. It reports, of another tenant that makes one Machine after the other, how long each waits
// for its server, without the greedy tenant (alone) and while that makes its Machines (beside):
//
//	alone-p50-ms, alone-max-ms, beside-p50-ms, beside-max-ms
//	stored     Machines of the greedy tenant in the end
func BenchmarkGreedyTenant(b *testing.B) {
	for name, stored := range map[string]int{"bounded": 1000, "unbounded": 0} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				g := newGreedy(b, greedyMachines, stored, stored > 0)
				report(b, "alone", g.serve(b))
				stop := g.takeAll(b)
				report(b, "beside", g.serve(b))
				stop()
				have, wait := g.counts(b)
				b.ReportMetric(float64(have+wait), "stored")
			}
		})
	}
}

func report(b *testing.B, what string, took []time.Duration) {
	b.ReportMetric(milliseconds(took[len(took)/2]), what+"-p50-ms")
	b.ReportMetric(milliseconds(took[len(took)-1]), what+"-max-ms")
}
