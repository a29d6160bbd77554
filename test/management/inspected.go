// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management

import (
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

const (
	inspectedFlags = 180 // flags of a CPU
	inspectedNICs  = 12
	inspectedDisks = 10
)

// inspect gives a host the hardware details of a server with eight GPUs, so that an object is as big as a real one.
func Inspect(host *bmov1alpha1.BareMetalHost) {
	details := &bmov1alpha1.HardwareDetails{
		SystemVendor: bmov1alpha1.HardwareSystemVendor{Manufacturer: "Example Corporation", ProductName: "GPU Server 8x",
			SerialNumber: host.Name},
		Firmware:     bmov1alpha1.Firmware{BIOS: bmov1alpha1.BIOS{Date: "11/02/2025", Vendor: "Example Corporation", Version: "2.19.0"}},
		RAMMebibytes: 768 << 10,
		Hostname:     host.Name + ".example.com",
		CPU:          bmov1alpha1.CPU{Arch: "x86_64", Model: "Example Platinum 8480+", ClockMegahertz: 3800, Count: 96},
	}
	for n := range inspectedFlags {
		details.CPU.Flags = append(details.CPU.Flags, fmt.Sprintf("cpu_flag_%03d", n))
	}
	for n := range inspectedNICs {
		details.NIC = append(details.NIC, bmov1alpha1.NIC{
			Name: fmt.Sprintf("ens%df0np0", n), Model: "0x15b3 0x1021", MAC: fmt.Sprintf("00:00:5e:00:53:%02x", n),
			IP:        fmt.Sprintf("192.0.2.%d", n+1),
			SpeedGbps: 400, PXE: n == 0,
		})
	}
	for n := range inspectedDisks {
		details.Storage = append(details.Storage, bmov1alpha1.Storage{
			Name: fmt.Sprintf("/dev/disk/by-path/pci-0000:%02x:00.0-nvme-1", n), AlternateNames: []string{fmt.Sprintf("/dev/nvme%dn1", n)},
			SizeBytes: 3840 << 30, Vendor: "Example", Model: "NVME EXAMPLE 3.84TB", SerialNumber: fmt.Sprintf("%s-%02d", host.Name, n),
			WWN: fmt.Sprintf("eui.00000000000000%02x", n), Type: bmov1alpha1.NVME,
		})
	}
	host.Status.HardwareDetails = details
}
