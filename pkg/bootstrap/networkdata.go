// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/yaml"
)

// NetworkConfig is the network configuration of a server with one address.
type NetworkConfig struct {
	// Address of the server and the prefix length of its network.
	Address netip.Prefix
	// Gateway of the network; the zero Addr if there is none.
	Gateway netip.Addr
	// DNS are the name servers; may be empty.
	DNS []netip.Addr
	// MAC is the hardware address of the interface that gets the address, usually the one that the server boots from.
	MAC string
}

// networkData is the part of OpenStack's network_data.json that one address needs.
type networkData struct {
	Links    []networkLink    `json:"links"`
	Networks []networkNetwork `json:"networks"`
	Services []networkService `json:"services"`
}

type networkLink struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	MAC  string `json:"ethernet_mac_address,omitempty"`
	MTU  int    `json:"mtu,omitempty"`
}

type networkNetwork struct {
	ID      string         `json:"id"`
	Type    string         `json:"type"`
	Link    string         `json:"link"`
	Address string         `json:"ip_address,omitempty"`
	Netmask string         `json:"netmask,omitempty"`
	Routes  []networkRoute `json:"routes,omitempty"`
}

type networkRoute struct {
	Network string `json:"network"`
	Netmask string `json:"netmask"`
	Gateway string `json:"gateway"`
}

type networkService struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

// bootLink is the ID of the one link.
const bootLink = "boot"

// NetworkData returns the network_data.json for Metal3's config drive. Equal values give equal bytes.
func NetworkData(config NetworkConfig) ([]byte, error) {
	if !config.Address.IsValid() {
		return nil, errors.New("building network data, the server has no address")
	}
	mac, err := net.ParseMAC(config.MAC)
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf("building network data, %q is not the MAC address of the interface that the server boots from: set "+
			"spec.bootMACAddress of its BareMetalHost", config.MAC)
	}
	if config.Gateway.IsValid() && config.Gateway.Is4() != config.Address.Addr().Is4() {
		return nil, fmt.Errorf("building network data, address %s and gateway %s are not of one family", config.Address, config.Gateway)
	}
	data := networkData{
		Links:    []networkLink{{ID: bootLink, Type: "phy", MAC: mac.String()}},
		Networks: []networkNetwork{staticNetwork("address", bootLink, config.Address, config.Gateway)},
		Services: []networkService{},
	}
	for _, server := range config.DNS {
		data.Services = append(data.Services, networkService{Type: "dns", Address: server.String()})
	}
	return json.MarshalIndent(data, "", "  ")
}

// staticNetwork returns the network of one address.
func staticNetwork(id, link string, address netip.Prefix, gateway netip.Addr) networkNetwork {
	network := networkNetwork{ID: id, Type: "ipv4", Link: link, Address: address.Addr().String(), Netmask: netmask(address)}
	everything := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if address.Addr().Is6() {
		network.Type, everything = "ipv6", netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	if gateway.IsValid() {
		network.Routes = append(network.Routes, routeTo(everything, gateway))
	}
	return network
}

func routeTo(destination netip.Prefix, gateway netip.Addr) networkRoute {
	return networkRoute{Network: destination.Masked().Addr().String(), Netmask: netmask(destination), Gateway: gateway.String()}
}

// netmask writes the prefix length as a mask.
func netmask(prefix netip.Prefix) string {
	return net.IP(net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())).String()
}

// ReadNetworkData returns network data that a user has written, or that a template has made, as the network_data.json
// of Metal3's config drive. It takes OpenStack network_data, in JSON or YAML, and cloud-init's network configuration
// of version 2, whose interfaces are found in the host's hardware details by their name or, if there is only one, by
// the MAC address that the host boots from. The error is a sentence about the document, without a subject.
func ReadNetworkData(document []byte, host *bmov1alpha1.BareMetalHost) ([]byte, error) {
	object, isVersion2, err := openNetworkData(document)
	if err != nil {
		return nil, err
	}
	if isVersion2 {
		data, err := fromVersion2(object, host)
		if err != nil {
			return nil, err
		}
		return json.MarshalIndent(data, "", "  ")
	}
	if err := checkOpenStack(object); err != nil {
		return nil, err
	}
	return object, nil
}

// CheckNetworkData checks whether a document is network data, as far as that can be told without a host. The error
// is that of ReadNetworkData.
func CheckNetworkData(document []byte) error {
	object, isVersion2, err := openNetworkData(document)
	if err != nil {
		return err
	}
	if isVersion2 {
		_, err := readVersion2(object)
		return err
	}
	return checkOpenStack(object)
}

// openNetworkData returns the document as JSON, without a "network" around it, and whether it is of version 2.
func openNetworkData(document []byte) (object []byte, isVersion2 bool, err error) {
	if err := checkSize("the network data", len(document)); err != nil {
		return nil, false, fmt.Errorf("is too large: %w", err)
	}
	object, err = yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, false, errors.New("is neither YAML nor JSON" + position(err))
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil || len(fields) == 0 {
		return nil, false, errors.New("is not network data: it must be a mapping with \"links\" and \"networks\", or with \"version: 2\" and " +
			"\"ethernets\"")
	}
	if inner, wrapped := fields["network"]; wrapped && len(fields) == 1 {
		object, fields = inner, nil
		if err := json.Unmarshal(inner, &fields); err != nil {
			return nil, false, errors.New("has a \"network\" that is not a mapping")
		}
	}
	_, hasVersion := fields["version"]
	_, hasEthernets := fields["ethernets"]
	return object, hasVersion || hasEthernets, nil
}

// checkOpenStack checks whether the parts of network_data.json go together. What is not looked at is passed on.
func checkOpenStack(object []byte) error {
	var data networkData
	if err := json.Unmarshal(object, &data); err != nil {
		return errors.New("is not OpenStack network_data: " + fieldOf(err))
	}
	if len(data.Links) == 0 {
		return errors.New("is not network data: it has no \"links\"")
	}
	known := map[string]bool{}
	for i, link := range data.Links {
		if link.ID == "" || link.Type == "" {
			return fmt.Errorf("has no id or no type in links[%d]", i)
		}
		if known[link.ID] {
			return fmt.Errorf("has two links with the id %q", link.ID)
		}
		known[link.ID] = true
	}
	for i, network := range data.Networks {
		if !known[network.Link] {
			return fmt.Errorf("has networks[%d] on the link %q, and no link of that id", i, network.Link)
		}
		if network.Address == "" {
			continue
		}
		if _, err := netip.ParseAddr(network.Address); err != nil {
			if _, err := netip.ParsePrefix(network.Address); err != nil {
				return fmt.Errorf("has networks[%d] with the ip_address %q, which is not an address", i, network.Address)
			}
		}
	}
	for i, service := range data.Services {
		if _, err := netip.ParseAddr(service.Address); err != nil {
			return fmt.Errorf("has services[%d] with the address %q, which is not an address", i, service.Address)
		}
	}
	return nil
}

// version2 is what of cloud-init's network configuration of version 2 (netplan's) can be said in OpenStack's
// network_data, which is all that a config drive can carry.
type version2 struct {
	Version   int                 `json:"version"`
	Renderer  string              `json:"renderer"`
	Ethernets map[string]ethernet `json:"ethernets"`
}

type ethernet struct {
	Match struct {
		Name       string `json:"name"`
		MACAddress string `json:"macaddress"`
	} `json:"match"`
	SetName     string   `json:"set-name"`
	Optional    bool     `json:"optional"`
	MTU         int      `json:"mtu"`
	DHCP4       bool     `json:"dhcp4"`
	DHCP6       bool     `json:"dhcp6"`
	Addresses   []string `json:"addresses"`
	Gateway4    string   `json:"gateway4"`
	Gateway6    string   `json:"gateway6"`
	Nameservers struct {
		Addresses []string `json:"addresses"`
	} `json:"nameservers"`
	Routes []struct {
		To  string `json:"to"`
		Via string `json:"via"`
	} `json:"routes"`
}

// readVersion2 reads a network configuration of version 2.
func readVersion2(object []byte) (version2, error) {
	var config version2
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&config); err != nil {
		return version2{}, fmt.Errorf("cannot be put on a config drive: %s; write it as OpenStack network_data instead", fieldOf(err))
	}
	if config.Version != 2 {
		return version2{}, fmt.Errorf("is a network configuration of version %d: write it in version 2", config.Version)
	}
	if len(config.Ethernets) == 0 {
		return version2{}, errors.New("has no \"ethernets\"")
	}
	return config, nil
}

// fromVersion2 says the same in network_data.
func fromVersion2(object []byte, host *bmov1alpha1.BareMetalHost) (networkData, error) {
	config, err := readVersion2(object)
	if err != nil {
		return networkData{}, err
	}
	data := networkData{Networks: []networkNetwork{}, Services: []networkService{}}
	for _, id := range slices.Sorted(maps.Keys(config.Ethernets)) {
		if err := data.addEthernet(id, config.Ethernets[id], host, len(config.Ethernets) == 1); err != nil {
			return networkData{}, err
		}
	}
	return data, nil
}

func (d *networkData) addEthernet(id string, config ethernet, host *bmov1alpha1.BareMetalHost, only bool) error {
	mac, err := macOf(id, config, host, only)
	if err != nil {
		return err
	}
	d.Links = append(d.Links, networkLink{ID: id, Type: "phy", MAC: mac, MTU: config.MTU})
	if config.DHCP4 {
		d.Networks = append(d.Networks, networkNetwork{ID: id + "-dhcp4", Type: "ipv4_dhcp", Link: id})
	}
	if config.DHCP6 {
		d.Networks = append(d.Networks, networkNetwork{ID: id + "-dhcp6", Type: "ipv6_dhcp", Link: id})
	}
	routes, err := routesOf(id, config)
	if err != nil {
		return err
	}
	for i, text := range config.Addresses {
		address, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("has the address %q for %s, which is not an address with a prefix length", text, id)
		}
		network := staticNetwork(fmt.Sprintf("%s-%d", id, i), id, address, netip.Addr{})
		// Routes go with the first address of their family.
		network.Routes = routes[address.Addr().Is4()]
		delete(routes, address.Addr().Is4())
		d.Networks = append(d.Networks, network)
	}
	for _, left := range routes {
		return fmt.Errorf("has a route of %s via %s, and no address of that family", id, left[0].Gateway)
	}
	for _, server := range config.Nameservers.Addresses {
		if _, err := netip.ParseAddr(server); err != nil {
			return fmt.Errorf("has the name server %q for %s, which is not an address", server, id)
		}
		if service := (networkService{Type: "dns", Address: server}); !slices.Contains(d.Services, service) {
			d.Services = append(d.Services, service)
		}
	}
	return nil
}

// routesOf returns the routes, by whether they are of IPv4.
func routesOf(id string, config ethernet) (map[bool][]networkRoute, error) {
	const toIPv4, toIPv6 = "0.0.0.0/0", "::/0"
	type hop struct{ to, via string }
	var hops []hop
	if config.Gateway4 != "" {
		hops = append(hops, hop{toIPv4, config.Gateway4})
	}
	if config.Gateway6 != "" {
		hops = append(hops, hop{toIPv6, config.Gateway6})
	}
	for _, route := range config.Routes {
		hops = append(hops, hop{route.To, route.Via})
	}
	routes := map[bool][]networkRoute{}
	for _, hop := range hops {
		gateway, err := netip.ParseAddr(hop.via)
		if err != nil {
			return nil, fmt.Errorf("has a route of %s via %q, which is not an address", id, hop.via)
		}
		if hop.to == "default" {
			hop.to = toIPv6
			if gateway.Is4() {
				hop.to = toIPv4
			}
		}
		destination, err := netip.ParsePrefix(hop.to)
		if err != nil || destination.Addr().Is4() != gateway.Is4() {
			return nil, fmt.Errorf("has a route of %s to %q via %s, which is not a network of that family", id, hop.to, gateway)
		}
		routes[gateway.Is4()] = append(routes[gateway.Is4()], routeTo(destination, gateway))
	}
	return routes, nil
}

// macOf finds the hardware address of an interface.
func macOf(id string, config ethernet, host *bmov1alpha1.BareMetalHost, only bool) (string, error) {
	if config.Match.MACAddress != "" {
		mac, err := net.ParseMAC(config.Match.MACAddress)
		if err != nil {
			return "", fmt.Errorf("has the macaddress %q for %s, which is not one", config.Match.MACAddress, id)
		}
		return mac.String(), nil
	}
	if host != nil && host.Status.HardwareDetails != nil {
		for _, nic := range host.Status.HardwareDetails.NIC {
			if nic.MAC != "" && (nic.Name == id || nic.Name == config.Match.Name) {
				return strings.ToLower(nic.MAC), nil
			}
		}
	}
	if only && host != nil && host.Spec.BootMACAddress != "" {
		return strings.ToLower(host.Spec.BootMACAddress), nil
	}
	return "", fmt.Errorf("has an interface %s that the server's hardware details do not know: say which it is with match.macaddress", id)
}
