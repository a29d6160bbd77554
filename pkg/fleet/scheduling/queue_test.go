// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

var (
	host        = Event{Kind: HostChanged}
	object      = Event{Kind: ObjectChanged}
	usageOfBlue = Event{Kind: UsageShrank, Of: "blue"}
	usageOfRed  = Event{Kind: UsageShrank, Of: "red"}
)

// machine is named by a letter: the later in the alphabet, the younger.
func machine(name string, hints ...Event) Machine[string] {
	return Machine[string]{Key: types.NamespacedName{Name: name}, Created: time.Unix(int64(name[0]), 0), Hints: hints}
}

func popAll(q *Queue[string]) (names string) {
	for popped, _, found := q.Pop(); found; popped, _, found = q.Pop() {
		names += popped.Key.Name
	}
	return names
}

func TestQueue(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		do     func(q *Queue[string])
		want   string
	}{
		"Unschedulable": {"nothing has happened", func(q *Queue[string]) { q.Park(machine("a", host), 0) }, ""},
		"Moved": {"a hint has come true", func(q *Queue[string]) {
			q.Park(machine("a", host), 0)
			q.Move(host)
		}, "a"},
		"OtherEvent": {"it cannot help", func(q *Queue[string]) {
			q.Park(machine("a", usageOfBlue), 0)
			q.Move(host)
			q.Move(usageOfRed)
		}, ""},
		"OldestFirst": {"whichever was parked first", func(q *Queue[string]) {
			q.Park(machine("b", host), 0)
			q.Park(machine("c", host), 0)
			q.Park(machine("a", host), 0)
			q.Move(host)
		}, "abc"},
		"ServerFirst": {"a Machine that ties up a server comes before older ones", func(q *Queue[string]) {
			q.Park(machine("a", host), 0)
			served := machine("b", host)
			served.HasServer = true
			q.Park(served, 0)
			q.Move(host)
		}, "ba"},
		"Missed": {"the event came while the Machine was decided on", func(q *Queue[string]) {
			since := q.Version()
			q.Move(host)
			q.Park(machine("a", host), since)
		}, "a"},
		"SeenAlready": {"the event came before", func(q *Queue[string]) {
			q.Move(host)
			q.Park(machine("a", host), q.Version())
		}, ""},
		"Replaced": {"it waits for something else now", func(q *Queue[string]) {
			q.Park(machine("a", host), 0)
			q.Move(host)
			q.Park(machine("a", usageOfBlue), q.Version())
			q.Move(host)
		}, ""},
		"Deleted": {"it is gone", func(q *Queue[string]) {
			q.Park(machine("a", host), 0)
			q.Park(machine("b", host), 0)
			q.Move(host)
			q.Delete(types.NamespacedName{Name: "a"})
		}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			q := NewQueue[string](clock.RealClock{})
			tc.do(q)
			if diff := cmp.Diff(tc.want, popAll(q)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// in is a Machine of a namespace that has been there since then.
func in(namespace string, since int) Machine[string] {
	name := fmt.Sprintf("%s-%05d", namespace, since)
	return Machine[string]{Key: types.NamespacedName{Namespace: namespace, Name: name}, Created: time.Unix(int64(since), 0),
		Hints: []Event{host}}
}

// TestNamespacesTakeTurns: 10,000 Machines of one namespace do not hold up the one of another, and within a namespace the order is
// that of age.
func TestNamespacesTakeTurns(t *testing.T) {
	q := NewQueue[string](clock.RealClock{})
	for n := range 10_000 {
		q.Park(in("greedy", n), 0)
	}
	q.Park(in("blue", 20_000), 0)
	q.Park(in("red", 20_001), 0)
	q.Park(in("red", 20_002), 0)
	q.Move(host)
	var got []string
	for range 7 {
		popped, _, _ := q.Pop()
		got = append(got, popped.Key.Name)
	}
	want := []string{"greedy-00000", "blue-20000", "red-20001", "greedy-00001", "red-20002", "greedy-00002", "greedy-00003"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// One that comes in between has no more turns than the others.
	for n := range 5 {
		q.Park(in("late", n), 0)
	}
	q.Move(host)
	counts := map[string]int{}
	for range 6 {
		popped, _, _ := q.Pop()
		counts[popped.Key.Namespace]++
	}
	if counts["greedy"] < 2 || counts["late"] < 2 {
		t.Errorf("with one more namespace, 6 turns are %v", counts)
	}
}

// TestServersGoInTurn: one server after the other becomes free. Each namespace gets one, whichever has more Machines, until it has none
// left that wait.
func TestServersGoInTurn(t *testing.T) {
	q := NewQueue[string](clock.RealClock{})
	for n := range 100 {
		q.Park(in("greedy", n), 0)
	}
	for n := range 3 {
		q.Park(in("blue", 1000+n), 0)
		q.Park(in("red", 1000+n), 0)
	}
	var got []string
	for range 9 {
		q.Move(host)
		free := 1
		for popped, version, found := q.Pop(); found; popped, version, found = q.Pop() {
			if free == 0 {
				q.Park(popped, version)
				continue
			}
			free--
			q.Served(popped.Key.Namespace)
			got = append(got, popped.Key.Namespace)
		}
	}
	want := []string{"greedy", "blue", "red", "greedy", "blue", "red", "greedy", "blue", "red"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMovedBy(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	q := NewQueue[string](now)
	q.Park(machine("a", host, object), 0)
	for n, event := range []Event{host, object, host} {
		now.SetTime(time.Unix(int64(n+1), 0))
		q.Move(event)
	}
	if popped, _, _ := q.Pop(); popped.MovedBy != object || popped.Moved != time.Unix(1, 0) {
		t.Errorf("moved by %v at %s, want %v: such a Machine has to be validated again; and at the first event", popped.MovedBy, popped.Moved,
			object)
	}
	q.Park(machine("a", host, object), 0)
	if popped, _, _ := q.Pop(); popped.MovedBy != object {
		t.Errorf("moved by %v, want %v", popped.MovedBy, object)
	}
}

// cluster is a model of what is scheduled: servers of some kinds, a quota for each namespace, and Machines.
type cluster struct {
	free     map[string]int             // servers by kind
	quota    map[string]int             // servers that a namespace may still have
	assigned map[string]string          // the kind of server that a Machine has
	machines map[string]Machine[string] // the value is the kind that it wants
}

// decide is the answer to a Machine, and assigns its server if that is yes.
func (c *cluster) decide(popped Machine[string]) (bool, []Event) {
	switch namespace := popped.Key.Namespace; {
	case c.free[popped.Value] == 0:
		return false, []Event{host, object}
	case c.quota[namespace] == 0:
		return false, []Event{{Kind: UsageShrank, Of: namespace}, host, object}
	default:
		c.free[popped.Value]--
		c.quota[namespace]--
		c.assigned[popped.Key.Name] = popped.Value
		return true, nil
	}
}

// TestQueueAgreesWithModel plays random histories: servers come and go, Machines come and go, quotas change, and an event
// may come while a Machine is being decided on. When all is quiet, no Machine is left that could be scheduled, none that
// waits has been lost, nothing has been assigned twice, and an older Machine came before a younger one that wants the same.
func TestQueueAgreesWithModel(t *testing.T) {
	const histories, steps = 200, 200
	kinds, namespaces := []string{"a", "b"}, []string{"blue", "red"}
	given := 0
	for seed := range uint64(histories) {
		random := rand.New(rand.NewPCG(seed, 7))
		anyOf := func(values []string) string { return values[random.IntN(len(values))] }
		q := NewQueue[string](clock.RealClock{})
		c := &cluster{free: map[string]int{}, quota: map[string]int{"blue": 2, "red": 2}, assigned: map[string]string{},
			machines: map[string]Machine[string]{}}
		change := func() {
			switch namespace := anyOf(namespaces); random.IntN(4) {
			case 0:
				c.free[anyOf(kinds)]++
				q.Move(host)
			case 1:
				if kind := anyOf(kinds); c.free[kind] > 0 { // it breaks
					c.free[kind]--
					q.Move(host)
				}
			case 2:
				c.quota[namespace]++
				q.Move(Event{Kind: UsageShrank, Of: namespace})
			case 3: // a Machine is deleted, and gives back what it has
				for name, machine := range c.machines {
					delete(c.machines, name)
					q.Delete(machine.Key)
					if kind, had := c.assigned[name]; had {
						delete(c.assigned, name)
						c.free[kind]++
						c.quota[machine.Key.Namespace]++
						q.Move(host)
						q.Move(Event{Kind: UsageShrank, Of: machine.Key.Namespace})
					}
					break
				}
			}
		}
		// look is a decision as the scheduler makes it: what happens in the middle must not be missed.
		look := func(machine Machine[string], since Version) {
			if _, had := c.assigned[machine.Key.Name]; had {
				t.Fatalf("seed %d: Machine %s is scheduled twice", seed, machine.Key)
			}
			assigned, hints := c.decide(machine)
			if random.IntN(3) == 0 {
				change()
			}
			if _, exists := c.machines[machine.Key.Name]; !assigned && exists {
				machine.Hints = hints
				q.Park(machine, since)
			} else if assigned {
				given++
			}
		}
		for step := range steps {
			if random.IntN(3) == 0 {
				name := fmt.Sprintf("m%03d", step)
				machine := Machine[string]{Key: types.NamespacedName{Namespace: anyOf(namespaces), Name: name},
					Created: time.Unix(int64(step), 0), Value: anyOf(kinds)}
				c.machines[name] = machine
				look(machine, q.Version())
			} else {
				change()
			}
			if random.IntN(2) == 0 {
				continue // the loop is slower than the events
			}
			for machine, since, found := q.Pop(); found; machine, since, found = q.Pop() {
				look(machine, since)
			}
			c.check(t, fmt.Sprintf("seed %d, step %d", seed, step), q)
		}
	}
	if given < histories {
		t.Errorf("only %d Machines were given a server in %d histories: the test tests nothing", given, histories)
	}
}

// check looks at a cluster in which no Machine is active.
func (c *cluster) check(t *testing.T, step string, q *Queue[string]) {
	t.Helper()
	waiting := q.Keys()
	for name, machine := range c.machines {
		_, has := c.assigned[name]
		if has == slices.Contains(waiting, machine.Key) {
			t.Fatalf("%s: Machine %s has a server: %v, and is in the queue: %v", step, machine.Key, has, !has)
		}
		if !has && c.free[machine.Value] > 0 && c.quota[machine.Key.Namespace] > 0 {
			t.Fatalf("%s: Machine %s waits, although there are %d servers of its kind and it is within its quota", step, machine.Key,
				c.free[machine.Value])
		}
	}
	for kind, count := range c.free {
		if count < 0 {
			t.Fatalf("%s: %d servers of kind %s are free", step, count, kind)
		}
	}
}

// TestOrder: of the Machines that want the same, no younger one is scheduled while an older one waits.
func TestOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	q := NewQueue[string](clock.RealClock{})
	for _, n := range random.Perm(100) {
		q.Park(Machine[string]{Key: types.NamespacedName{Name: fmt.Sprint(n)}, Created: time.Unix(int64(n), 0), Hints: []Event{host}},
			q.Version())
		if random.IntN(10) == 0 {
			q.Move(host)
		}
	}
	q.Move(host)
	for n := range 100 {
		if popped, _, found := q.Pop(); !found || popped.Key.Name != fmt.Sprint(n) {
			t.Fatalf("popped %s as number %d", popped.Key, n)
		}
	}
}
