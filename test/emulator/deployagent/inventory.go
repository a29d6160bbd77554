// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package deployagent

import (
	"cmp"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

// inspected is what the agent sends to an inspection, in the form of ironic-python-agent: its collector default.
type inspected struct {
	Inventory     found       `json:"inventory"`
	RootDisk      *foundDisk  `json:"root_disk"`
	BootInterface string      `json:"boot_interface"`
	PCIDevices    []pciDevice `json:"pci_devices,omitempty"`
	Error         *string     `json:"error"`
}

type found struct {
	Hostname     string       `json:"hostname"`
	Interfaces   []foundNIC   `json:"interfaces"`
	Disks        []foundDisk  `json:"disks"`
	CPU          foundCPU     `json:"cpu"`
	Memory       foundMemory  `json:"memory"`
	SystemVendor systemVendor `json:"system_vendor"`
	Boot         foundBoot    `json:"boot"`
}

type foundNIC struct {
	Name       string `json:"name"`
	MAC        string `json:"mac_address"`
	HasCarrier bool   `json:"has_carrier"`
	SpeedMbps  int    `json:"speed_mbps"`
}

type foundDisk struct {
	Name       string `json:"name"`
	Model      string `json:"model"`
	Size       int    `json:"size"`
	Rotational bool   `json:"rotational"`
}

type foundCPU struct {
	Model        string `json:"model_name"`
	Architecture string `json:"architecture"`
	Count        int    `json:"count"`
	SocketCount  int    `json:"socket_count"`
}

type foundMemory struct {
	Total      int `json:"total"`
	PhysicalMB int `json:"physical_mb"`
}

type systemVendor struct {
	Manufacturer string   `json:"manufacturer"`
	ProductName  string   `json:"product_name"`
	SerialNumber string   `json:"serial_number"`
	Firmware     firmware `json:"firmware"`
}

type firmware struct {
	Vendor  string `json:"vendor"`
	Version string `json:"version"`
}

type foundBoot struct {
	Mode         string `json:"current_boot_mode"`
	PXEInterface string `json:"pxe_interface"`
}

type pciDevice struct {
	Vendor  string `json:"vendor_id"`
	Product string `json:"product_id"`
	// Class is that of a 3D controller.
	Class string `json:"class"`
}

// inventory is the hardware of the server as an operating system on it finds it.
func (a *Agent) inventory() inspected {
	has := a.options.Server.Hardware
	made := inspected{Inventory: found{
		Hostname: a.options.Server.Name, Interfaces: []foundNIC{}, Disks: []foundDisk{},
		Memory: foundMemory{Total: has.MemoryGiB << 30, PhysicalMB: has.MemoryGiB << 10},
		SystemVendor: systemVendor{
			Manufacturer: has.Manufacturer, ProductName: has.Model, SerialNumber: has.SerialNumber,
			Firmware: firmware{Vendor: has.Manufacturer, Version: has.BIOSVersion},
		},
		Boot: foundBoot{Mode: "uefi"},
	}}
	for _, nic := range has.NICs {
		made.Inventory.Interfaces = append(made.Inventory.Interfaces,
			foundNIC{Name: nic.Name, MAC: nic.MAC, HasCarrier: true, SpeedMbps: nic.SpeedGbps * 1000})
		made.BootInterface = cmp.Or(made.BootInterface, nic.MAC)
	}
	made.Inventory.Boot.PXEInterface = made.BootInterface
	for _, disk := range has.Disks {
		made.Inventory.Disks = append(made.Inventory.Disks,
			foundDisk{Name: disk.Name, Model: disk.Model, Size: disk.Bytes(), Rotational: disk.Kind == inventory.HDD})
	}
	if len(made.Inventory.Disks) > 0 {
		made.RootDisk = &made.Inventory.Disks[0]
	}
	sockets, _, threads := has.Count()
	made.Inventory.CPU = foundCPU{Count: threads, SocketCount: sockets}
	if len(has.Processors) > 0 {
		made.Inventory.CPU.Model, made.Inventory.CPU.Architecture = has.Processors[0].Model, has.Processors[0].Architecture
	}
	for _, gpu := range has.GPUs {
		for range gpu.Count {
			made.PCIDevices = append(made.PCIDevices, pciDevice{
				Vendor: strings.TrimPrefix(gpu.VendorID, "0x"), Product: strings.TrimPrefix(gpu.DeviceID, "0x"), Class: "030200",
			})
		}
	}
	return made
}

// diskName is the device name of the disk that takes the image, for messages.
func (a *Agent) diskName() string {
	if disks := a.options.Server.Hardware.Disks; len(disks) > 0 {
		return disks[0].Name
	}
	return "/dev/sda"
}
