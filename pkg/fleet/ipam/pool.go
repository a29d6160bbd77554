// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ipam decides about addresses of Machines: the addresses of a pool, the free ones, and the annotations for a
// DHCP server.
//
// All pools of a network share one space of addresses. The network is the one that a tenant's servers are moved into;
// tenants without one share the network of the servers that are not moved. Each taken address is an IPAddress, a
// cluster-scoped object named for the network and the address.
//
// The package needs no client. It refers to Machines by reference only. Of BareMetalHosts it uses only the annotations
// for a DHCP server.
package ipam

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/big"
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Pool is a set of addresses for Machines, with their network and gateway. The zero Pool is empty.
type Pool struct {
	network netip.Prefix
	gateway netip.Addr
	ranges  []netipx.IPRange
	set     *netipx.IPSet
	text    string
	// tenantNetwork is the network that the pool is used in. The addresses do not depend on it.
	tenantNetwork string
}

// NewPool makes a pool of all addresses of a network or, if there are ranges, of the addresses in the ranges. The
// gateway is never in the pool, nor are the network's own address and its broadcast address. A network of one or two
// addresses (/32 and /31, RFC 3021; /128 and /127, RFC 6164) has neither of these, and in IPv6 there is no broadcast
// address.
//
// If gateway is not valid, the host part of the network is the gateway, as in 192.168.100.1/24; if that is zero too,
// there is no gateway.
func NewPool(network netip.Prefix, gateway netip.Addr, ranges ...netipx.IPRange) (Pool, error) {
	text := describe(network, ranges)
	wrong := func(problem, remedy string) (Pool, error) {
		return Pool{}, fmt.Errorf("address pool %s %s: %s", text, problem, remedy)
	}
	if !network.IsValid() || network.Addr().Is4In6() {
		return wrong("has no network", "name one by an address and a prefix length, for example 192.168.100.1/24")
	}
	if !gateway.IsValid() && network.Addr() != network.Masked().Addr() {
		gateway = network.Addr()
	}
	network = network.Masked()
	if gateway.IsValid() && !network.Contains(gateway) {
		return wrong(fmt.Sprintf("has the gateway %s, which is outside of the network", gateway), "name a gateway within the network")
	}
	var builder netipx.IPSetBuilder
	for i, r := range ranges {
		switch {
		case !r.From().IsValid() || !r.To().IsValid() || r.From().BitLen() != r.To().BitLen():
			return wrong(fmt.Sprintf("has a range (number %d) without two addresses of one family", i+1), "write ranges as first-last")
		case r.To().Less(r.From()):
			return wrong(fmt.Sprintf("has the range %s-%s, which ends before it starts", r.From(), r.To()),
				fmt.Sprintf("write it as %s-%s", r.To(), r.From()))
		case !network.Contains(r.From()) || !network.Contains(r.To()):
			return wrong(fmt.Sprintf("has the range %s, which is outside of the network", r), "choose addresses within "+network.String())
		}
		for _, other := range ranges[:i] {
			if r.Overlaps(other) {
				return wrong(fmt.Sprintf("has the ranges %s and %s, which overlap", other, r), "write every address once")
			}
		}
		builder.AddRange(r)
	}
	if len(ranges) == 0 {
		builder.AddPrefix(network)
	}
	for _, reserved := range reservedIn(network, gateway) {
		builder.Remove(reserved)
	}
	set, err := builder.IPSet()
	if err != nil {
		return wrong("is not a set of addresses ("+err.Error()+")", "correct the network and the ranges")
	}
	if len(set.Ranges()) == 0 {
		return wrong("holds no address for a server: the network, broadcast and gateway addresses are not for servers", "choose a larger one")
	}
	return Pool{network: network, gateway: gateway, ranges: ranges, set: set, text: text}, nil
}

// reservedIn returns the addresses of the network that no server can have.
func reservedIn(network netip.Prefix, gateway netip.Addr) []netip.Addr {
	var reserved []netip.Addr
	if gateway.IsValid() {
		reserved = append(reserved, gateway)
	}
	if network.Addr().BitLen()-network.Bits() < 2 {
		return reserved
	}
	reserved = append(reserved, network.Addr())
	if network.Addr().Is4() {
		reserved = append(reserved, netipx.PrefixLastIP(network))
	}
	return reserved
}

// maxDescribed is how many ranges the name of a pool lists, to keep it readable.
const maxDescribed = 16

// describe names a pool for people. Equal networks and ranges give equal names.
func describe(network netip.Prefix, ranges []netipx.IPRange) string {
	text := network.Masked().String()
	if len(ranges) == 0 {
		return text
	}
	parts := make([]string, 0, len(ranges))
	for i, r := range ranges {
		if i == maxDescribed {
			parts = append(parts, fmt.Sprintf("and %d more", len(ranges)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s-%s", r.From(), r.To()))
	}
	return text + " (" + strings.Join(parts, ",") + ")"
}

// spec is a pool as the objects for its taken addresses store it.
type spec struct {
	Network netip.Prefix     `json:"network"`
	Ranges  []netipx.IPRange `json:"ranges,omitempty"`
}

// poolOf returns the pool that an address was taken from, in its network, or an empty pool if that cannot be read.
func poolOf(object *v1alpha1.IPAddress) Pool {
	var parsed spec
	if err := json.Unmarshal([]byte(object.Annotations[v1alpha1.AddressPoolAnnotationKey]), &parsed); err != nil {
		return Pool{}
	}
	pool, err := NewPool(parsed.Network, netip.Addr{}, parsed.Ranges...)
	if err != nil {
		return Pool{}
	}
	return pool.In(object.Spec.Network)
}

// spec encodes the pool for the annotation.
func (p Pool) spec() string {
	text, _ := json.Marshal(spec{Network: p.network, Ranges: p.ranges}) // never fails: both can be written as text
	return string(text)
}

// In returns the pool for use in a network that its servers are moved into: vlan:100, vni:5000 or id:blue. Each network
// has its own copy of an address. Empty stands for the network of all servers that are not moved.
func (p Pool) In(network string) Pool {
	p.tenantNetwork = network
	return p
}

// Network returns the network that the pool is used in.
func (p Pool) Network() string { return p.tenantNetwork }

// Title returns the names of the pool and its network.
func (p Pool) Title() string {
	if p.tenantNetwork == "" {
		return p.text
	}
	return p.text + " in network " + p.tenantNetwork
}

// has reports whether the pool includes an allocated address.
func (p Pool) has(object *v1alpha1.IPAddress) (netip.Addr, bool) {
	if object.Spec.Network != p.tenantNetwork {
		return netip.Addr{}, false
	}
	address, err := netip.ParseAddr(object.Spec.Address)
	return address, err == nil && p.Contains(address)
}

// Is reports whether two pools are the same, in the same network.
func (p Pool) Is(other Pool) bool {
	return p.tenantNetwork == other.tenantNetwork && p.text == other.text
}

// String returns the network and the ranges.
func (p Pool) String() string { return p.text }

// Contains reports whether a server can have the address.
func (p Pool) Contains(address netip.Addr) bool { return p.set != nil && p.set.Contains(address) }

// Example stands in for the allocation that a server gets once it is claimed. It has the same family and gateway.
func (p Pool) Example() Allocation {
	return Allocation{Address: netip.PrefixFrom(p.set.Ranges()[0].From(), p.network.Bits()), Gateway: p.gateway}
}

// Size returns the number of addresses that servers can have, at most the largest uint64.
func (p Pool) Size() uint64 {
	size := p.size()
	if !size.IsUint64() {
		return ^uint64(0)
	}
	return size.Uint64()
}

func (p Pool) size() *big.Int {
	total := new(big.Int)
	if p.set == nil {
		return total
	}
	for _, r := range p.set.Ranges() {
		total.Add(total, length(r))
	}
	return total
}

// Overlap returns the addresses that two pools have in common, as sorted ranges. Pools in different networks have none.
func (p Pool) Overlap(other Pool) []netipx.IPRange {
	if p.set == nil || other.set == nil || p.tenantNetwork != other.tenantNetwork {
		return nil
	}
	var builder netipx.IPSetBuilder
	builder.AddSet(p.set)
	builder.Intersect(other.set)
	common, err := builder.IPSet()
	if err != nil { // both are sets already
		return nil
	}
	return common.Ranges()
}

// start returns the address at which the search for the owner's address begins. Owners begin at different places, so
// that concurrent workers rarely try the same address, and a released address is rarely given out again at once, while
// its last owner may still be remembered by its neighbours.
func (p Pool) start(owner string) netip.Addr {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(owner)) // never fails
	offset := new(big.Int).SetUint64(hash.Sum64())
	offset.Mod(offset, p.size())
	for _, r := range p.set.Ranges() {
		if n := length(r); offset.Cmp(n) >= 0 {
			offset.Sub(offset, n)
			continue
		}
		return add(r.From(), offset)
	}
	return netip.Addr{}
}

// next returns the first address of a set at or after start, and wraps around at the end. The set must not be empty.
func next(set *netipx.IPSet, start netip.Addr) netip.Addr {
	ranges := set.Ranges()
	for _, r := range ranges {
		switch {
		case r.Contains(start):
			return start
		case start.Less(r.From()):
			return r.From()
		}
	}
	return ranges[0].From()
}

func length(r netipx.IPRange) *big.Int {
	n := new(big.Int).Sub(number(r.To()), number(r.From()))
	return n.Add(n, big.NewInt(1))
}

func number(address netip.Addr) *big.Int { return new(big.Int).SetBytes(address.AsSlice()) }

// add returns the address plus the offset. The result must be an address of the same family.
func add(address netip.Addr, offset *big.Int) netip.Addr {
	bytes := make([]byte, address.BitLen()/8)
	sum, _ := netip.AddrFromSlice(new(big.Int).Add(number(address), offset).FillBytes(bytes))
	return sum
}
