// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// version2 is the part of cloud-init's network configuration of version 2 (netplan's) that OpenStack's network_data can
// express: interfaces, bonds and VLANs. A config drive can carry nothing else. Other parts, such as a bridge, are
// refused: a server with half a network configuration may be unreachable.
type version2 struct {
	renderer  string
	ethernets map[string]ethernet
	bonds     map[string]bond
	vlans     map[string]vlan
}

// device has the fields that interfaces, bonds and VLANs share.
type device struct {
	Optional    bool     `json:"optional"`
	MTU         int      `json:"mtu"`
	DHCP4       bool     `json:"dhcp4"`
	DHCP6       bool     `json:"dhcp6"`
	Addresses   []string `json:"addresses"`
	Gateway4    string   `json:"gateway4"`
	Gateway6    string   `json:"gateway6"`
	Nameservers struct {
		Addresses []string `json:"addresses"`
		Search    []string `json:"search"`
	} `json:"nameservers"`
	Routes []hop `json:"routes"`
}

type hop struct {
	To     string `json:"to"`
	Via    string `json:"via"`
	Metric *int   `json:"metric"`
}

type ethernet struct {
	device
	Match struct {
		Name       string `json:"name"`
		MACAddress string `json:"macaddress"`
	} `json:"match"`
	SetName string `json:"set-name"`
}

type bond struct {
	device
	Interfaces []string       `json:"interfaces"`
	Parameters map[string]any `json:"parameters"`
}

type vlan struct {
	device
	ID   *int   `json:"id"`
	Link string `json:"link"`
}

// maxInterfaceName is the longest name in Linux, maxVLAN the highest ID, maxMTU the largest MTU of OpenStack.
const (
	maxInterfaceName = 15
	maxVLAN          = 4094
	maxMTU           = 65535
)

// bondModes are the modes of Linux.
var bondModes = []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}

// bondParameters are the parameters of bonds that network_data can express, by their names in netplan. The others would
// not arrive: cloud-init has no name for them or, for the targets of ARP, a name that netplan does not read. The
// primary would need the name that the installed system gives to the interface.
var bondParameters = map[string]struct {
	key    string
	number bool
}{
	"ad-select":               {"ad_select", false},
	"down-delay":              {"downdelay", true},
	"fail-over-mac-policy":    {"fail_over_mac", false},
	"gratuitous-arp":          {"num_grat_arp", true},
	"lacp-rate":               {"lacp_rate", false},
	"mii-monitor-interval":    {"miimon", true},
	"min-links":               {"min_links", true},
	"primary-reselect-policy": {"primary_reselect", false},
	"transmit-hash-policy":    {"xmit_hash_policy", false},
	"up-delay":                {"updelay", true},
}

// instead is the advice for a field that network_data does not have.
const instead = "leave it out here and configure it on the server, in the files and commands of " + v1alpha1.PropertyUserData

// readVersion2 reads the sections of a network configuration of version 2. It checks what needs no host.
func readVersion2(sections map[string]json.RawMessage) (*version2, error) {
	var version int
	if err := json.Unmarshal(sections["version"], &version); err != nil || version != 2 {
		return nil, errors.New("is a network configuration of another version than 2: write it in that one, and begin it with " +
			"\"version: 2\"")
	}
	config := &version2{}
	for _, section := range slices.Sorted(maps.Keys(sections)) {
		var err error
		switch section {
		case "version":
		case "renderer":
			if json.Unmarshal(sections[section], &config.renderer) != nil {
				err = errors.New("has a \"renderer\" that is not a name")
			}
		case "ethernets":
			config.ethernets, err = readDevices[ethernet](section, sections[section])
		case "bonds":
			config.bonds, err = readDevices[bond](section, sections[section])
		case "vlans":
			config.vlans, err = readDevices[vlan](section, sections[section])
		default:
			err = fmt.Errorf("cannot be put on a config drive: OpenStack's network_data has no %q; %s", section, instead)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(config.ethernets) == 0 {
		return nil, errors.New("has no \"ethernets\": name the interfaces there, also those of bonds and VLANs")
	}
	return config, config.check()
}

// readDevices reads a section. A field that network_data cannot express is an error.
func readDevices[T any](section string, object json.RawMessage) (map[string]T, error) {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(object, &entries); err != nil {
		return nil, fmt.Errorf("has %q that are not a mapping of names", section)
	}
	devices := make(map[string]T, len(entries))
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		var device T
		decoder := json.NewDecoder(bytes.NewReader(entries[id]))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&device); err != nil {
			if strings.Contains(err.Error(), "unknown field") {
				return nil, fmt.Errorf("cannot be put on a config drive: %s.%s has the %s, for which OpenStack's network_data has no name; %s",
					section, id, fieldOf(err), instead)
			}
			return nil, fmt.Errorf("is not a network configuration: in %s.%s, %s", section, id, strings.Replace(fieldOf(err), "\"device.", "\"", 1))
		}
		devices[id] = device
	}
	return devices, nil
}

func (c version2) check() error {
	for _, device := range c.devices() {
		if device.MTU < 0 || device.MTU > maxMTU {
			return fmt.Errorf("has the mtu %d for %s: write one from 1 to %d", device.MTU, device.id, maxMTU)
		}
	}
	bondOf := map[string]string{}
	for _, id := range c.bondIDs() {
		if err := c.bonds[id].check(id, c, bondOf); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.ethernets)) {
		ethernet := c.ethernets[id]
		if len(ethernet.SetName) > maxInterfaceName || strings.ContainsAny(ethernet.SetName, "/ \t\r\n") {
			return fmt.Errorf("has the set-name %q for %s, which cannot be the name of an interface", ethernet.SetName, id)
		}
		if bond := bondOf[id]; bond != "" && !configuresNothing(ethernet.device) {
			return fmt.Errorf("has addresses, routes or name servers for %s, which is in bond %s: write them at the bond", id, bond)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.vlans)) {
		vlan := c.vlans[id]
		_, ofEthernet := c.ethernets[vlan.Link]
		_, ofBond := c.bonds[vlan.Link]
		switch {
		case vlan.ID == nil || *vlan.ID < 0 || *vlan.ID > maxVLAN:
			return fmt.Errorf("has no id from 0 to %d for VLAN %s", maxVLAN, id)
		case !ofEthernet && !ofBond:
			return fmt.Errorf("has VLAN %s on %q, which is neither in \"ethernets\" nor in \"bonds\"", id, vlan.Link)
		case c.has(id, "vlans"):
			return fmt.Errorf("has two devices with the name %s", id)
		}
	}
	return nil
}

// configuresNothing reports whether a device has no configuration of its own above its link.
func configuresNothing(d device) bool {
	return !d.DHCP4 && !d.DHCP6 && len(d.Addresses) == 0 && len(d.Routes) == 0 && d.Gateway4 == "" && d.Gateway6 == "" &&
		len(d.Nameservers.Addresses) == 0 && len(d.Nameservers.Search) == 0
}

// has reports whether a device of another section has the name.
func (c version2) has(id, section string) bool {
	_, ofEthernet := c.ethernets[id]
	_, ofBond := c.bonds[id]
	return ofEthernet || ofBond && section != "bonds"
}

func (b bond) check(id string, config version2, bondOf map[string]string) error {
	if config.has(id, "bonds") {
		return fmt.Errorf("has two devices with the name %s", id)
	}
	if len(b.Interfaces) == 0 {
		return fmt.Errorf("has no interfaces for bond %s", id)
	}
	for _, name := range b.Interfaces {
		if _, found := config.ethernets[name]; !found {
			return fmt.Errorf("has interface %q in bond %s, which is not in \"ethernets\"", name, id)
		}
		if other := bondOf[name]; other != "" {
			return fmt.Errorf("has interface %s in bond %s and in bond %s", name, other, id)
		}
		bondOf[name] = id
	}
	_, err := b.parameters(id)
	return err
}

// parameters returns the parameters of the bond, by their keys in network_data.
func (b bond) parameters(id string) (map[string]any, error) {
	keys := map[string]any{"bond_mode": bondModes[0]} // netplan's default; OpenStack has none
	for _, name := range slices.Sorted(maps.Keys(b.Parameters)) {
		text := fmt.Sprint(b.Parameters[name])
		if name == "mode" {
			if !slices.Contains(bondModes, text) {
				return nil, fmt.Errorf("has the mode %q for bond %s: write one of %s", text, id, strings.Join(bondModes, ", "))
			}
			keys["bond_mode"] = text
			continue
		}
		known, found := bondParameters[name]
		if !found {
			return nil, fmt.Errorf("cannot be put on a config drive: bonds.%s has the parameter %q, for which network_data has no name; %s",
				id, name, instead)
		}
		var value any = text
		if number, err := strconv.Atoi(text); known.number {
			if err != nil || number < 0 {
				return nil, fmt.Errorf("has the %s %q for bond %s, which is not a whole number", name, text, id)
			}
			value = number
		} else if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("has the %s %q for bond %s, which is not one word", name, text, id)
		}
		keys["bond_"+known.key] = value
		// cloud-init up to version 22 takes the key as it is. Later versions replace only the first underscore: systems
		// with sysconfig or NetworkManager would not find a key with more underscores.
		keys["bond_"+strings.ReplaceAll(known.key, "_", "-")] = value
	}
	return keys, nil
}

// bondIDs returns the bonds in the order of cloud-init's names bond0, bond1, ...
func (c version2) bondIDs() []string {
	return slices.SortedFunc(maps.Keys(c.bonds), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
}

// warnings says what will be different on the server.
func (c version2) warnings() []string {
	var all []string
	if c.renderer != "" {
		all = append(all, fmt.Sprintf("has the renderer %s: on the server it is the one that the image has", c.renderer))
	}
	for _, id := range slices.Sorted(maps.Keys(c.ethernets)) {
		if name := c.ethernets[id].Match.Name; strings.ContainsAny(name, "*?[") && c.ethernets[id].Match.MACAddress == "" {
			all = append(all, fmt.Sprintf("has %s for all interfaces of the name %s: on the server it is one of them", id, name))
		}
	}
	names := map[string]string{}
	for i, id := range c.bondIDs() {
		if names[id] = fmt.Sprintf("bond%d", i); id != names[id] {
			all = append(all, fmt.Sprintf("has bond %s, which cloud-init names %s: a config drive carries no names of bonds", id, names[id]))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.vlans)) {
		parent := cmp.Or(names[c.vlans[id].Link], c.ethernets[c.vlans[id].Link].SetName, c.vlans[id].Link)
		if name := fmt.Sprintf("%s.%d", parent, *c.vlans[id].ID); id != name {
			all = append(all, fmt.Sprintf("has VLAN %s, which cloud-init names %s: a config drive carries no names of VLANs", id, name))
		}
	}
	for _, device := range c.devices() {
		if device.Optional {
			all = append(all, fmt.Sprintf("has %s as optional: a config drive cannot say that, and the server waits for it when it boots",
				device.id))
		}
		if len(device.Addresses) == 0 && len(device.Nameservers.Addresses)+len(device.Nameservers.Search) > 0 {
			all = append(all, fmt.Sprintf("has name servers for %s, which has no addresses of its own: cloud-init leaves them to DHCP where "+
				"the system is configured by netplan", device.id))
		}
	}
	return all
}

type namedDevice struct {
	id string
	device
}

// devices returns all devices, in their order in network_data.
func (c version2) devices() []namedDevice {
	var all []namedDevice
	for _, id := range slices.Sorted(maps.Keys(c.ethernets)) {
		all = append(all, namedDevice{id, c.ethernets[id].device})
	}
	for _, id := range c.bondIDs() {
		all = append(all, namedDevice{id, c.bonds[id].device})
	}
	for _, id := range slices.Sorted(maps.Keys(c.vlans)) {
		all = append(all, namedDevice{id, c.vlans[id].device})
	}
	return all
}

// networkData returns the same configuration as network_data.
func (c version2) networkData(host *bmov1alpha1.BareMetalHost) (networkData, error) {
	data := networkData{Networks: []networkNetwork{}, Services: []networkService{}}
	macs := map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(c.ethernets)) {
		ethernet := c.ethernets[id]
		mac, err := macOf(id, ethernet, host, len(c.ethernets) == 1)
		if err != nil {
			return networkData{}, err
		}
		macs[id] = mac
		data.Links = append(data.Links, networkLink{ID: id, Type: "phy", MAC: mac, MTU: ethernet.MTU, Name: ethernet.SetName})
	}
	for _, id := range c.bondIDs() {
		bond := c.bonds[id]
		parameters, err := bond.parameters(id)
		if err != nil {
			return networkData{}, err
		}
		// OpenStack wants a MAC address. cloud-init 22 would use it for all interfaces of the bond, and find only one.
		data.Links = append(data.Links, networkLink{ID: id, Type: "bond", MTU: bond.MTU, BondLinks: bond.Interfaces, bond: parameters})
		macs[id] = macs[bond.Interfaces[0]]
	}
	for _, id := range slices.Sorted(maps.Keys(c.vlans)) {
		vlan := c.vlans[id]
		data.Links = append(data.Links, networkLink{ID: id, Type: "vlan", MTU: vlan.MTU, VLAN: vlan.ID, VLANLink: vlan.Link,
			VLANMAC: macs[vlan.Link]})
	}
	for _, device := range c.devices() {
		if err := data.addNetworks(device.id, device.device); err != nil {
			return networkData{}, err
		}
	}
	return data, nil
}

func (d *networkData) addNetworks(id string, config device) error {
	if config.DHCP4 {
		d.Networks = append(d.Networks, networkNetwork{ID: id + "-dhcp4", NetworkID: id + "-dhcp4", Type: "ipv4_dhcp", Link: id})
	}
	if config.DHCP6 {
		d.Networks = append(d.Networks, networkNetwork{ID: id + "-dhcp6", NetworkID: id + "-dhcp6", Type: "ipv6_dhcp", Link: id})
	}
	routes, err := routesOf(id, config)
	if err != nil {
		return err
	}
	for _, server := range config.Nameservers.Addresses {
		if _, err := netip.ParseAddr(server); err != nil {
			return fmt.Errorf("has the name server %q for %s, which is not an address", server, id)
		}
		if service := (networkService{Type: "dns", Address: server}); !slices.Contains(d.Services, service) {
			d.Services = append(d.Services, service)
		}
	}
	for i, text := range config.Addresses {
		address, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("has the address %q for %s, which is not an address with a prefix length", text, id)
		}
		network := staticNetwork(fmt.Sprintf("%s-%d", id, i), id, address, netip.Addr{})
		network.NetworkID = network.ID
		if i == 0 {
			network.DNS, network.Search = config.Nameservers.Addresses, config.Nameservers.Search
		}
		// Routes go with the first address of their family.
		network.Routes = routes[address.Addr().Is4()]
		delete(routes, address.Addr().Is4())
		d.Networks = append(d.Networks, network)
	}
	for _, left := range routes {
		return fmt.Errorf("has a route of %s via %s, and no address of that family", id, left[0].Gateway)
	}
	return nil
}

// routesOf returns the routes, by whether they are for IPv4.
func routesOf(id string, config device) (map[bool][]networkRoute, error) {
	const toIPv4, toIPv6 = "0.0.0.0/0", "::/0"
	hops := config.Routes
	if config.Gateway6 != "" {
		hops = append([]hop{{To: toIPv6, Via: config.Gateway6}}, hops...)
	}
	if config.Gateway4 != "" {
		hops = append([]hop{{To: toIPv4, Via: config.Gateway4}}, hops...)
	}
	routes := map[bool][]networkRoute{}
	for _, hop := range hops {
		gateway, err := netip.ParseAddr(hop.Via)
		if err != nil {
			return nil, fmt.Errorf("has a route of %s via %q, which is not an address", id, hop.Via)
		}
		if hop.To == "default" {
			hop.To = toIPv6
			if gateway.Is4() {
				hop.To = toIPv4
			}
		}
		destination, err := netip.ParsePrefix(hop.To)
		if err != nil || destination.Addr().Is4() != gateway.Is4() {
			return nil, fmt.Errorf("has a route of %s to %q via %s, which is not a network of that family", id, hop.To, gateway)
		}
		if hop.Metric != nil && *hop.Metric < 0 {
			return nil, fmt.Errorf("has a route of %s to %q with the metric %d, which is less than 0", id, hop.To, *hop.Metric)
		}
		route := routeTo(destination, gateway)
		route.Metric = hop.Metric
		routes[gateway.Is4()] = append(routes[gateway.Is4()], route)
	}
	return routes, nil
}

func macOf(id string, config ethernet, host *bmov1alpha1.BareMetalHost, only bool) (string, error) {
	if config.Match.MACAddress != "" {
		mac, err := net.ParseMAC(config.Match.MACAddress)
		if err != nil || len(mac) != 6 {
			return "", fmt.Errorf("has the macaddress %q for %s, which is not one of six bytes", config.Match.MACAddress, id)
		}
		return mac.String(), nil
	}
	if host != nil && host.Status.HardwareDetails != nil {
		for _, pattern := range []string{config.Match.Name, id} {
			if pattern == "" {
				continue
			}
			var found []string
			for _, nic := range host.Status.HardwareDetails.NIC {
				matches, err := path.Match(pattern, nic.Name)
				// The list has a network card once for each family of its addresses.
				if mac := strings.ToLower(nic.MAC); err == nil && matches && mac != "" && !slices.Contains(found, mac) {
					found = append(found, mac)
				}
			}
			if len(found) > 1 && !only {
				return "", fmt.Errorf("has an interface %s whose name %q is that of %d interfaces of the server: say which it is with "+
					"match.macaddress", id, pattern, len(found))
			}
			if len(found) == 1 {
				return found[0], nil
			}
		}
	}
	if only && host != nil && host.Spec.BootMACAddress != "" {
		return strings.ToLower(host.Spec.BootMACAddress), nil
	}
	return "", fmt.Errorf("has an interface %s that the server's hardware details do not know: say which it is with match.macaddress", id)
}
