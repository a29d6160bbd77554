// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Rehearse renders a template before there is a server, with a made-up one, and with made-up addresses unless the
// values have them. It finds what would go wrong later, while no server is tied up by it yet. The error is that of
// Render; what it makes is only good for being looked at.
func Rehearse(t Template, values Values) ([]byte, error) {
	if values.BareMetalHost == nil {
		values.BareMetalHost = standInHost()
	}
	if values.AllocatedIP == "" {
		values.AllocatedIP, values.PrefixLength, values.Gateway = "192.0.2.10", 24, "192.0.2.1"
	}
	return Render(t, values)
}

// standInHost has what an inspected host has, in addresses that are for documentation.
func standInHost() *bmov1alpha1.BareMetalHost {
	const mac = "00:00:5e:00:53:01"
	return &bmov1alpha1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "example", Name: "example", Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: bmov1alpha1.BareMetalHostSpec{
			BMC:             bmov1alpha1.BMCDetails{Address: "redfish://192.0.2.100/redfish/v1/Systems/1"},
			BootMACAddress:  mac,
			RootDeviceHints: &bmov1alpha1.RootDeviceHints{DeviceName: "/dev/sda"},
		},
		Status: bmov1alpha1.BareMetalHostStatus{HardwareDetails: &bmov1alpha1.HardwareDetails{
			Hostname:     "example",
			SystemVendor: bmov1alpha1.HardwareSystemVendor{Manufacturer: "example", ProductName: "example", SerialNumber: "0"},
			RAMMebibytes: 1 << 20,
			NIC:          []bmov1alpha1.NIC{{Name: "eth0", MAC: mac, PXE: true}, {Name: "eth1", MAC: "00:00:5e:00:53:02"}},
			Storage:      []bmov1alpha1.Storage{{Name: "/dev/sda", SizeBytes: 1 << 40, Rotational: false}},
			CPU:          bmov1alpha1.CPU{Arch: "x86_64", Count: 64},
		}},
	}
}
