// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
)

// lines are Machines that wait, named by letters, the earlier the longer.
type lines struct {
	*waiting
	t     *testing.T
	queue queue
}

var (
	anyOfA   = wish{need: aServer, types: "a"}
	anyOfAB  = wish{need: aServer, types: "a,b"}
	rackOfA  = wish{need: aServer, types: "a", ofHost: "rack=1"}
	pinned   = wish{need: aServer, types: "a", server: "server-1"}
	quotaOf  = wish{need: allowance, namespace: "blue", nodeType: "a", anotherChoice: true}
	address  = wish{need: anAddress, network: "vlan:1", pool: "p", anotherChoice: true}
	mistaken = wish{need: correction}
)

func newLines(t *testing.T, wishes ...wish) *lines {
	l := &lines{waiting: newWaiting(), t: t, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	t.Cleanup(l.queue.ShutDown)
	if err := l.start(t.Context(), l.queue); err != nil {
		t.Fatal(err)
	}
	for n, wants := range wishes {
		l.look(l.name(n), wants, false)
	}
	return l
}

func (l *lines) name(n int) string { return string(rune('a' + n)) }

func (l *lines) look(name string, wants wish, took bool) {
	l.answer(l.begin(types.NamespacedName{Name: name}), wants, took)
}

func (l *lines) answer(one *waiter, wants wish, took bool) {
	l.end(one, time.Unix(int64(one.key.Name[0]), 0), wants, took)
}

// woken takes what is in the queue, without looking at it.
func (l *lines) woken() (names string) {
	for l.queue.Len() > 0 {
		request, _ := l.queue.Get()
		l.queue.Done(request)
		names += request.Name
	}
	return names
}

func (l *lines) want(what, want string) {
	l.t.Helper()
	if diff := cmp.Diff(want, l.woken()); diff != "" {
		l.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func gainOf(name string, count int) hosts.Gain { return hosts.Gain{Types: map[string]int{name: count}} }

func TestWakes(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		wishes []wish
		happen func(*waiting)
		want   string
	}{
		"Oldest":    {"who has waited longest is served first", []wish{anyOfA, anyOfA, anyOfA}, func(w *waiting) { w.gained(gainOf("a", 1)) }, "a"},
		"AsMany":    {"as many as there are servers", []wish{anyOfA, anyOfA, anyOfA}, func(w *waiting) { w.gained(gainOf("a", 2)) }, "ab"},
		"Twice":     {"the second server is not for the Machine that the first has woken", []wish{anyOfA, anyOfA, anyOfA}, func(w *waiting) { w.gained(gainOf("a", 1)); w.gained(gainOf("a", 1)) }, "ab"},
		"OtherType": {"it would be no use", []wish{anyOfA, anyOfAB}, func(w *waiting) { w.gained(gainOf("b", 1)) }, "b"},
		"Pinned":    {"only by its server", []wish{pinned, pinned}, func(w *waiting) { w.gained(gainOf("a", 2)) }, ""},
		"ItsServer": {"whatever has become of it", []wish{anyOfA, pinned}, func(w *waiting) { w.gained(hosts.Gain{Servers: []string{"server-1"}}) }, "b"},
		"Room":      {"maxCapacity alone kept its server from it", []wish{pinned, {need: aServer, types: "b", server: "server-2"}}, func(w *waiting) { w.gained(hosts.Gain{Types: map[string]int{"a": 1}, Room: []string{"a"}}) }, "a"},
		"NewType":   {"everything is different", []wish{anyOfA, pinned}, func(w *waiting) { w.gained(hosts.Gain{Profiles: true}) }, "ab"},
		"NoServer":  {"they wait for something else", []wish{quotaOf, address, mistaken}, func(w *waiting) { w.gained(gainOf("a", 3)) }, ""},
		"Quota":     {"of this namespace", []wish{quotaOf, {need: allowance, namespace: "red"}}, func(w *waiting) { w.serve(func(x wish) int { return x.servedByAllowance("blue") }) }, "a"},
		"Address":   {"of this network", []wish{address, {need: anAddress, network: "vlan:2"}, address}, func(w *waiting) { w.serve(func(x wish) int { return x.servedByAddress("vlan:1") }) }, "a"},
		"Object":    {"anybody may have waited for it", []wish{anyOfA, mistaken, address}, (*waiting).wakeAll, "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLines(t, tc.wishes...)
			tc.happen(l.waiting)
			got := []byte(l.woken())
			if tc.happen != nil && len(tc.wishes) > 1 {
				// The lines have no order among each other.
				for range got {
					for n := 1; n < len(got); n++ {
						if got[n] < got[n-1] && tc.wishes[got[n]-'a'] != tc.wishes[got[n-1]-'a'] {
							got[n], got[n-1] = got[n-1], got[n]
						}
					}
				}
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestWakesArePassedOn: whoever is woken and does not take what there is must not be the end of it.
func TestWakesArePassedOn(t *testing.T) {
	l := newLines(t, anyOfA, anyOfA, anyOfA, rackOfA)
	l.gained(gainOf("a", 1))
	if woken := l.woken(); len(woken) != 2 {
		t.Fatalf("woken: %q, want the oldest of each line", woken)
	}
	l.look("a", mistaken, false)
	l.want("a could not have it, so b is next", "b")
	l.look("d", rackOfA, false)
	l.want("d has no server in its rack, and neither has anybody else of its line", "")
	l.look("b", wish{}, false)
	l.want("b is gone, so c is next", "c")
	l.look("c", wish{}, true)
	l.want("c has taken it", "")

	l = newLines(t, quotaOf, quotaOf, quotaOf)
	l.serve(func(wants wish) int { return wants.servedByAllowance("blue") })
	l.want("one", "a")
	l.look("a", wish{}, true)
	l.want("there may be room for another", "b")
	l.look("b", quotaOf, false)
	l.want("there is none", "")
}

// TestNothingIsMissed: what becomes free while a Machine asks for it, too late for its answer, wakes it again.
func TestNothingIsMissed(t *testing.T) {
	l := newLines(t)
	one := l.begin(types.NamespacedName{Name: "a"})
	l.gained(gainOf("a", 1))
	l.answer(one, anyOfA, false)
	l.want("it asks again", "a")
	one = l.begin(types.NamespacedName{Name: "a"})
	l.gained(gainOf("b", 1))
	l.answer(one, anyOfA, false)
	l.want("that is not for it", "")
	one = l.begin(types.NamespacedName{Name: "a"})
	l.answer(one, anyOfA, false)
	l.want("it comes to rest", "")
}

// TestEachTenantHasItsLine: two tenants share a namespace. What one has given back is of no use to the other, whose Machines
// have waited longer.
func TestEachTenantHasItsLine(t *testing.T) {
	of := func(tenant string) wish {
		return wish{need: allowance, namespace: "blue", tenant: tenant, nodeType: "a", anotherChoice: true}
	}
	l := newLines(t, of("full"), of("full"), of("freed"))
	l.serve(func(wants wish) int { return wants.servedByAllowance("blue") })
	for _, name := range l.woken() {
		if name == 'c' {
			l.look("c", wish{}, true)
			continue
		}
		l.look(string(name), of("full"), false)
	}
	if left := l.waiters(); len(left) != 2 {
		t.Errorf("%v wait; the Machine whose tenant has room has not been woken", left)
	}
}

// TestAnotherChoiceIsNotMissed: the inventory changes while a Machine asks that another server would help.
func TestAnotherChoiceIsNotMissed(t *testing.T) {
	l := newLines(t)
	slow := &slowed{TypedRateLimitingInterface: l.queue}
	if err := l.start(t.Context(), slow); err != nil {
		t.Fatal(err)
	}
	one := l.begin(types.NamespacedName{Name: "a"})
	l.choose()
	l.answer(one, quotaOf, false)
	slow.want(t, "it asks again in a while", 1)
	l.look("a", quotaOf, false)
	slow.want(t, "nothing has changed since", 1)
	one = l.begin(types.NamespacedName{Name: "a"})
	l.choose()
	l.answer(one, anyOfA, false)
	slow.want(t, "another server is what it is told of anyway", 1)
	l.look("a", quotaOf, false)
	l.choose()
	slow.want(t, "it waits", 2)
}

// slowed counts what is put off.
type slowed struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added int
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (s *slowed) AddAfter(reconcile.Request, time.Duration) { s.added++ }

func (s *slowed) want(t *testing.T, what string, count int) {
	t.Helper()
	if s.added != count {
		t.Errorf("%s: %d times, want %d", what, s.added, count)
	}
}

// TestHolderFirst: a Machine that ties up a server while it waits for an address is served before those that do not.
func TestHolderFirst(t *testing.T) {
	held := wish{need: anAddress, network: "vlan:1", pool: "p"}
	l := newLines(t, held)
	l.look("b", held, true)
	l.serve(func(wants wish) int { return wants.servedByAddress("vlan:1") })
	l.want("b holds a server", "b")
}

// TestNobodyIsKept: Machines that have come and gone leave nothing behind.
func TestNobodyIsKept(t *testing.T) {
	l := newLines(t)
	for n := range 100 {
		name := fmt.Sprintf("m%d", n)
		l.look(name, []wish{anyOfA, pinned, quotaOf, address, mistaken}[n%5], false)
		l.choose()
		l.gained(gainOf("a", 1))
		l.look(name, wish{}, n%2 == 0)
	}
	if left := len(l.machines) + len(l.lines) + len(l.asking) + len(l.choosers); left > 0 {
		t.Errorf("%d entries are left: %v", left, l.machines)
	}
}
