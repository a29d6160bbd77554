// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func newOwner(name string) v1alpha1.MachineReference {
	return v1alpha1.MachineReference{Namespace: "tenant", Name: name, UID: types.UID(name)}
}

// take is an address of the pool that the owner has.
func take(t *testing.T, owner v1alpha1.MachineReference, pool Pool, taken ...v1alpha1.IPAddress) v1alpha1.IPAddress {
	t.Helper()
	for address := range pool.Free(owner, taken) {
		return *NewObject(owner, pool, address)
	}
	t.Fatalf("pool %s has no address", pool)
	return v1alpha1.IPAddress{}
}

func TestCheck(t *testing.T) {
	pool := mustParse(t, "10.0.0.1/24", "10.0.0.10-10.0.0.11")
	first, second, third := newOwner("first"), newOwner("second"), newOwner("third")
	assumedFor := func(owner v1alpha1.MachineReference) Assumed { return Assumed{Owner: owner, Pool: pool} }
	for name, tc := range map[string]struct {
		reason  string
		taken   []v1alpha1.IPAddress
		assumed []Assumed
		in      string
		want    bool
	}{
		"Free":    {reason: "two of two", want: true},
		"OneLeft": {reason: "one of two", assumed: []Assumed{assumedFor(first)}, want: true},
		"Assumed": {reason: "both are about to be taken", assumed: []Assumed{assumedFor(first), assumedFor(second)}},
		"OtherNetwork": {reason: "it has its own addresses",
			assumed: []Assumed{assumedFor(first), assumedFor(second)}, in: "vlan:7", want: true},
		"Both": {reason: "one is taken, one is assumed", taken: []v1alpha1.IPAddress{take(t, first, pool)},
			assumed: []Assumed{assumedFor(second)}},
		"Shows": {reason: "an assumed address that is taken counts once", taken: []v1alpha1.IPAddress{take(t, first, pool)},
			assumed: []Assumed{assumedFor(first)}, want: true},
		"Own": {reason: "an owner keeps its address", taken: []v1alpha1.IPAddress{take(t, third, pool)},
			assumed: []Assumed{assumedFor(first), assumedFor(second)}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			err := pool.In(tc.in).Check(third, tc.taken, tc.assumed)
			var exhausted *ExhaustedError
			if tc.want != (err == nil) || err != nil && !errors.As(err, &exhausted) {
				t.Errorf("%s: got %v, want an address: %v", tc.reason, err, tc.want)
			}
		})
	}
}

func TestOverlapping(t *testing.T) {
	pool := mustParse(t, "10.0.0.1/24", "10.0.0.10-10.0.0.20")
	wide, apart := mustParse(t, "10.0.0.1/24", "10.0.0.10-10.0.0.30"), mustParse(t, "10.0.0.1/24", "10.0.0.30-10.0.0.30")
	beyond := *NewObject(newOwner("m"), wide, apart.start(""))
	for name, tc := range map[string]struct {
		reason  string
		taken   []v1alpha1.IPAddress
		assumed []Assumed
		want    []string
	}{
		"None": {reason: "apart, the same, or in another network",
			taken: []v1alpha1.IPAddress{take(t, newOwner("a"), apart), take(t, newOwner("b"), pool), take(t, newOwner("c"), wide.In("vlan:7"))}},
		"Assumed": {reason: "a Machine is about to take an address",
			assumed: []Assumed{{Owner: newOwner("a"), Pool: wide}, {Owner: newOwner("b"), Pool: pool}}, want: []string{wide.String()}},
		"Taken": {reason: "another pool gives out an address of this one", taken: []v1alpha1.IPAddress{take(t, newOwner("a"), wide)},
			want: []string{wide.String()}},
		"Beyond": {reason: "the address is not in this pool, but its pool overlaps", taken: []v1alpha1.IPAddress{beyond},
			want: []string{wide.String()}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, pool.Overlapping(tc.taken, tc.assumed)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
