// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
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
