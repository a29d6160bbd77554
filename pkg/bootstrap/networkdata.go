// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
)

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
	// Name is the new name of the interface. cloud-init reads it, although OpenStack does not have it.
	Name      string   `json:"name,omitempty"`
	BondLinks []string `json:"bond_links,omitempty"`
	VLAN      *int     `json:"vlan_id,omitempty"`
	VLANLink  string   `json:"vlan_link,omitempty"`
	VLANMAC   string   `json:"vlan_mac_address,omitempty"`
	// bond has the parameters of a bond by their keys.
	bond map[string]any
}

// MarshalJSON writes the parameters of a bond beside the other fields.
func (l networkLink) MarshalJSON() ([]byte, error) {
	type plain networkLink
	link, err := json.Marshal(plain(l))
	if err != nil || len(l.bond) == 0 {
		return link, err
	}
	parameters, err := json.Marshal(l.bond)
	if err != nil {
		return nil, err
	}
	return append(append(bytes.TrimSuffix(link, []byte("}")), ','), parameters[1:]...), nil
}

type networkNetwork struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Link string `json:"link"`
	// NetworkID is required by OpenStack's schema. Nothing reads it.
	NetworkID string         `json:"network_id,omitempty"`
	Address   string         `json:"ip_address,omitempty"`
	Netmask   string         `json:"netmask,omitempty"`
	Routes    []networkRoute `json:"routes,omitempty"`
	// DNS and Search are for this network alone. cloud-init reads them, although OpenStack does not have them.
	DNS    []string `json:"dns_nameservers,omitempty"`
	Search []string `json:"dns_search,omitempty"`
}

type networkRoute struct {
	Network string `json:"network"`
	Netmask string `json:"netmask"`
	Gateway string `json:"gateway"`
	// Metric of the route. cloud-init reads it, although OpenStack does not have it.
	Metric *int `json:"metric,omitempty"`
}

type networkService struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

// bootLink is the ID of the only link.
const bootLink = "boot"

// NetworkData returns the network_data.json for Metal3's config drive of a server with one address. The interface has
// the hardware address mac. Equal values give equal bytes.
func NetworkData(address *plan.Address, mac string) ([]byte, error) {
	if !address.Address.IsValid() {
		return nil, errors.New("building network data, the server has no address")
	}
	hardware, err := net.ParseMAC(mac)
	if err != nil || len(hardware) != 6 {
		return nil, fmt.Errorf("building network data, %q is not the MAC address of the interface that the server boots from: set "+
			"spec.bootMACAddress of its BareMetalHost", mac)
	}
	if address.Gateway.IsValid() && address.Gateway.Is4() != address.Address.Addr().Is4() {
		return nil, fmt.Errorf("building network data, address %s and gateway %s are not of one family", address.Address, address.Gateway)
	}
	data := networkData{
		Links:    []networkLink{{ID: bootLink, Type: "phy", MAC: hardware.String()}},
		Networks: []networkNetwork{staticNetwork("address", bootLink, address.Address, address.Gateway)},
		Services: []networkService{},
	}
	for _, server := range address.DNS {
		data.Services = append(data.Services, networkService{Type: "dns", Address: server.String()})
	}
	return json.MarshalIndent(data, "", "  ")
}

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

func netmask(prefix netip.Prefix) string {
	return net.IP(net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())).String()
}

// ReadNetworkData returns network data from a user or a template as the network_data.json of Metal3's config drive. It
// takes OpenStack network_data, in JSON or YAML, and cloud-init's network configuration of version 2 (netplan.go). It
// finds the interfaces in the host's hardware details by their name or, if there is only one, by the MAC address that
// the host boots from. The error is a sentence about the document, without a subject.
func ReadNetworkData(document []byte, host *bmov1alpha1.BareMetalHost) ([]byte, error) {
	object, config, err := parseNetworkData(document)
	if err != nil || config == nil {
		return object, err
	}
	data, err := config.networkData(host)
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(data, "", "  ")
}

// CheckNetworkData checks network data as far as possible without a host, and returns what will be different on the
// server. The error and each warning are sentences about the document, without a subject.
func CheckNetworkData(document []byte) (warnings []string, err error) {
	_, config, err := parseNetworkData(document)
	if err != nil || config == nil {
		return nil, err
	}
	return config.warnings(), nil
}

// parseNetworkData returns the document as JSON, without "network" around it, and its configuration if of version 2.
func parseNetworkData(document []byte) (object []byte, config *version2, err error) {
	if err := checkSize("the network data", len(document)); err != nil {
		return nil, nil, fmt.Errorf("is too large: %w", err)
	}
	object, err = yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, nil, errors.New("is neither YAML nor JSON" + position(err))
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil || len(fields) == 0 {
		return nil, nil, errors.New("is not network data: it must be a mapping with \"links\" and \"networks\", or with \"version: 2\" and " +
			"\"ethernets\"")
	}
	if inner, wrapped := fields["network"]; wrapped && len(fields) == 1 {
		object, fields = inner, nil
		if err := json.Unmarshal(inner, &fields); err != nil {
			return nil, nil, errors.New("has a \"network\" that is not a mapping")
		}
	}
	if fields["version"] == nil && fields["ethernets"] == nil {
		return object, nil, checkOpenStack(object)
	}
	config, err = readVersion2(fields)
	return object, config, err
}

// checkOpenStack checks whether the parts of network_data.json go together. It passes other parts on.
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
