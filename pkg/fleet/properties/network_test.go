// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

var compareNetworks = cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netipx.IPRange) bool { return a == b }), cmpopts.EquateEmpty()}

// networkSet returns a set with those of the three values that are not empty.
func networkSet(cidr, ranges, dns string) Set {
	values := map[string]string{}
	for key, value := range map[string]string{v1alpha1.PropertyNetworkCIDR: cidr, v1alpha1.PropertyNetworkIPRange: ranges,
		v1alpha1.PropertyDNSServers: dns} {
		if value != "" {
			values[key] = value
		}
	}
	return Merge(Layer{Source: "NodeType h100", Values: values})
}

func TestNetwork(t *testing.T) {
	address, prefix, span := netip.MustParseAddr, netip.MustParsePrefix, netipx.MustParseIPRange
	cases := map[string]struct {
		reason            string
		cidr, ranges, dns string
		want              Network
		unset             bool
		problem           string
	}{
		"None":    {reason: "without a network, another DHCP server is used", unset: true},
		"OnlyDNS": {reason: "name servers of the provider do not make a network", dns: "10.0.0.53", unset: true},
		"CIDR": {reason: "the host part is the gateway", cidr: "192.168.100.1/24",
			want: Network{CIDR: prefix("192.168.100.0/24"), Gateway: address("192.168.100.1")}},
		"IPv6": {reason: "the other family", cidr: "2001:db8::1/64",
			want: Network{CIDR: prefix("2001:db8::/64"), Gateway: address("2001:db8::1")}},
		"IPv6All": {reason: "names of one address are the same however they are written", cidr: "2001:DB8:0::1/64",
			ranges: "2001:db8::10-2001:db8::1f,2001:db8:0:0:0:0:0:30", dns: "2001:db8::53,10.0.0.53",
			want: Network{CIDR: prefix("2001:db8::/64"), Gateway: address("2001:db8::1"),
				Ranges: []netipx.IPRange{span("2001:db8::10-2001:db8::1f"), span("2001:db8::30-2001:db8::30")},
				DNS:    []netip.Addr{address("2001:db8::53"), address("10.0.0.53")}}},
		"IPv6LastGateway": {reason: "IPv6 has no broadcast", cidr: "2001:db8::ff/120",
			want: Network{CIDR: prefix("2001:db8::/120"), Gateway: address("2001:db8::ff")}},
		"IPv6NoGateway": {reason: "the usual way to write a network", cidr: "2001:db8::/64",
			problem: "set it to the address of the gateway and the prefix length, for example 2001:db8::1/64"},
		"IPv6TooSmall": {reason: "it has no address for a server", cidr: "2001:db8::1/127",
			problem: "has the prefix length 127, which leaves no network with servers in it: choose a prefix length between 1 and 126"},
		"IPv6Outside": {reason: "an address of another network", cidr: "2001:db8::1/64", ranges: "2001:db8:0:1::10-2001:db8:0:1::20",
			problem: "holds 2001:db8:0:1::10, which is outside karpenter.metal3.io/network-cidr 2001:db8::/64"},
		"IPv6FamilyOfRange": {reason: "the other family is outside too", cidr: "2001:db8::1/64", ranges: "10.0.0.2-10.0.0.9",
			problem: "holds 10.0.0.2, which is outside"},
		"DualStack": {reason: "a server gets one address", cidr: "10.0.0.1/24,2001:db8::1/64",
			problem: "names several networks, and a server gets one address: name one of them, and give the address of the other family by a " +
				"network data template"},
		"Smallest": {reason: "one gateway and one server", cidr: "10.0.0.2/30",
			want: Network{CIDR: prefix("10.0.0.0/30"), Gateway: address("10.0.0.2")}},
		"All": {reason: "blanks do not matter", cidr: "10.0.0.1/16", ranges: "10.0.0.10-10.0.0.20, 10.0.1.0 - 10.0.1.5,10.0.2.2",
			dns: "10.0.0.53 ,1.1.1.1,10.0.0.53",
			want: Network{CIDR: prefix("10.0.0.0/16"), Gateway: address("10.0.0.1"),
				Ranges: []netipx.IPRange{span("10.0.0.10-10.0.0.20"), span("10.0.1.0-10.0.1.5"), span("10.0.2.2-10.0.2.2")},
				DNS:    []netip.Addr{address("10.0.0.53"), address("1.1.1.1")}}},
		"NotCIDR": {reason: "an address alone", cidr: "10.0.0.1",
			problem: `property karpenter.metal3.io/network-cidr of NodeType h100 ("10.0.0.1") is not an address and a prefix length: set it to ` +
				`the ` +
				`gateway and the prefix length of the network, for example 192.168.100.1/24`},
		"PrefixTooLong": {reason: "33 bits", cidr: "10.0.0.1/33", problem: "is not an address and a prefix length"},
		"Text":          {reason: "not an address", cidr: "lan", problem: "is not an address and a prefix length"},
		"Mapped":        {reason: "which family would it be", cidr: "::ffff:10.0.0.1/120", problem: "is not an address and a prefix length"},
		"NoGateway": {reason: "the usual way to write a network, but the host part is missing", cidr: "10.0.0.0/24",
			problem: `names the network and no gateway: its host part, which is the gateway, is zero: set it to the address of the gateway and ` +
				`the ` +
				`prefix length, for example 10.0.0.1/24`},
		"Broadcast": {reason: "it is not an address of a server", cidr: "10.0.0.255/24",
			problem: "has the broadcast address of the network for its gateway"},
		"TooSmall": {reason: "it has no address for a server", cidr: "10.0.0.1/31",
			problem: "has the prefix length 31, which leaves no network with servers in it: choose a prefix length between 1 and 30"},
		"Everything": {reason: "not a network", cidr: "10.0.0.1/0", problem: "has the prefix length 0"},
		"NoCIDR": {reason: "prefix length and gateway are not known", ranges: "10.0.0.1-10.0.0.2",
			problem: "is set without karpenter.metal3.io/network-cidr, and a server that does not know the prefix length and the gateway " +
				"cannot be reached: set karpenter.metal3.io/network-cidr to the gateway and the prefix length of the network"},
		"Backwards": {reason: "a range that ends before it starts", cidr: "10.0.0.1/24", ranges: "10.0.0.20-10.0.0.10",
			problem: `property karpenter.metal3.io/network-ip-range of NodeType h100 ("10.0.0.20-10.0.0.10") holds the range ` +
				`"10.0.0.20-10.0.0.10", which ends before it starts: write it as 10.0.0.10-10.0.0.20`},
		"Outside": {reason: "an address outside its CIDR", cidr: "10.0.0.1/24", ranges: "10.0.0.20-10.0.1.10",
			problem: "holds 10.0.1.10, which is outside karpenter.metal3.io/network-cidr 10.0.0.0/24: choose addresses of that network, or " +
				"correct " +
				"the network"},
		"OutsideFirst": {reason: "the first one", cidr: "10.0.0.1/24", ranges: "10.0.1.20-10.0.0.10",
			problem: "holds 10.0.1.20, which is outside"},
		"Families": {reason: "the other family is outside too", cidr: "10.0.0.1/24", ranges: "::1-::2",
			problem: "holds ::1, which is outside"},
		"NotRange": {reason: "a typing error", cidr: "10.0.0.1/24", ranges: "10.0.0.1-10.0.0",
			problem: `holds "10.0.0.1-10.0.0", which is not a range of addresses`},
		"TrailingComma": {reason: "something is missing", cidr: "10.0.0.1/24", ranges: "10.0.0.3-10.0.0.4,",
			problem: `holds "", which is not a range`},
		"Overlap": {reason: "two servers would get one address", cidr: "10.0.0.1/24", ranges: "10.0.0.3-10.0.0.9,10.0.0.9-10.0.0.12",
			problem: "holds the ranges 10.0.0.3-10.0.0.9 and 10.0.0.9-10.0.0.12, which overlap"},
		"Zone": {reason: "a zone means something on one machine only", cidr: "fe80::1/64", ranges: "fe80::2%eth0-fe80::3",
			problem: "is not a range of addresses"},
		"DNSName": {reason: "a name server by name", cidr: "10.0.0.1/24", dns: "10.0.0.53,dns.example.com",
			problem: `holds "dns.example.com", which is not the address of a server`},
		"DNSNowhere": {reason: "no server has it", dns: "0.0.0.0", problem: "which is not the address of a server"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, set, err := networkSet(tc.cidr, tc.ranges, tc.dns).Network()
			if tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) {
					t.Errorf("%s: error %v does not say %q", tc.reason, err, tc.problem)
				}
				return
			}
			if err != nil || set == tc.unset {
				t.Errorf("%s: set %v, error %v", tc.reason, set, err)
			}
			if diff := cmp.Diff(tc.want, got, compareNetworks); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRangesOfALayer: a NodeType can narrow the network of its provider down. It has only the ranges.
func TestRangesOfALayer(t *testing.T) {
	provider := Layer{Source: "NodeProvider p", Values: map[string]string{v1alpha1.PropertyNetworkCIDR: "10.0.0.1/24"}}
	for name, tc := range map[string]struct{ reason, ranges, alone, merged string }{
		"Good":     {"the provider has the network", "10.0.0.10-10.0.0.20", "", ""},
		"Outside":  {"only the network can tell", "10.0.1.10-10.0.1.20", "", "which is outside"},
		"NotRange": {"no network makes it one", "10.0.0.10-x", "is not a range", "is not a range"},
		"Families": {"no network makes it one", "10.0.0.10-::1", "is not a range", "is not a range"},
		"Overlap":  {"no network makes it right", "10.0.0.10-10.0.0.20,10.0.0.20", "which overlap", "which overlap"},
	} {
		ranges := Layer{Source: "NodeType t", Values: map[string]string{v1alpha1.PropertyNetworkIPRange: tc.ranges}}
		for want, set := range map[string]Set{tc.alone: Merge(ranges), tc.merged: Merge(provider, ranges)} {
			var got string
			for _, err := range set.Validate() {
				got += err.Error()
			}
			if (got != "") != (want != "") || !strings.Contains(got, want) {
				t.Errorf("%s: %s: error %q, want %q", name, tc.reason, got, want)
			}
		}
	}
}

func TestNTPServers(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, value string
		want          []string
		problem       string
	}{
		"None": {"nothing is set", "", nil, ""},
		"All": {"each once, blanks do not matter", "10.0.0.123, ntp.example.com,2001:db8::123,10.0.0.123",
			[]string{"10.0.0.123", "ntp.example.com", "2001:db8::123"}, ""},
		"Host": {"a name of the own domain", "ntp", []string{"ntp"}, ""},
		"Case": {"names are the same in both", "NTP.example.com", []string{"NTP.example.com"}, ""},
		"Half": {"a typing error in an address", "10.0.0", nil, `holds "10.0.0", which is neither the address nor the host name ` +
			`of a server: write addresses or host names, separated by commas, for example 10.0.0.123,ntp.example.com`},
		"TooLarge": {"a typing error in an address", "10.0.0.300", nil, `holds "10.0.0.300"`},
		"Empty":    {"something is missing", "10.0.0.123,", nil, `holds ""`},
		"Nowhere":  {"no server has it", "0.0.0.0", nil, `holds "0.0.0.0"`},
		"Options":  {"they would be read by the time server's configuration", "10.0.0.123 iburst", nil, `holds "10.0.0.123 iburst"`},
	} {
		set := Merge(Layer{Source: "NodeType h100", Values: map[string]string{v1alpha1.PropertyNTPServers: tc.value}})
		got, err := set.NTPServers()
		if tc.problem != "" {
			if err == nil || !strings.Contains(err.Error(), tc.problem) || len(set.Validate()) != 1 {
				t.Errorf("%s: %s: error %v does not say %q", name, tc.reason, err, tc.problem)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil || len(set.Validate()) > 0 {
			t.Errorf("%s: %s: error %v (-want +got):\n%s", name, tc.reason, err, diff)
		}
	}
}

// FuzzNetwork looks for values that make it panic, and for networks that break their own rules.
func FuzzNetwork(f *testing.F) {
	f.Add("10.0.0.1/16", "10.0.0.10-10.0.0.20,10.0.1.0-10.0.1.5", "10.0.0.53")
	f.Add("2001:db8::1/64", "2001:db8::2-2001:db8::ff", "::1,")
	f.Fuzz(func(t *testing.T, cidr, ranges, dns string) {
		set := networkSet(cidr, ranges, dns)
		network, found, err := set.Network()
		// A more general object may have the network of ranges.
		alone := set.Get(v1alpha1.PropertyNetworkCIDR) == "" && set.Get(v1alpha1.PropertyNetworkIPRange) != ""
		if (err != nil) != (len(set.Validate()) > 0) && !alone {
			t.Fatalf("Network says %v, Validate says %v", err, set.Validate())
		}
		if err != nil || !found {
			return
		}
		if !network.CIDR.Contains(network.Gateway) || network.CIDR.Masked() != network.CIDR || network.Gateway == network.CIDR.Addr() {
			t.Errorf("gateway %s of %s", network.Gateway, network.CIDR)
		}
		for i, ipRange := range network.Ranges {
			if !ipRange.IsValid() || !network.CIDR.Contains(ipRange.From()) || !network.CIDR.Contains(ipRange.To()) {
				t.Errorf("range %s of %s", ipRange, network.CIDR)
			}
			for _, other := range network.Ranges[:i] {
				if ipRange.Overlaps(other) {
					t.Errorf("%s overlaps %s", ipRange, other)
				}
			}
		}
	})
}
