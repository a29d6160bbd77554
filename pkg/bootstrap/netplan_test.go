// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const exampleMAC2 = "00:00:5e:00:53:02"

// bondedDocument is what a GPU server has: two interfaces in a bond, and VLANs on it.
const bondedDocument = `network:
  version: 2
  ethernets:
    eth0: {set-name: up0}
    uplink2: {match: {name: "*1"}}
  bonds:
    bond0:
      interfaces: [eth0, uplink2]
      mtu: 9000
      addresses: [192.0.2.10/24]
      nameservers: {addresses: [192.0.2.53], search: [gpu.example.com, example.com]}
      routes:
        - {to: default, via: 192.0.2.1, metric: 100}
        - {to: 10.0.0.0/8, via: 192.0.2.2}
      parameters: {mode: 802.3ad, lacp-rate: fast, mii-monitor-interval: 100, transmit-hash-policy: layer3+4}
  vlans:
    bond0.100: {id: 100, link: bond0, mtu: 1500, addresses: ['2001:db8::10/64'], gateway6: '2001:db8::1'}
    bond0.200: {id: 200, link: bond0, dhcp4: true}
`

// TestBonds: Debian's cloud-init writes for a server what the document says, in the form of each system that may be installed.
func TestBonds(t *testing.T) {
	data, err := ReadNetworkData([]byte(bondedDocument), exampleHost())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "network-bonded.json", data)
	macs := []string{"enp1s0," + exampleMAC, "enp2s0," + exampleMAC2}
	var got, want map[string]any
	written := converted(t, data, macs...)
	if err := yaml.Unmarshal([]byte(written), &got); err != nil {
		t.Fatal(err)
	}
	// What is meant, with the addresses of the interfaces and VLANs fixed.
	if err := yaml.Unmarshal([]byte(`network:
  version: 2
  ethernets:
    up0: {match: {macaddress: '`+exampleMAC+`'}, set-name: up0}
    enp2s0: {match: {macaddress: '`+exampleMAC2+`'}, set-name: enp2s0}
  bonds:
    bond0:
      interfaces: [enp2s0, up0]
      mtu: 9000
      addresses: [192.0.2.10/24]
      nameservers: {addresses: [192.0.2.53], search: [gpu.example.com, example.com]}
      routes:
        - {to: 0.0.0.0/0, via: 192.0.2.1, metric: 100}
        - {to: 10.0.0.0/8, via: 192.0.2.2}
      parameters: {mode: 802.3ad, lacp-rate: fast, mii-monitor-interval: 100, transmit-hash-policy: layer3+4}
  vlans:
    bond0.100:
      {id: 100, link: bond0, macaddress: '`+exampleMAC+`', mtu: 1500, addresses: ['2001:db8::10/64'], accept-ra: false,
       routes: [{to: '::/0', via: '2001:db8::1'}], nameservers: {addresses: [192.0.2.53], search: []}}
    bond0.200: {id: 200, link: bond0, macaddress: '`+exampleMAC+`', dhcp4: true}
`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("netplan (-want +got):\n%s\n%s", diff, written)
	}
	for _, tc := range []struct {
		distribution, kind, name string
		lines                    []string
	}{
		{"debian", "eni", "etc/network/interfaces.d/50-cloud-init", []string{"auto up0", "bond-master bond0", "iface bond0 inet static",
			"address 192.0.2.10/24", "bond_mode 802.3ad", "bond_lacp_rate fast", "bond_miimon 100", "bond_xmit_hash_policy layer3+4", "mtu 9000",
			"dns-search gpu.example.com example.com", "dns-nameservers 192.0.2.53", "auto bond0.100", "vlan-raw-device bond0", "vlan_id 100",
			"iface bond0.100 inet6 static", "address 2001:db8::10/64", "iface bond0.200 inet dhcp",
			"post-up route add default gw 192.0.2.1 metric 100 || true", "post-up route add -net 10.0.0.0/8 gw 192.0.2.2 || true"}},
		{"rhel", "sysconfig", "etc/sysconfig/network-scripts/ifcfg-bond0", []string{"DEVICE=bond0", "IPADDR=192.0.2.10", "MTU=9000",
			`BONDING_OPTS="mode=802.3ad xmit_hash_policy=layer3+4 miimon=100 lacp_rate=fast"`, "BONDING_SLAVE0=enp2s0", "BONDING_SLAVE1=up0"}},
		{"rhel", "sysconfig", "etc/sysconfig/network-scripts/ifcfg-bond0.100", []string{"VLAN=yes", "PHYSDEV=bond0",
			"IPV6ADDR=2001:db8::10/64"}},
	} {
		written := convertedTo(t, tc.distribution, tc.kind, tc.name, data, macs...)
		for _, line := range tc.lines {
			if !slices.Contains(strings.Split(strings.ReplaceAll(written, "    ", ""), "\n"), line) {
				t.Errorf("%s, %s has no line %q:\n%s", tc.distribution, tc.name, line, written)
			}
		}
	}
	if warnings, _ := CheckNetworkData([]byte(bondedDocument)); len(warnings) != 1 ||
		!strings.HasPrefix(warnings[0], "has uplink2 for all interfaces of the name *1") {
		t.Errorf("warnings %q", warnings)
	}
}

// TestVersion2Refuses: what a config drive cannot carry is refused with the name of the field and what to do instead, also before
// there is a host.
func TestVersion2Refuses(t *testing.T) {
	const two = "version: 2\nethernets: {eth0: {}, eth1: {}}\n"
	for name, tc := range map[string]struct{ reason, document, want string }{
		"Bridges": {"cloud-init has no bridge in network_data", two + "bridges: {br0: {interfaces: [eth0]}}\n",
			`OpenStack's network_data has no "bridges"; leave it out here and configure it on the server, in the files and commands of ` +
				`karpenter.metal3.io/user-data`},
		"Tunnels": {"nor a tunnel", two + "tunnels: {}\n", `no "tunnels"`},
		"Override": {"cloud-init would drop it", "version: 2\nethernets: {eth0: {dhcp4: true, dhcp4-overrides: {use-dns: false}}}\n",
			`ethernets.eth0 has the unknown field "dhcp4-overrides", for which OpenStack's network_data has no name; leave it out`},
		"OnLink": {"cloud-init would drop it", "version: 2\nethernets: {eth0: {routes: [{to: default, via: 192.0.2.1, on-link: true}]}}\n",
			`ethernets.eth0 has the unknown field "on-link"`},
		"Type": {"it says where",
			"version: 2\nethernets: {eth0: {mtu: big}}\n", `in ethernets.eth0, field "mtu" cannot hold a string`},
		"Mapping":     {"not a mapping", two + "bonds: [bond0]\n", `has "bonds" that are not a mapping`},
		"Renderer":    {"not a name", two + "renderer: {}\n", `has a "renderer" that is not a name`},
		"NoInterface": {"a bond of nothing", two + "bonds: {bond0: {}}\n", "has no interfaces for bond bond0"},
		"Unknown": {"a typing error",
			two + "bonds: {bond0: {interfaces: [eth2]}}\n", `has interface "eth2" in bond bond0, which is not in "ethernets"`},
		"TwoBonds": {"it can be in one", two + "bonds: {bond0: {interfaces: [eth0]}, bond1: {interfaces: [eth0]}}\n",
			"has interface eth0 in bond bond0 and in bond bond1"},
		"Twice": {"it can be in one",
			two + "bonds: {bond0: {interfaces: [eth0, eth0]}}\n", "has interface eth0 in bond bond0 and in bond bond0"},
		"Address": {"Linux would not use it", "version: 2\nethernets: {eth0: {dhcp4: true}}\nbonds: {bond0: {interfaces: [eth0]}}\n",
			"for eth0, which is in bond bond0: write them at the bond"},
		"Mode": {"it would be another",
			two + "bonds: {bond0: {interfaces: [eth0], parameters: {mode: lacp}}}\n",
			`has the mode "lacp" for bond bond0: write one of balance-rr`},
		"Parameter": {"its name is not known",
			two + "bonds: {bond0: {interfaces: [eth0], parameters: {primary: eth0}}}\n", `bonds.bond0 has the parameter "primary"`},
		"Delay": {"without a unit",
			two + "bonds: {bond0: {interfaces: [eth0], parameters: {up-delay: 1s}}}\n",
			`has the up-delay "1s" for bond bond0, which is not a whole number`},
		"Word": {"it would be two lines",
			two + "bonds: {bond0: {interfaces: [eth0], parameters: {lacp-rate: \"a\\nb\"}}}\n", "which is not one word"},
		"BondMAC": {"cloud-init 22 would give it to the interfaces", two + "bonds: {bond0: {interfaces: [eth0], macaddress: x}}\n",
			`bonds.bond0 has the unknown field "macaddress"`},
		"SameName": {"which of them", two + "bonds: {eth0: {interfaces: [eth1]}}\n", "two devices with the name eth0"},
		"SameVLAN": {"which of them", two + "vlans: {eth0: {id: 1, link: eth1}}\n", "two devices with the name eth0"},
		"NoID":     {"it has none", two + "vlans: {v: {link: eth0}}\n", "has no id from 0 to 4094 for VLAN v"},
		"LargeID":  {"no network has it", two + "vlans: {v: {id: 4095, link: eth0}}\n", "has no id from 0 to 4094 for VLAN v"},
		"VLANLink": {"a typing error", two + "vlans: {v: {id: 1, link: eth7}}\n", `has VLAN v on "eth7", which is neither`},
		"SetName":  {"Linux would not take it", "version: 2\nethernets: {eth0: {set-name: a/b}}\n", `has the set-name "a/b" for eth0`},
		"MTU": {"no interface has it",
			"version: 2\nethernets: {eth0: {mtu: 70000}}\n", "has the mtu 70000 for eth0: write one from 1 to 65535"},
		"NoVersion": {"it may be anything", "ethernets: {}\n", "of another version than 2"},
		"Nothing":   {"nothing to configure", "version: 2\n", `has no "ethernets": name the interfaces there`},
	} {
		t.Run(name, func(t *testing.T) {
			warnings, err := CheckNetworkData([]byte(tc.document))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error %v does not say %q", tc.reason, err, tc.want)
			}
			if warnings != nil {
				t.Errorf("warnings beside the error: %q", warnings)
			}
		})
	}
	for name, tc := range map[string]struct{ reason, document, want string }{
		"Several": {"which of them", "version: 2\nethernets: {a: {match: {name: 'eth*'}}, b: {match: {name: eth0}}}\n",
			`has an interface a whose name "eth*" is that of 2 interfaces of the server`},
		"LongMAC": {"cloud-init finds InfiniBand by six bytes, too",
			"version: 2\nethernets: {a: {match: {macaddress: '00:00:5e:00:53:01:00:01'}}}\n",
			"which is not one of six bytes"},
		"Metric": {"Linux has none",
			"version: 2\nethernets: {eth0: {addresses: [192.0.2.9/24], routes: [{to: default, via: 192.0.2.1, metric: -1}]}}\n",
			"with the metric -1, which is less than 0"},
	} {
		if _, err := ReadNetworkData([]byte(tc.document), exampleHost()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s: error %v does not say %q", name, tc.reason, err, tc.want)
		}
	}
	// Before there were patterns, one interface of whatever name was the one that the server boots from.
	const only = "version: 2\nethernets: {all: {match: {name: 'eth*'}, dhcp4: true}}\n"
	if data, err := ReadNetworkData([]byte(only), exampleHost()); err != nil || !strings.Contains(string(data), exampleMAC) {
		t.Errorf("the only interface: %s, %v", data, err)
	}
}

func TestNetworkDataWarnings(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, document string
		want             []string
	}{
		"OpenStack": {"passed on as it is", "links: [{id: a, type: phy}]\n", nil},
		"Nothing": {"all of it is on the server",
			"version: 2\nethernets: {a: {addresses: [192.0.2.9/24], nameservers: {addresses: [192.0.2.53]}}}\n", nil},
		"Names": {"cloud-init makes up names",
			"version: 2\nethernets: {a: {}, b: {}}\nbonds: {lan: {interfaces: [a]}, storage: {interfaces: [b]}}\n" +
				"vlans: {tenant: {id: 7, link: storage}, lan.8: {id: 8, link: lan}, a.9: {id: 9, link: a}}\n",
			[]string{"has bond lan, which cloud-init names bond0", "has bond storage, which cloud-init names bond1",
				"has VLAN lan.8, which cloud-init names bond0.8", "has VLAN tenant, which cloud-init names bond1.7"}},
		"Order": {"they keep their names", "version: 2\nethernets: {" + ethernets(11) + "}\nbonds: {" + bonds(11) + "}\n", nil},
		"DHCP": {"the server that gives the address gives these, too",
			"version: 2\nethernets: {a: {dhcp4: true, nameservers: {search: [x]}}}\n",
			[]string{"has name servers for a, which has no addresses of its own"}},
		"Small": {"network_data has neither", "version: 2\nrenderer: networkd\nethernets: {a: {optional: true}}\n",
			[]string{"has the renderer networkd: on the server it is the one that the image has", "has a as optional"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := CheckNetworkData([]byte(tc.document))
			if err != nil || len(got) != len(tc.want) {
				t.Fatalf("%s: got %q, %v, want %q", tc.reason, got, err, tc.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], tc.want[i]) {
					t.Errorf("%s: got %q, want %q", tc.reason, got[i], tc.want[i])
				}
			}
		})
	}
}

func ethernets(count int) string {
	var all []string
	for n := range count {
		all = append(all, fmt.Sprintf("e%d: {}", n))
	}
	return strings.Join(all, ", ")
}

func bonds(count int) string {
	var all []string
	for n := range count {
		all = append(all, fmt.Sprintf("bond%d: {interfaces: [e%d]}", n, n))
	}
	return strings.Join(all, ", ")
}

// schemaFault says what of network data breaks a rule of OpenStack's schema, which Ironic has in network-data-schema.json. Of a bond
// that wants a MAC address, which cloud-init does not take, and a mode 802.1ad, which is a typing error.
func schemaFault(document []byte) string {
	var data struct{ Links, Networks, Services []map[string]any }
	if err := json.Unmarshal(document, &data); err != nil {
		return err.Error()
	}
	if data.Links == nil || data.Networks == nil || data.Services == nil {
		return "links, networks or services are missing"
	}
	isText := func(value any) bool { _, is := value.(string); return is }
	isMAC := func(value any) bool {
		text, _ := value.(string)
		mac, err := net.ParseMAC(text)
		return err == nil && len(mac) == 6 && len(text) == 17
	}
	isAddress := func(value any) bool {
		text, _ := value.(string)
		_, err := netip.ParseAddr(text)
		return err == nil
	}
	rules := map[string]map[string]func(any) bool{
		"phy": {"id": isText, "ethernet_mac_address": isMAC},
		"bond": {"id": isText, "bond_mode": func(value any) bool { return slices.Contains(bondModes, value.(string)) },
			"bond_links": func(value any) bool { _, is := value.([]any); return is }},
		"vlan": {"id": isText, "vlan_mac_address": isMAC, "vlan_link": isText,
			"vlan_id": func(value any) bool { number, is := value.(float64); return is && number == float64(int(number)) }},
		"ipv4_dhcp": {"id": isText, "link": isText, "network_id": isText}, "ipv6_dhcp": {"id": isText, "link": isText, "network_id": isText},
		"ipv4": {"id": isText, "link": isText, "network_id": isText, "ip_address": isAddress, "netmask": isAddress},
		"ipv6": {"id": isText, "link": isText, "network_id": isText, "ip_address": isAddress, "netmask": isAddress},
		"dns":  {"address": isAddress},
	}
	for _, entry := range slices.Concat(data.Links, data.Networks, data.Services) {
		kind, _ := entry["type"].(string)
		rule, known := rules[kind]
		if !known {
			return fmt.Sprintf("type %q", kind)
		}
		for _, key := range slices.Sorted(maps.Keys(rule)) {
			if value, found := entry[key]; !found || !rule[key](value) {
				return fmt.Sprintf("%s of %v", key, entry)
			}
		}
		if mtu, found := entry["mtu"].(float64); found && (mtu < 1 || mtu > 65535) {
			return fmt.Sprintf("mtu of %v", entry)
		}
	}
	return ""
}

// FuzzReadNetworkData looks for network data that makes it panic, that is refused when it is read again, or that OpenStack's schema
// refuses although it is made here.
func FuzzReadNetworkData(f *testing.F) {
	f.Add([]byte("version: 2\nethernets: {a: {addresses: [1.2.3.4/5], gateway4: 1.2.3.4, nameservers: {addresses: ['::1']}}}\n"))
	f.Add([]byte("links: [{id: a, type: phy}]\nnetworks: [{link: a, ip_address: '::/3'}]\n"))
	f.Add([]byte(bondedDocument))
	f.Add([]byte("version: 2\nethernets: {a: {}}\nvlans: {v: {id: 0, link: a, mtu: 1}}\n"))
	host := exampleHost()
	f.Fuzz(func(t *testing.T, document []byte) {
		_, refused := CheckNetworkData(document)
		data, err := ReadNetworkData(document, host)
		if err != nil {
			return
		}
		if refused != nil {
			t.Errorf("it is refused before there is a host: %v", refused)
		}
		if _, err := ReadNetworkData(data, nil); err != nil {
			t.Errorf("what was read is refused: %v\n%s", err, data)
		}
		if _, config, _ := parseNetworkData(document); config != nil {
			if fault := schemaFault(data); fault != "" {
				t.Errorf("OpenStack's schema refuses %s:\n%s", fault, data)
			}
		}
	})
}
