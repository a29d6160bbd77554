// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
)

func TestEnsureWritesWhoseItIs(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, network, ranges string
		name                    string
		want                    v1alpha1.IPAddressSpec
	}{
		"IPv4": {
			reason: "the name is the lock", network: "172.16.0.1/24", ranges: "172.16.0.9-172.16.0.9", name: "172.16.0.9",
			want: v1alpha1.IPAddressSpec{Address: "172.16.0.9", PrefixLength: 24, Gateway: "172.16.0.1",
				Pool: "172.16.0.0/24 (172.16.0.9-172.16.0.9)"},
		},
		"IPv6": {
			reason: "an IPv6 address has one name however it is written", network: "2001:db8:1::/64", ranges: "2001:db8:1::9-2001:db8:1::9",
			name: "2001-0db8-0001-0000-0000-0000-0000-0009",
			want: v1alpha1.IPAddressSpec{Address: "2001:db8:1::9", PrefixLength: 64, Pool: "2001:db8:1::/64 (2001:db8:1::9-2001:db8:1::9)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			owner, pool := newOwner("m"), mustParse(t, tc.network, tc.ranges)
			tc.want.MachineRef = owner
			got, err := direct().Ensure(t.Context(), owner, pool)
			if err != nil {
				t.Fatal(err)
			}
			object := &v1alpha1.IPAddress{}
			if err := environment.Client.Get(t.Context(), client.ObjectKey{Name: tc.name}, object); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, object.Spec); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			gateway := ""
			if got.Gateway.IsValid() {
				gateway = got.Gateway.String()
			}
			if got.Address.String() != fmt.Sprintf("%s/%d", tc.want.Address, tc.want.PrefixLength) || gateway != tc.want.Gateway ||
				got.Pool != tc.want.Pool {
				t.Errorf("got %+v, want what is in the object", got)
			}
			if found, had, err := direct().find(t.Context(), owner); err != nil || !had || found != got {
				t.Errorf("found %+v, %v, %v, want %+v", found, had, err, got)
			}
		})
	}
}

func TestValidation(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*v1alpha1.IPAddress)
		want   string
	}{
		"Good": {"as the allocator writes it", func(*v1alpha1.IPAddress) {}, ""},
		"OtherName": {"it would not lock its address", func(o *v1alpha1.IPAddress) { o.Name = "mine" },
			"the name of an IPAddress must be its address"},
		"NoAddress": {"is none", func(o *v1alpha1.IPAddress) { o.Name, o.Spec.Address = "host", "host" },
			"address must be an IPv4 or IPv6 address"},
		"BadGateway": {"is none", func(o *v1alpha1.IPAddress) { o.Spec.Gateway = "gateway" }, "gateway must be an IPv4 or IPv6 address"},
		"InNetwork":  {"the network's name comes first", func(o *v1alpha1.IPAddress) { o.Name, o.Spec.Network = "vlan-7."+o.Name, "vlan:7" }, ""},
		"Unnamed": {"it would lock the address in another network", func(o *v1alpha1.IPAddress) { o.Spec.Network = "vlan:7" },
			"after that of its network"},
		"Prefix":    {"is too long", func(o *v1alpha1.IPAddress) { o.Spec.PrefixLength = 129 }, "spec.prefixLength"},
		"NoMachine": {"it needs a Machine", func(o *v1alpha1.IPAddress) { o.Spec.MachineRef.Name = "" }, "spec.machineRef.name"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(t, 1)
			made := ipam.NewObject(newOwner("m"), pool, first(pool))
			tc.change(made)
			err := environment.Client.Create(t.Context(), made, client.DryRunAll)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
	pool := newPool(t, 1)
	made := ipam.NewObject(newOwner("m"), pool, first(pool))
	if err := environment.Client.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	made.Spec.MachineRef.UID = "thief"
	if err := environment.Client.Update(t.Context(), made); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("an address was handed over to another Machine: %v", err)
	}
}

// TestModel does at random what Machines do, and compares with a map after every step.
func TestModel(t *testing.T) {
	const size, owners, steps = 6, 9, 250
	random := rand.New(rand.NewPCG(4, 5))
	pool, model := newPool(t, size), map[types.UID]string{}
	all := make([]v1alpha1.MachineReference, owners)
	for i := range all {
		all[i] = newOwner(fmt.Sprintf("m-%d", i))
	}
	cached := stale(t, environment.Client)
	for step := range steps {
		allocator := direct()
		if random.IntN(10) == 0 {
			cached = stale(t, environment.Client)
		}
		if random.IntN(2) == 0 {
			allocator.Client = cached
		}
		owner := all[random.IntN(owners)]
		had, has := model[owner.UID]
		if random.IntN(3) == 0 {
			if err := allocator.Release(t.Context(), owner); err != nil {
				t.Fatalf("step %d: releasing, %v", step, err)
			}
			delete(model, owner.UID)
		} else {
			got, err := allocator.Ensure(t.Context(), owner, pool)
			exhausted := &ipam.ExhaustedError{}
			switch full := !has && len(model) == size; {
			case full && !errors.As(err, &exhausted):
				t.Fatalf("step %d: got %v, %v of a pool that is full", step, got, err)
			case !full && err != nil:
				t.Fatalf("step %d: %d of %d are taken: %v", step, len(model), size, err)
			case has && got.Address.Addr().String() != had:
				t.Fatalf("step %d: the owner had %s and has %s now", step, had, got.Address)
			case !full:
				model[owner.UID] = got.Address.Addr().String()
			}
		}
		want := map[string]types.UID{}
		for uid, address := range model {
			want[address] = uid
		}
		if diff := cmp.Diff(want, addressesOf(t, pool)); diff != "" || len(want) != len(model) {
			t.Fatalf("step %d (-model +API):\n%s", step, diff)
		}
	}
}

// TestTwoAllocators is two managers at once, each with a cache that has seen nothing: 50 Machines, 40 addresses.
func TestTwoAllocators(t *testing.T) {
	const owners, size = 50, 40
	pool := newPool(t, size)
	allocators := []Allocator{
		{Client: stale(t, environment.Client), Live: environment.Client},
		{Client: stale(t, environment.Client), Live: environment.Client},
	}
	var lock sync.Mutex
	var workers sync.WaitGroup
	given := map[string]string{}
	var refused []v1alpha1.MachineReference
	for i := range owners {
		owner := newOwner(fmt.Sprintf("m-%d", i))
		// Half of the Machines ask both managers at once, as when one takes over from the other.
		asked := allocators[i%2 : i%2+1]
		if i%4 < 2 {
			asked = allocators
		}
		var answers sync.WaitGroup
		results, failures := make([]ipam.Allocation, len(asked)), make([]error, len(asked))
		for n, allocator := range asked {
			answers.Go(func() { results[n], failures[n] = allocator.Ensure(t.Context(), owner, pool) })
		}
		workers.Go(func() {
			answers.Wait()
			lock.Lock()
			defer lock.Unlock()
			full := 0
			for n, err := range failures {
				known := &ipam.ExhaustedError{}
				switch {
				case errors.As(err, &known):
					full++
				case err != nil:
					t.Errorf("%s: %v", owner.Name, err)
				default:
					address := results[n].Address.String()
					if other, taken := given[address]; taken && other != owner.Name {
						t.Errorf("%s was given to %s and to %s", address, other, owner.Name)
					}
					given[address] = owner.Name
				}
			}
			if full == len(asked) {
				refused = append(refused, owner)
			}
		})
	}
	workers.Wait()
	// A Machine to which both managers gave an address had two for a moment. A Machine without an address tries again.
	exhausted := 0
	for _, owner := range refused {
		again, err := allocators[0].Ensure(t.Context(), owner, pool)
		if known := (&ipam.ExhaustedError{}); errors.As(err, &known) {
			exhausted++
			continue
		}
		if other, taken := given[again.Address.String()]; err != nil || taken {
			t.Errorf("%s: got %s, which is that of %q, %v", owner.Name, again.Address, other, err)
		}
		given[again.Address.String()] = owner.Name
	}
	taken := addressesOf(t, pool)
	have := map[types.UID]int{}
	for _, uid := range taken {
		have[uid]++
	}
	for uid, n := range have {
		if n != 1 {
			t.Errorf("Machine %s has %d addresses", uid, n)
		}
	}
	if len(taken) != len(given) {
		t.Errorf("%d addresses are taken and %d were given: %v, %v", len(taken), len(given), taken, given)
	}
	if exhausted != owners-size || len(taken) != size {
		t.Errorf("%d of %d Machines were told that the pool is exhausted, and %d of its %d addresses are taken, want %d and all",
			exhausted, owners, len(taken), size, owners-size)
	}
}

func TestExhausted(t *testing.T) {
	wide := mustParse(t, "172.17.0.1/24", "172.17.0.10-172.17.0.12")
	narrow := mustParse(t, "172.17.0.1/24", "172.17.0.12-172.17.0.13")
	for i := range 3 {
		if _, err := direct().Ensure(t.Context(), newOwner(fmt.Sprint(i)), wide); err != nil {
			t.Fatal(err)
		}
	}
	last := newOwner("last")
	if _, err := direct().Ensure(t.Context(), last, narrow); err != nil {
		t.Fatal(err)
	}
	_, err := direct().Ensure(t.Context(), newOwner("more"), narrow)
	got := &ipam.ExhaustedError{}
	if !errors.As(err, &got) {
		t.Fatalf("got %v of a pool that is full", err)
	}
	want := &ipam.ExhaustedError{Pool: narrow.String(), Size: 2, Others: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pools that overlap say so (-want +got):\n%s", diff)
	}
	const message = "address pool 172.17.0.0/24 (172.17.0.12-172.17.0.13) is exhausted: all 2 addresses are taken, " +
		"1 of them through other pools, which overlap it: " +
		"delete Machines that have one, or make the pool larger (karpenter.metal3.io/network-cidr, karpenter.metal3.io/network-ip-range)"
	if diff := cmp.Diff(message, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := direct().Release(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if again, err := direct().Ensure(t.Context(), newOwner("next"), narrow); err != nil || again.Address.String() != "172.17.0.13/24" {
		t.Errorf("a released address goes to the next: got %v, %v", again, err)
	}
}

// TestStaleCacheSaysFull has a cache that shows every address as taken although they have been released.
func TestStaleCacheSaysFull(t *testing.T) {
	pool, first := newPool(t, 1), newOwner("first")
	if _, err := direct().Ensure(t.Context(), first, pool); err != nil {
		t.Fatal(err)
	}
	old := Allocator{Client: stale(t, environment.Client), Live: environment.Client}
	if err := direct().Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Ensure(t.Context(), newOwner("second"), pool); err != nil {
		t.Errorf("the pool has a free address: %v", err)
	}
}

// TestSameNameOtherMachine has a Machine that was deleted by force and made again before its address came back.
func TestSameNameOtherMachine(t *testing.T) {
	pool, first, second := newPool(t, 2), newOwner("m"), newOwner("m")
	firstAddress, err := direct().Ensure(t.Context(), first, pool)
	if err != nil {
		t.Fatal(err)
	}
	secondAddress, err := direct().Ensure(t.Context(), second, pool)
	if err != nil || firstAddress.Address == secondAddress.Address {
		t.Fatalf("got %v and %v, %v", firstAddress, secondAddress, err)
	}
	if err := direct().Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]types.UID{secondAddress.Address.Addr().String(): second.UID}, addressesOf(t, pool)); diff != "" {
		t.Errorf("a Machine releases its own address only (-want +got):\n%s", diff)
	}
}

// TestTwiceIsTidied has an owner with two addresses, as two managers may leave it that both die at the worst moment.
func TestTwiceIsTidied(t *testing.T) {
	pool, owner := newPool(t, 9), newOwner("m")
	all := slices.Sorted(func(yield func(string) bool) {
		for address := range pool.Free(owner, nil) {
			if !yield(address.String()) {
				return
			}
		}
	})
	older := ipam.NewObject(owner, pool, netip.MustParseAddr(all[len(all)-1]))
	newer := ipam.NewObject(owner, pool, netip.MustParseAddr(all[0]))
	for _, made := range []*v1alpha1.IPAddress{older, newer} {
		if err := environment.Client.Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
	}
	got, err := direct().Ensure(t.Context(), owner, pool)
	if err != nil || got.Address.Addr().String() != older.Spec.Address {
		t.Errorf("got %v, %v, want the older one, %s, which may be in use", got, err, older.Spec.Address)
	}
	if diff := cmp.Diff(map[string]types.UID{older.Spec.Address: owner.UID}, addressesOf(t, pool)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEveryWriteMayGoWrong lets each write of an address's life fail in each way, and goes on with a new process.
func TestEveryWriteMayGoWrong(t *testing.T) {
	const writes = 2 // the address is created and deleted
	points, kinds := 0, []fault{crash, refused, answerLost, diesAfter}
	for _, kind := range kinds {
		for write := 1; write <= writes+1; write++ {
			t.Run(fmt.Sprintf("%s%d", kind, write), func(t *testing.T) {
				pool, owner := newPool(t, 3), newOwner("m")
				connection := &faulty{kind: kind, failAt: write}
				allocator := connection.allocator(t)
				// again is the work queue: it tries what has failed, in a new process if the old one is dead.
				again := func(do func() error) {
					t.Helper()
					for range 3 {
						if do() == nil {
							return
						}
						if connection.dead {
							connection = &faulty{}
							allocator = connection.allocator(t)
						}
					}
					t.Fatal("nothing moves any more")
				}
				var first, second ipam.Allocation
				again(func() (err error) { first, err = allocator.Ensure(t.Context(), owner, pool); return err })
				again(func() (err error) { second, err = allocator.Ensure(t.Context(), owner, pool); return err })
				if first != second {
					t.Errorf("the address changed from %v to %v", first, second)
				}
				want := map[string]types.UID{first.Address.Addr().String(): owner.UID}
				if diff := cmp.Diff(want, addressesOf(t, pool)); diff != "" {
					t.Errorf("the Machine has one address (-want +got):\n%s", diff)
				}
				again(func() error { return allocator.Release(t.Context(), owner) })
				if diff := cmp.Diff(map[string]types.UID{}, addressesOf(t, pool), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("nothing is left (-want +got):\n%s", diff)
				}
				// The last is not disturbed: it is there to show that these are all the writes there are.
				switch {
				case write <= writes:
					points++
				case connection.writes != writes:
					t.Errorf("%d writes, want %d", connection.writes, writes)
				}
			})
		}
	}
	t.Logf("%d points tried: %d faults at each of the %d writes of an address's life", points, len(kinds), writes)
}
