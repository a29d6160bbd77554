// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
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
		name := ipam.NewObject(owner, pool, got.Address.Addr()).Name
		if other, taken := given[name]; taken || len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Errorf("IPAddress %s of network %q is no name, or that of network %q", name, network, other)
		}
		given[name] = network
		full := &ipam.ExhaustedError{}
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
