// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
)

const exampleMAC = "00:00:5e:00:53:01"

// netplanOf asks cloud-init what a server makes of the network data, and returns its only interface.
func netplanOf(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var netplan struct {
		Network struct {
			Ethernets map[string]map[string]any `json:"ethernets"`
		} `json:"network"`
	}
	text := converted(t, data, "eth0,"+exampleMAC)
	if err := yaml.Unmarshal([]byte(text), &netplan); err != nil || len(netplan.Network.Ethernets) != 1 {
		t.Fatalf("not one interface (%v):\n%s", err, text)
	}
	for _, ethernet := range netplan.Network.Ethernets {
		// cloud-init adds these by itself.
		delete(ethernet, "accept-ra")
		if servers, ok := ethernet["nameservers"].(map[string]any); ok {
			delete(servers, "search")
		}
		return ethernet
	}
	return nil
}

// addressOf returns an address in its network, with a gateway; either may be empty.
func addressOf(address, gateway string, servers ...string) (result plan.Address) {
	if address != "" {
		result.Address = netip.MustParsePrefix(address)
	}
	if gateway != "" {
		result.Gateway = netip.MustParseAddr(gateway)
	}
	for _, server := range servers {
		result.DNS = append(result.DNS, netip.MustParseAddr(server))
	}
	return result
}

func TestNetworkData(t *testing.T) {
	match := map[string]any{"macaddress": exampleMAC}
	cases := map[string]struct {
		reason  string
		address plan.Address
		mac     string
		want    map[string]any
	}{
		"ipv4": {
			"what cloud-init makes of it is what was meant",
			addressOf("192.0.2.10/23", "192.0.2.1", "10.0.0.53", "10.0.1.53"), strings.ToUpper(exampleMAC),
			map[string]any{"addresses": []any{"192.0.2.10/23"}, "nameservers": map[string]any{"addresses": []any{"10.0.0.53", "10.0.1.53"}},
				"routes": []any{map[string]any{"to": "0.0.0.0/0", "via": "192.0.2.1"}}, "match": match, "set-name": "eth0"},
		},
		"ipv6": {
			"the other family",
			addressOf("2001:db8::10/64", "2001:db8::1", "2001:db8::53"), exampleMAC,
			map[string]any{"addresses": []any{"2001:db8::10/64"}, "nameservers": map[string]any{"addresses": []any{"2001:db8::53"}},
				"routes": []any{map[string]any{"to": "::/0", "via": "2001:db8::1"}}, "match": match, "set-name": "eth0"},
		},
		"alone": {
			"no way out and no names",
			addressOf("192.0.2.10/24", ""), exampleMAC,
			map[string]any{"addresses": []any{"192.0.2.10/24"}, "match": match, "set-name": "eth0"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			data, err := NetworkData(&tc.address, tc.mac)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "network-"+name+".json", data)
			if diff := cmp.Diff(tc.want, netplanOf(t, data)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if _, err := ReadNetworkData(data, nil); err != nil {
				t.Errorf("our own network data is refused: %v", err)
			}
		})
	}
}

func TestNetworkDataRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		address   plan.Address
		mac, want string
	}{
		"NoAddress": {addressOf("", "192.0.2.1"), exampleMAC, "no address"},
		"NoMAC":     {addressOf("192.0.2.10/24", "192.0.2.1"), "", "set spec.bootMACAddress of its BareMetalHost"},
		"LongMAC":   {addressOf("192.0.2.10/24", ""), "00:00:5e:00:53:01:00:01", "is not the MAC address"},
		"Families":  {addressOf("192.0.2.10/24", "::1"), exampleMAC, "not of one family"},
	} {
		if _, err := NetworkData(&tc.address, tc.mac); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v does not say %q", name, err, tc.want)
		}
	}
}

// TestDHCPOfIPv6: DHCPv6 gives no routes. A server that forwards takes them from router advertisements only where it is told to.
func TestDHCPOfIPv6(t *testing.T) {
	data, err := ReadNetworkData([]byte("version: 2\nethernets: {eth0: {dhcp6: true}}\n"), exampleHost())
	if err != nil {
		t.Fatal(err)
	}
	text := converted(t, data, "eth0,"+exampleMAC)
	if !strings.Contains(text, "dhcp6: true") || !strings.Contains(text, "accept-ra: true") {
		t.Errorf("the server has no route:\n%s", text)
	}
}

func TestReadNetworkData(t *testing.T) {
	const openStack = "links:\n- {id: a, type: phy, ethernet_mac_address: '" + exampleMAC +
		"', x: kept}\nnetworks:\n- {id: net, link: a, type: ipv4_dhcp}\n"
	cases := map[string]struct {
		reason, document, want string
	}{
		"OpenStack": {"passed on as it is", openStack, ""},
		"JSON": {"JSON is YAML", `{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "` + exampleMAC +
			`"}], "networks": [{"id": "n", "link": "a", "type": "ipv4", "ip_address": "192.0.2.7", "netmask": "255.255.255.0"}]}`, ""},
		"Version2": {"written as in the reference", "version: 2\nethernets:\n  eth0:\n    addresses: [192.0.2.10/24, '2001:db8::1/64']\n    " +
			"gateway4: 192.0.2.1\n    routes: [{to: default, via: '2001:db8::2'}, {to: 10.0.0.0/8, via: 192.0.2.2}]\n    mtu: 9000\n", ""},
		"Netplan": {"with the key of netplan's files", "network:\n  version: 2\n  ethernets: {any: {match: {macaddress: '" + exampleMAC +
			"'}, dhcp4: true}}\n", ""},
		"Boot": {"one interface of any name is the one that the server boots from",
			"version: 2\nethernets: {lan: {dhcp4: true, dhcp6: true}}\n", ""},
		"Empty":   {"nothing", "", "is not network data"},
		"Text":    {"not a mapping", "hello", "is not network data"},
		"BadYAML": {"not YAML", "a: [\n", "is neither YAML nor JSON"},
		"NoLinks": {"cloud-init would configure nothing", "networks: []\n", "has no \"links\""},
		"OtherLink": {"a typing error", strings.Replace(openStack, "link: a", "link: b", 1),
			`networks[0] on the link "b", and no link of that id`},
		"TwoLinks":  {"cloud-init would take one of them", "links: [{id: a, type: phy}, {id: a, type: phy}]\n", `two links with the id "a"`},
		"Address":   {"not an address", strings.Replace(openStack, "type: ipv4_dhcp", "ip_address: 1.2.3", 1), "which is not an address"},
		"Service":   {"not an address", openStack + "services: [{type: dns, address: a}]\n", "which is not an address"},
		"WrongType": {"names the field", "links: 3\n", `field "links"`},
		"Version1":  {"the older one", "version: 1\nconfig: []\n", "of another version than 2"},
		"NoNIC":     {"which of them", "version: 2\nethernets: {a: {}, b: {}}\n", "say which it is with match.macaddress"},
		"BadRoute":  {"not an address", "version: 2\nethernets: {a: {gateway4: x}}\n", "which is not an address"},
		"RouteFamily": {"nowhere to go from", "version: 2\nethernets: {a: {gateway4: 192.0.2.1, addresses: ['2001:db8::1/64']}}\n",
			"no address of that family"},
		"NoPrefix": {"half an address", "version: 2\nethernets: {a: {addresses: [192.0.2.1]}}\n", "not an address with a prefix length"},
		"Large":    {"Metal3 could not store it", "a: " + strings.Repeat("a", MaxDocumentBytes), "Metal3 takes at most"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			data, err := ReadNetworkData([]byte(tc.document), exampleHost())
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: error %v does not say %q", tc.reason, err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if got := netplanOf(t, data); name == "Version2" {
				want := map[string]any{"addresses": []any{"192.0.2.10/24", "2001:db8::1/64"}, "mtu": 9000.0, "set-name": "eth0",
					"match": map[string]any{"macaddress": exampleMAC},
					"routes": []any{map[string]any{"to": "0.0.0.0/0", "via": "192.0.2.1"}, map[string]any{"to": "10.0.0.0/8", "via": "192.0.2.2"},
						map[string]any{"to": "::/0", "via": "2001:db8::2"}}}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
				}
			}
			if name == "OpenStack" && !strings.Contains(string(data), "kept") {
				t.Errorf("%s: %s", tc.reason, data)
			}
		})
	}
}
