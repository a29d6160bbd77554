// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	fleetusage "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
)

// ledger has the claims of one namespace.
type ledger struct {
	*testing.T
	claimRate
	now       time.Time
	allowance int64
	names     int
	refused   *unschedulable
}

func newLedger(t *testing.T, perHour int, allowance int64) *ledger {
	return &ledger{T: t, claimRate: claimRate{perHour: perHour, namespaces: map[string]*unusedClaims{}}, now: time.Unix(1e9, 0),
		allowance: allowance}
}

func keyIn(n int) types.NamespacedName {
	return types.NamespacedName{Namespace: "a", Name: fmt.Sprint("m-", n)}
}

// claim claims a server for the Machine of a number, and returns whether it may.
func (l *ledger) claim(n int, uid string) bool {
	l.Helper()
	no, err := l.check(keyIn(n), types.UID(uid), l.now, func() (int64, error) { return l.allowance, nil })
	if err != nil {
		l.Fatal(err)
	}
	if l.refused = no; no == nil {
		l.claimed(keyIn(n), types.UID(uid), l.now)
	}
	return no == nil
}

// churn claims for new Machines that vanish at once, until one is refused.
func (l *ledger) churn(most int) (claims int) {
	l.Helper()
	for claims < most {
		l.names++
		if !l.claim(l.names, fmt.Sprint(l.names)) {
			break
		}
		l.vanished(keyIn(l.names))
		claims++
	}
	return claims
}

func TestClaimRate(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		perHour   int
		allowance int64
		do        func(l *ledger) int
		want      int
	}{
		"Off":   {"no bound was asked for", 0, 1, func(l *ledger) int { return l.churn(5000) }, 5000},
		"Small": {"as many as a namespace may have at least", 360, 1, func(l *ledger) int { return l.churn(5000) }, minUnusedClaims},
		"Big":   {"all are asked for, given up, and asked for again", 360, 1000, func(l *ledger) int { return l.churn(5000) }, 2000},
		"Rate": {"one each ten seconds after that", 360, 1, func(l *ledger) int {
			l.churn(5000)
			l.now = l.now.Add(time.Minute)
			return l.churn(5000)
		}, 6},
		"Rest": {"after some hours it is as at first", 360, 1, func(l *ledger) int {
			l.churn(5000)
			l.now = l.now.Add(24 * time.Hour)
			return l.churn(5000)
		}, minUnusedClaims},
		"Installed": {"who uses the servers is not held up", 360, 10, func(l *ledger) (claims int) {
			for n := range 5000 {
				if l.claim(n, fmt.Sprint(n)) {
					l.uncount(keyIn(n), types.UID(fmt.Sprint(n)), l.now)
					l.vanished(keyIn(n))
					claims++
				}
			}
			return claims
		}, 5000},
		"InstalledOnce": {"one server gives back one claim", 360, 1, func(l *ledger) int {
			l.churn(5000)
			l.now = l.now.Add(10 * time.Second)
			l.claim(0, "x")
			for range 50 {
				l.uncount(keyIn(0), "x", l.now)
			}
			return l.churn(5000)
		}, 1},
		"SameMachine": {"its choice was taken by another, and is made again", 360, 1, func(l *ledger) (claims int) {
			for range 5000 {
				if l.claim(0, "x") {
					claims++
				}
			}
			return claims
		}, 5000},
		"SameName": {"another Machine of the name, before the first was seen to go", 360, 1, func(l *ledger) (claims int) {
			for n := range 5000 {
				if l.claim(0, fmt.Sprint(n)) {
					claims++
				}
			}
			return claims
		}, minUnusedClaims},
		"SetBack": {"a clock that is set back allows nothing", 360, 1, func(l *ledger) int {
			l.churn(5000)
			l.now = l.now.Add(-time.Hour)
			return l.churn(5000)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t, tc.perHour, tc.allowance)
			if got := tc.do(l); got != tc.want {
				t.Errorf("%s: %d claims, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

// TestUnusedClaimsAreBounded: whatever a namespace does, the claims that came to nothing are at most the limit and the hourly rate, and it
// may claim when the message and allowed say so.
func TestUnusedClaimsAreBounded(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 3))
		l := newLedger(t, DefaultUnusedClaimsPerHour, int64(random.IntN(200)))
		limit, begin, unused := max(minUnusedClaims, 2*l.allowance), l.now, 0
		for n := range 3000 {
			l.now = l.now.Add(time.Duration(random.IntN(4000)) * time.Millisecond)
			if !l.claim(n, fmt.Sprint(n)) {
				if l.allowed(l.now) != nil {
					t.Fatalf("seed %d: allowed at once", seed)
				}
				l.now = l.now.Add(10 * time.Second)
				if got := l.allowed(l.now); len(got) != 1 || !l.claim(n, fmt.Sprint(n)) {
					t.Fatalf("seed %d: ten seconds later it is not allowed: %v", seed, got)
				}
			}
			if random.IntN(3) == 0 {
				l.uncount(keyIn(n), types.UID(fmt.Sprint(n)), l.now)
			} else {
				unused++
			}
			l.vanished(keyIn(n))
			if most := float64(limit) + l.now.Sub(begin).Hours()*DefaultUnusedClaimsPerHour; float64(unused) > most {
				t.Fatalf("seed %d: %d unused claims, want at most %.1f", seed, unused, most)
			}
		}
		l.now = l.now.Add(100 * time.Hour)
		if l.allowed(l.now); len(l.namespaces) != 0 {
			t.Errorf("seed %d: namespaces without claims are remembered: %v", seed, l.namespaces)
		}
	}
}

// TestTooManyClaims: the Machines of a namespace that has claimed without end wait, say until when, and get their servers then. Those of
// another one get theirs at once. A server that is installed does not count.
func TestTooManyClaims(t *testing.T) {
	const servers = 4
	w := newFixture(t, servers)
	clock := clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second))
	w.clock = clock
	update(w, &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, "tenant")}, func(tenant *v1alpha1.TenantCluster) {
		tenant.Spec.Quota = &v1alpha1.Quota{Servers: ptr.To(int64(2))}
	})
	p := w.start(w.client)
	p.scheduler.claimRate.perHour = DefaultUnusedClaimsPerHour
	for _, host := range w.hosts() {
		p.inventory.SetHost(&host)
	}
	churned := 0
	for ; churned < minUnusedClaims+1; churned++ {
		key := w.machine(fmt.Sprintf("m-%03d", churned), nil)
		p.look(key)
		if w.get(key).Status.HostRef == nil {
			break
		}
		if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
			t.Fatal(err)
		}
		p.look(key)
		p.look(key)
		for _, host := range w.hosts() {
			p.inventory.SetHost(&host)
		}
	}
	if churned != minUnusedClaims {
		t.Fatalf("%d servers were claimed and given back, want %d", churned, minUnusedClaims)
	}
	refused := w.machines()[0]
	claimed := condition(&refused, v1alpha1.ConditionClaimed)
	until := clock.Now().Add(10 * time.Second).UTC().Format(time.RFC3339)
	want := fmt.Sprintf("namespace %s has %d claims of servers that were not installed, or are not yet: it gets the next one at %s, "+
		"and %d an hour from then on", w.tenant, minUnusedClaims, until, DefaultUnusedClaimsPerHour)
	if claimed.Reason != v1alpha1.ReasonTooManyClaims || claimed.Status != metav1.ConditionFalse || claimed.Message != want {
		t.Fatalf("the Machine says %+v, want %q", claimed, want)
	}
	key := client.ObjectKeyFromObject(&refused)

	others := w.api.Namespace(t)
	w.others = append(w.others, others)
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metaIn(others, "tenant")}
	tenant.Spec.APIServerEndpoint = "other.example.com:6443"
	w.create(tenant)
	other := w.machine("other", func(machine *v1alpha1.Machine) { machine.Namespace = others })
	p.look(other)
	p.look(other)
	if machine := w.get(other); machine.Status.HostRef == nil {
		t.Errorf("a Machine of another namespace waits: %+v", machine.Status.Conditions)
	}

	moveAllowed(p)
	p.scheduler.schedulePending(t.Context())
	if p.look(key); w.get(key).Status.HostRef != nil {
		t.Fatal("it has a server before its time")
	}
	clock.SetTime(clock.Now().Add(10 * time.Second))
	moveAllowed(p)
	p.scheduler.schedulePending(t.Context())
	if _, assumed := p.scheduler.assumed[key]; !assumed {
		t.Error("after its time nothing is decided about it")
	}
	if p.look(key); w.get(key).Status.HostRef == nil {
		t.Fatalf("the Machine has no server after its time: %+v", condition(w.get(key), v1alpha1.ConditionClaimed))
	}
}

// TestInstalledServerDoesNotCount: a Machine becomes a node. Its claim counts until the server is installed.
func TestInstalledServerDoesNotCount(t *testing.T) {
	w := newRichFixture(t, 1)
	w.clock = clocktesting.NewFakePassiveClock(time.Now())
	p := w.start(w.client)
	p.scheduler.claimRate.perHour = DefaultUnusedClaimsPerHour
	counted := 0.0
	cycle(w, func() *process {
		if unused := p.scheduler.claimRate.namespaces[w.tenant]; unused != nil {
			counted = max(counted, unused.count)
		}
		return p
	})
	if unused := p.scheduler.claimRate.namespaces[w.tenant]; counted != 1 || unused.count != 0 || len(unused.open) != 0 {
		t.Errorf("%v claims counted, and after the cycle %+v", counted, unused)
	}
}

// meter adds up what is stored by writes.
type meter struct {
	writes, records, bytes int
}

// stored counts an object as the API server has answered with it. A HostUsage counts as if it were as long as it may be.
func (m *meter) stored(object client.Object, err error) error {
	if err != nil {
		return err
	}
	text, err := json.Marshal(object)
	size := len(text)
	if _, isRecord := object.(*v1alpha1.HostUsage); isRecord {
		size = max(size, fleetusage.MaxBytes+1024)
		m.records++
	}
	m.writes++
	m.bytes += size
	return err
}

// client counts the writes through it.
func (m *meter) client(api client.WithWatch) client.Client {
	return interceptor.NewClient(api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return m.stored(object, c.Create(ctx, object, options...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return m.stored(object, c.Patch(ctx, object, patch, options...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			return m.stored(object, c.SubResource(name).Patch(ctx, object, patch, options...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return m.stored(object, c.Delete(ctx, object, options...)) // the object gets the time of its deletion
		},
	})
}

// TestBytesOfUnusedClaims: what a claim that comes to nothing writes, with the longest record and a host that was inspected, times the
// claims that a namespace may make in an hour, is a part of etcd's 2 GiB that it can spare until it is compacted. The claim is held for so
// long that its begin is recorded, too.
func TestBytesOfUnusedClaims(t *testing.T) {
	const (
		perHour = 28 << 20
		cycles  = 5
	)
	w := newFixtureOn(t, &environment, 0)
	host := env.AvailableHost(w.metal3, "server-00", nil)
	management.Inspect(host)
	w.api.CreateHost(t, host)
	var count meter
	metered := count.client(w.api.Client)
	w.client = metered
	p := w.startWith(metered, metered)
	for n := range cycles {
		key := w.machine(fmt.Sprintf("%s-%d", strings.Repeat("m", 57), n), nil)
		w.until("claimed", func() *process { return p }, func() bool { return w.get(key).Status.ProviderID != "" })
		if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
			t.Fatal(err)
		}
		w.until("given back", func() *process { return p }, func() bool { return w.get(key) == nil })
		if n == 0 {
			count = meter{} // the set-up, and the first record, are not part of a steady state
		}
	}
	each := count.bytes / (cycles - 1)
	t.Logf("%d writes, %d of them of records, and %d KiB for each of %d claims: %d MiB an hour", count.writes/(cycles-1),
		count.records/(cycles-1), each>>10, cycles-1, each*DefaultUnusedClaimsPerHour>>20)
	if count.records == 0 || each*DefaultUnusedClaimsPerHour > perHour {
		t.Errorf("%d bytes for each claim are %d in an hour, want at most %d", each, each*DefaultUnusedClaimsPerHour, perHour)
	}
}

// moveAllowed moves the Machines of the namespaces that may claim again, as the loop does.
func moveAllowed(p *process) {
	for _, namespace := range p.scheduler.claimRate.allowed(p.clock.Now()) {
		p.scheduler.queue.Move(claimsAllowed(namespace))
	}
}
