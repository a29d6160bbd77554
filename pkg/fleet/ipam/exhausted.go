// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// ExhaustedError means that every address of a pool is taken.
type ExhaustedError struct {
	// Pool names the pool.
	Pool string
	// Size is the number of addresses of the pool.
	Size uint64
	// Assumed is the number of addresses that Machines are going to take that have been given a server.
	Assumed int
	// Others counts the addresses of the pool that were taken through pools that overlap it, by their names.
	Others map[string]int
}

// Error implements error.
func (e *ExhaustedError) Error() string {
	text := fmt.Sprintf("address pool %s is exhausted: all %d addresses are taken", e.Pool, e.Size)
	if e.Size == 1 {
		text = fmt.Sprintf("address pool %s is exhausted: its only address is taken", e.Pool)
	}
	if e.Assumed > 0 {
		text += fmt.Sprintf(", %d of them by Machines that have been given a server", e.Assumed)
	}
	for _, other := range slices.Sorted(maps.Keys(e.Others)) {
		text += fmt.Sprintf(", %d of them by pool %s, which overlaps it", e.Others[other], other)
	}
	return text + ": delete Machines that have one, or make the pool larger (" + networkProperties + ")"
}

const networkProperties = v1alpha1.PropertyNetworkCIDR + ", " + v1alpha1.PropertyNetworkIPRange

// Exhausted is the error for a pool that has no address left, if those are taken and so many are assumed.
func (p Pool) Exhausted(taken []v1alpha1.IPAddress, assumed int) *ExhaustedError {
	result := &ExhaustedError{Pool: p.Title(), Size: p.Size(), Assumed: assumed, Others: map[string]int{}}
	for i := range taken {
		if _, ours := p.has(&taken[i]); ours && taken[i].Spec.Pool != p.text {
			result.Others[taken[i].Spec.Pool]++
		}
	}
	return result
}

// Assumed is a Machine that is going to take an address of a pool, not yet known which.
type Assumed struct {
	Owner v1alpha1.MachineReference
	Pool  Pool
}

// Check checks whether there is an address for the owner beside those that are taken and those that others are assumed to
// take. An owner that has an address keeps that. Of pools that overlap, one knows nothing of what is assumed of the other. The error is
// an *ExhaustedError if there is none.
func (p Pool) Check(owner v1alpha1.MachineReference, taken []v1alpha1.IPAddress, assumed []Assumed) error {
	used, owners := uint64(0), map[v1alpha1.MachineReference]bool{}
	for i := range taken {
		owners[taken[i].Spec.MachineRef] = true
		if _, ours := p.has(&taken[i]); ours {
			used++
		}
	}
	if owners[owner] {
		return nil
	}
	expected := 0
	for _, one := range assumed {
		if one.Pool.Is(p) && !owners[one.Owner] {
			expected++
		}
	}
	if used+uint64(expected) >= p.Size() {
		return p.Exhausted(taken, expected)
	}
	return nil
}

// Overlapping names the other pools that give out addresses of this one, or are assumed to, in its network. Two that are
// the same are one pool.
func (p Pool) Overlapping(taken []v1alpha1.IPAddress, assumed []Assumed) []string {
	others := map[string]bool{}
	for i := range taken {
		of := taken[i].Spec
		if others[of.Pool] || of.Network != p.of || of.Pool == p.text {
			continue
		}
		_, ours := p.has(&taken[i])
		others[of.Pool] = ours || len(p.Overlap(poolOf(&taken[i]))) > 0
	}
	for _, one := range assumed {
		if one.Pool.text != p.text && len(p.Overlap(one.Pool)) > 0 {
			others[one.Pool.text] = true
		}
	}
	maps.DeleteFunc(others, func(_ string, overlaps bool) bool { return !overlaps })
	return slices.Sorted(maps.Keys(others))
}

// Free yields the addresses of the pool that are not taken, from where the search for one of the owner's begins.
func (p Pool) Free(owner v1alpha1.MachineReference, taken []v1alpha1.IPAddress) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if p.set == nil {
			return
		}
		free := &netipx.IPSetBuilder{}
		free.AddSet(p.set)
		for i := range taken {
			if address, ours := p.has(&taken[i]); ours {
				free.Remove(address)
			}
		}
		start := p.start(string(owner.UID))
		for {
			set, err := free.IPSet()
			if err != nil || len(set.Ranges()) == 0 { // the error is for ranges that are not valid: there are none
				return
			}
			address := next(set, start)
			if !yield(address) {
				return
			}
			free.Remove(address)
		}
	}
}
