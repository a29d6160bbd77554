// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
)

// TestNetworks: an address is had once in each network, and no two networks share the name of one.
func TestNetworks(t *testing.T) {
	plain := newPool(t, 1)
	given := map[string]string{}
	for _, network := range []string{"", "vlan:7", "vni:7", "id:7", "id:vlan-7", "id:blue", "id:Blue/1", "vlan:x.y"} {
		owner, pool := newOwner("m"), plain.In(network)
		got, err := direct().Ensure(t.Context(), owner, pool)
		if err != nil {
			t.Fatalf("network %q: %v", network, err)
		}
		name := objectName(network, got.Address.Addr())
		if other, taken := given[name]; taken || len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Errorf("IPAddress %s of network %q is no name, or that of network %q", name, network, other)
		}
		given[name] = network
		full := &ExhaustedError{}
		if _, err := direct().Ensure(t.Context(), newOwner("n"), pool); !errors.As(err, &full) {
			t.Errorf("the address was given out twice in network %q: %v", network, err)
		}
		if err := direct().Release(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
		if again, err := direct().Ensure(t.Context(), owner, pool); err != nil || again != got {
			t.Errorf("network %q: got %v, %v after the release", network, again, err)
		}
	}
}

func TestPromises(t *testing.T) {
	pool := newPool(t, 2)
	promises := NewPromises(environment.Client)
	first, second, third := newOwner("first"), newOwner("second"), newOwner("third")
	refused := func(err error) bool {
		full := &ExhaustedError{}
		return errors.As(err, &full)
	}
	if err := promises.Make(t.Context(), first, pool); err != nil {
		t.Fatal(err)
	}
	if err := promises.Make(t.Context(), first, pool); err != nil {
		t.Fatalf("who asks again is not another: %v", err)
	}
	if err := promises.Make(t.Context(), second, pool); err != nil {
		t.Fatal(err)
	}
	if err := promises.Make(t.Context(), third, pool); !refused(err) {
		t.Errorf("three of two: %v", err)
	}
	if err := promises.Make(t.Context(), third, pool.In("vlan:7")); err != nil {
		t.Errorf("another network: %v", err)
	}
	if _, err := direct().Ensure(t.Context(), first, pool); err != nil {
		t.Fatal(err)
	}
	if err := promises.Make(t.Context(), third, pool); !refused(err) {
		t.Errorf("a promise that is kept is no address more: %v", err)
	}
	if err := promises.Make(t.Context(), first, pool); err != nil {
		t.Errorf("who has an address keeps it: %v", err)
	}
	if of, found := promises.Forget(keyOf(second)); !found || of.String() != pool.String() {
		t.Errorf("forgot %v, %v", of, found)
	}
	if err := promises.Make(t.Context(), third, pool); err != nil {
		t.Errorf("one is free again: %v", err)
	}
	promises.Forget(keyOf(third))
	if len(promises.made) > 0 {
		t.Errorf("%v are left", promises.made)
	}
}

func TestOverlaps(t *testing.T) {
	pool := newPool(t, 20)
	network := netip.PrefixFrom(pool.gateway, pool.network.Bits()).String()
	first, last := pool.set.Ranges()[0].From(), pool.set.Ranges()[0].To()
	wide, apart := mustParse(t, network, first.String()+"-"+last.Next().String()), mustParse(t, network, last.Next().String()+"-"+last.Next().String())
	promises := NewPromises(environment.Client)
	overlaps := func(want ...string) {
		t.Helper()
		got, err := promises.Overlaps(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	for _, other := range []Pool{apart, pool, wide.In("vlan:7")} {
		if _, err := direct().Ensure(t.Context(), newOwner("m"), other); err != nil {
			t.Fatal(err)
		}
	}
	overlaps()
	promises.Keep(newOwner("promised"), wide)
	overlaps(wide.String())
	promises.Forget(keyOf(newOwner("promised")))
	overlaps()
	if _, err := direct().Ensure(t.Context(), newOwner("m"), wide); err != nil {
		t.Fatal(err)
	}
	overlaps(wide.String())
}
