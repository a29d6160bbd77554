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
)

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
