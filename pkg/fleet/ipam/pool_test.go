// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
)

// span makes a range, also of what is none.
func span(t testing.TB, text string) netipx.IPRange {
	t.Helper()
	from, to, _ := strings.Cut(text, "-")
	return netipx.IPRangeFrom(netip.MustParseAddr(from), netip.MustParseAddr(to))
}

func spans(t testing.TB, text string) []netipx.IPRange {
	t.Helper()
	var ranges []netipx.IPRange
	for part := range strings.SplitSeq(text, ",") {
		if part != "" {
			ranges = append(ranges, span(t, part))
		}
	}
	return ranges
}

func parse(t testing.TB, network, gateway, ranges string) (Pool, error) {
	t.Helper()
	var address netip.Addr
	if gateway != "" {
		address = netip.MustParseAddr(gateway)
	}
	var prefix netip.Prefix
	if network != "" {
		prefix = netip.MustParsePrefix(network)
	}
	return NewPool(prefix, address, spans(t, ranges)...)
}

func mustParse(t testing.TB, network, ranges string) Pool {
	t.Helper()
	pool, err := parse(t, network, "", ranges)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func TestNewPool(t *testing.T) {
	type want struct {
		Addresses, Gateway string
		Size               uint64
		Error              string
	}
	for name, tc := range map[string]struct {
		reason                   string
		network, gateway, ranges string
		want                     want
	}{
		"IPv4": {
			reason: "network, broadcast and gateway addresses are not for servers", network: "192.168.100.1/24",
			want: want{Addresses: "192.168.100.2-192.168.100.254", Gateway: "192.168.100.1", Size: 253},
		},
		"GatewayInTheMiddle": {
			reason: "the gateway may be anywhere", network: "192.168.100.100/24",
			want: want{Addresses: "192.168.100.1-192.168.100.99,192.168.100.101-192.168.100.254", Gateway: "192.168.100.100", Size: 253},
		},
		"GatewayBeside": {
			reason: "a network that has been masked comes with its gateway", network: "10.0.0.0/29", gateway: "10.0.0.6",
			want: want{Addresses: "10.0.0.1-10.0.0.5", Gateway: "10.0.0.6", Size: 5},
		},
		"NoGateway": {
			reason: "a network need not lead anywhere", network: "10.0.0.0/30",
			want: want{Addresses: "10.0.0.1-10.0.0.2", Size: 2},
		},
		"Slash31": {
			reason: "RFC 3021: both ends of a link are for hosts", network: "10.0.0.1/31",
			want: want{Addresses: "10.0.0.0-10.0.0.0", Gateway: "10.0.0.1", Size: 1},
		},
		"Slash31NoGateway": {
			reason: "RFC 3021", network: "10.0.0.0/31", want: want{Addresses: "10.0.0.0-10.0.0.1", Size: 2},
		},
		"Slash32": {
			reason: "one address is a pool of one", network: "10.0.0.5/32", want: want{Addresses: "10.0.0.5-10.0.0.5", Size: 1},
		},
		"Slash32Gateway": {
			reason: "the one address is taken", network: "10.0.0.5/32", gateway: "10.0.0.5",
			want: want{Error: "address pool 10.0.0.5/32 holds no address for a server: the network, broadcast and gateway addresses are not for " +
				"servers: choose a larger one"},
		},
		"IPv6": {
			reason: "the first address belongs to the routers (RFC 4291), and there is no broadcast", network: "2001:db8::1/120",
			want: want{Addresses: "2001:db8::2-2001:db8::ff", Gateway: "2001:db8::1", Size: 254},
		},
		"IPv6Large": {
			reason: "more addresses than a number holds", network: "2001:db8::1/48",
			want: want{Addresses: "2001:db8::2-2001:db8:0:ffff:ffff:ffff:ffff:ffff", Gateway: "2001:db8::1", Size: ^uint64(0)},
		},
		"IPv6Slash127": {
			reason: "RFC 6164", network: "2001:db8::/127", want: want{Addresses: "2001:db8::-2001:db8::1", Size: 2},
		},
		"IPv6Slash128": {
			reason: "one address", network: "2001:db8::7/128", want: want{Addresses: "2001:db8::7-2001:db8::7", Size: 1},
		},
		"Ranges": {
			reason: "only what is named", network: "10.0.0.1/24", ranges: "10.0.0.10-10.0.0.12,10.0.0.20-10.0.0.20",
			want: want{Addresses: "10.0.0.10-10.0.0.12,10.0.0.20-10.0.0.20", Gateway: "10.0.0.1", Size: 4},
		},
		"GatewayInRange": {
			reason: "a server with the address of the gateway would take the network down", network: "10.0.0.11/24", ranges: "10.0.0.10-10.0.0.12",
			want: want{Addresses: "10.0.0.10-10.0.0.10,10.0.0.12-10.0.0.12", Gateway: "10.0.0.11", Size: 2},
		},
		"WholeNetworkAsRange": {
			reason: "no server can have the network's or the broadcast address", network: "10.0.0.1/29", ranges: "10.0.0.0-10.0.0.7",
			want: want{Addresses: "10.0.0.2-10.0.0.6", Gateway: "10.0.0.1", Size: 5},
		},
		"OnlyGatewayInRange": {
			reason: "nothing is left", network: "10.0.0.1/24", ranges: "10.0.0.1-10.0.0.1",
			want: want{Error: "address pool 10.0.0.0/24 (10.0.0.1-10.0.0.1) holds no address for a server: the network, broadcast and gateway " +
				"addresses are not for servers: choose a larger one"},
		},
		"EndsBeforeItStarts": {
			reason: "says how it was meant", network: "10.0.0.1/24", ranges: "10.0.0.50-10.0.0.10",
			want: want{Error: "address pool 10.0.0.0/24 (10.0.0.50-10.0.0.10) has the range 10.0.0.50-10.0.0.10, which ends before it starts: " +
				"write it as 10.0.0.10-10.0.0.50"},
		},
		"OutsideOfTheNetwork": {
			reason: "its servers would have no route", network: "10.0.0.1/24", ranges: "10.0.1.10-10.0.1.20",
			want: want{Error: "address pool 10.0.0.0/24 (10.0.1.10-10.0.1.20) has the range 10.0.1.10-10.0.1.20, which is outside of the network: " +
				"choose addresses within 10.0.0.0/24"},
		},
		"HalfOutside": {
			reason: "the end counts too", network: "10.0.0.1/24", ranges: "10.0.0.250-10.0.1.20",
			want: want{Error: "address pool 10.0.0.0/24 (10.0.0.250-10.0.1.20) has the range 10.0.0.250-10.0.1.20, which is outside of the " +
				"network: choose addresses within 10.0.0.0/24"},
		},
		"MixedFamilies": {
			reason: "is no range", network: "10.0.0.1/24", ranges: "10.0.0.2-2001:db8::1",
			want: want{Error: "address pool 10.0.0.0/24 (10.0.0.2-2001:db8::1) has a range (number 1) without two addresses of one family: write " +
				"ranges as first-last"},
		},
		"OtherFamily": {
			reason: "is in no network of this one", network: "10.0.0.1/24", ranges: "2001:db8::1-2001:db8::2",
			want: want{Error: "address pool 10.0.0.0/24 (2001:db8::1-2001:db8::2) has the range 2001:db8::1-2001:db8::2, which is outside of the " +
				"network: choose addresses within 10.0.0.0/24"},
		},
		"OverlappingRanges": {
			reason: "one of the two is a typo", network: "10.0.0.1/24", ranges: "10.0.0.10-10.0.0.20,10.0.0.20-10.0.0.30",
			want: want{Error: "address pool 10.0.0.0/24 (10.0.0.10-10.0.0.20,10.0.0.20-10.0.0.30) has the ranges 10.0.0.10-10.0.0.20 and " +
				"10.0.0.20-10.0.0.30, which overlap: write every address once"},
		},
		"GatewayOutside": {
			reason: "it would not be reachable", network: "10.0.0.0/24", gateway: "10.0.1.1",
			want: want{Error: "address pool 10.0.0.0/24 has the gateway 10.0.1.1, which is outside of the network: name a gateway within the " +
				"network"},
		},
		"NoNetwork": {
			reason: "an address alone has no prefix length", ranges: "10.0.0.10-10.0.0.20",
			want: want{Error: "address pool invalid Prefix (10.0.0.10-10.0.0.20) has no network: name one by an address and a prefix length, for " +
				"example 192.168.100.1/24"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool, err := parse(t, tc.network, tc.gateway, tc.ranges)
			got := want{Size: pool.Size()}
			if err != nil {
				got.Error = err.Error()
			}
			if pool.set != nil {
				var parts []string
				for _, r := range pool.set.Ranges() {
					parts = append(parts, r.String())
				}
				got.Addresses = strings.Join(parts, ",")
			}
			if pool.gateway.IsValid() {
				got.Gateway = pool.gateway.String()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestOverlap(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, pool, other string
		want                string
	}{
		"Apart":    {"neighbours share nothing", "10.0.0.1/25", "10.0.0.129/25", ""},
		"Within":   {"a network in a network", "10.0.0.1/24", "10.0.0.65/26", "10.0.0.66-10.0.0.126"},
		"Same":     {"a pool overlaps itself", "10.0.0.1/29", "10.0.0.1/29", "10.0.0.2-10.0.0.6"},
		"Families": {"IPv4 and IPv6 are apart", "10.0.0.1/24", "2001:db8::1/64", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pool, other := mustParse(t, tc.pool, ""), mustParse(t, tc.other, "")
			var parts []string
			for _, r := range pool.Overlap(other) {
				parts = append(parts, r.String())
			}
			if diff := cmp.Diff(tc.want, strings.Join(parts, ",")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if len(pool.Overlap(other)) != len(other.Overlap(pool)) || len(pool.Overlap(Pool{})) != 0 {
				t.Error("overlap is not symmetric, or an empty pool overlaps something")
			}
		})
	}
}

// FuzzPool compares pools with a naive model that looks at every address of a network.
func FuzzPool(f *testing.F) {
	f.Add(uint32(0x0a000001), uint8(24), uint8(10), uint8(5), uint8(100), uint8(20), "owner")
	f.Add(uint32(0x0a0000ff), uint8(31), uint8(0), uint8(0), uint8(0), uint8(0), "")
	f.Add(uint32(0), uint8(32), uint8(0), uint8(1), uint8(0), uint8(1), "x")
	f.Add(uint32(0xffffffff), uint8(28), uint8(0), uint8(15), uint8(200), uint8(3), "y")
	f.Fuzz(func(t *testing.T, seed uint32, bits, from1, length1, from2, length2 uint8, owner string) {
		bits = 22 + bits%11
		network := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(seed >> 24), byte(seed >> 16), byte(seed >> 8), byte(seed)}), int(bits))
		first := network.Masked().Addr().As4()
		address := func(n int) netip.Addr {
			sum := uint32(first[0])<<24 | uint32(first[1])<<16 | uint32(first[2])<<8 | uint32(first[3])
			sum += uint32(n)
			return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
		}
		total := 1 << (32 - bits)
		// No length: no range.
		type interval struct{ from, to int }
		var intervals []interval
		var ranges []netipx.IPRange
		for _, part := range [][2]uint8{{from1, length1}, {from2, length2}} {
			if i := (interval{int(part[0]), int(part[0]) + int(part[1]) - 1}); part[1] > 0 && i.to < total {
				intervals = append(intervals, i)
				ranges = append(ranges, netipx.IPRangeFrom(address(i.from), address(i.to)))
			}
		}
		overlap := len(intervals) == 2 && intervals[0].from <= intervals[1].to && intervals[1].from <= intervals[0].to
		want := map[netip.Addr]bool{}
		for n := range total {
			in := len(intervals) == 0
			for _, i := range intervals {
				in = in || i.from <= n && n <= i.to
			}
			edge := total > 2 && (n == 0 || n == total-1)
			gateway := address(n) == network.Addr() && network.Addr() != network.Masked().Addr()
			if in && !edge && !gateway {
				want[address(n)] = true
			}
		}
		pool, err := NewPool(network, netip.Addr{}, ranges...)
		if fails := overlap || len(want) == 0; fails != (err != nil) {
			t.Fatalf("network %s, ranges %v: error %v, want one: %v", network, ranges, err, fails)
		}
		if err != nil {
			return
		}
		if got := pool.Size(); got != uint64(len(want)) {
			t.Fatalf("%s holds %d addresses, want %d", pool, got, len(want))
		}
		for n := -1; n <= total; n++ {
			if pool.Contains(address(n)) != want[address(n)] {
				t.Fatalf("%s: %s is in the pool: %v", pool, address(n), !want[address(n)])
			}
		}
		// From where an owner starts, every address is found once, and no other.
		builder, start := netipx.IPSetBuilder{}, pool.start(owner)
		builder.AddSet(pool.set)
		for range len(want) {
			set, err := builder.IPSet()
			if err != nil {
				t.Fatal(err)
			}
			address := next(set, start)
			if !want[address] {
				t.Fatalf("%s: %s is not in the pool, or was found twice", pool, address)
			}
			delete(want, address)
			builder.Remove(address)
		}
	})
}
