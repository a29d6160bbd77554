// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Network is the network that servers get their addresses from.
type Network struct {
	// CIDR is the network, with its host part zero.
	CIDR netip.Prefix
	// Gateway is the address of the gateway, in the network.
	Gateway netip.Addr
	// Ranges are the addresses that servers may have, in the order they are written in, all within the network and
	// without overlap; empty for all of it. The gateway and the network's own addresses may be within one and are not
	// for servers.
	Ranges []netipx.IPRange
	// DNS are the name servers; empty if there are none.
	DNS []netip.Addr
}

// exampleCIDR is for the remedies.
const exampleCIDR = "192.168.100.1/24"

// Network returns the network, and whether one is set at all: without it, servers get their addresses from another DHCP
// server. The error is an *Error.
func (s Set) Network() (Network, bool, error) {
	dns, err := s.nameServers()
	if err != nil {
		return Network{}, false, err
	}
	if s.Get(v1alpha1.PropertyNetworkCIDR) == "" {
		if s.Get(v1alpha1.PropertyNetworkIPRange) != "" {
			return Network{}, false, s.wrong(v1alpha1.PropertyNetworkIPRange, "is set without "+v1alpha1.PropertyNetworkCIDR,
				"set "+v1alpha1.PropertyNetworkCIDR+" to the gateway and the prefix length of the network, for example "+exampleCIDR)
		}
		return Network{}, false, nil
	}
	cidr, err := s.cidr()
	if err != nil {
		return Network{}, false, err
	}
	network := Network{CIDR: cidr.Masked(), Gateway: cidr.Addr(), DNS: dns}
	if network.Ranges, err = s.ranges(network); err != nil {
		return Network{}, false, err
	}
	return network, true, nil
}

// cidr returns the gateway and its prefix length.
func (s Set) cidr() (netip.Prefix, error) {
	const key = v1alpha1.PropertyNetworkCIDR
	prefix, err := netip.ParsePrefix(s.Get(key))
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{},
			s.wrong(key, "is not an address and a prefix length", "set it to the gateway and the prefix length of the network, for example "+
				exampleCIDR)
	}
	if hostBits := prefix.Addr().BitLen() - prefix.Bits(); hostBits < 2 || prefix.Bits() == 0 {
		return netip.Prefix{}, s.wrong(key, fmt.Sprintf("has the prefix length %d, which leaves no network with servers in it", prefix.Bits()),
			fmt.Sprintf("choose a prefix length between 1 and %d", prefix.Addr().BitLen()-2))
	}
	switch prefix.Addr() {
	case prefix.Masked().Addr():
		return netip.Prefix{}, s.wrong(key, "names the network and no gateway: its host part, which is the gateway, is zero",
			fmt.Sprintf("set it to the address of the gateway and the prefix length, for example %s/%d", prefix.Addr().Next(), prefix.Bits()))
	case netipx.PrefixLastIP(prefix):
		if prefix.Addr().Is4() {
			return netip.Prefix{},
				s.wrong(key, "has the broadcast address of the network for its gateway", "set it to the address of the gateway and the prefix length")
		}
	}
	return prefix, nil
}

// ranges returns the ranges of addresses.
func (s Set) ranges(network Network) ([]netipx.IPRange, error) {
	const key = v1alpha1.PropertyNetworkIPRange
	if err := s.tooMany(key, "ranges"); err != nil {
		return nil, err
	}
	var ranges []netipx.IPRange
	for _, part := range s.list(key) {
		first, last, found := strings.Cut(part, "-")
		if !found {
			last = first
		}
		from, to := parseAddress(first), parseAddress(last)
		switch {
		case !from.IsValid() || !to.IsValid():
			return nil, s.wrong(key, fmt.Sprintf("holds %q, which is not a range of addresses", part),
				"write ranges as first-last, separated by commas, for example 192.168.100.10-192.168.100.50,192.168.100.60-192.168.100.70")
		case !network.CIDR.Contains(from) || !network.CIDR.Contains(to):
			outside := from
			if network.CIDR.Contains(from) {
				outside = to
			}
			return nil, s.wrong(key, fmt.Sprintf("holds %s, which is outside %s %s", outside, v1alpha1.PropertyNetworkCIDR, network.CIDR),
				"choose addresses of that network, or correct the network")
		case to.Less(from):
			return nil, s.wrong(key, fmt.Sprintf("holds the range %q, which ends before it starts", part),
				fmt.Sprintf("write it as %s-%s", to, from))
		}
		next := netipx.IPRangeFrom(from, to)
		if i := slices.IndexFunc(ranges, next.Overlaps); i >= 0 {
			return nil, s.wrong(key, fmt.Sprintf("holds the ranges %s and %s, which overlap", ranges[i], next), "write every address once")
		}
		ranges = append(ranges, next)
	}
	return ranges, nil
}

func (s Set) nameServers() ([]netip.Addr, error) {
	const key = v1alpha1.PropertyDNSServers
	if err := s.tooMany(key, "name servers"); err != nil {
		return nil, err
	}
	var servers []netip.Addr
	for _, part := range s.list(key) {
		server := parseAddress(part)
		if !server.IsValid() || server.IsUnspecified() || server.IsMulticast() {
			return nil, s.wrong(key, fmt.Sprintf("holds %q, which is not the address of a server", part),
				"write addresses, separated by commas, for example 10.0.0.53,10.0.1.53")
		}
		if !slices.Contains(servers, server) {
			servers = append(servers, server)
		}
	}
	return servers, nil
}

// parseAddress returns an address, or the zero Addr. It takes neither zones, which mean something on one machine
// only, nor IPv4 addresses in the form of IPv6.
func parseAddress(text string) netip.Addr {
	address, err := netip.ParseAddr(strings.TrimSpace(text))
	if err != nil || address.Zone() != "" || address.Is4In6() {
		return netip.Addr{}
	}
	return address
}
