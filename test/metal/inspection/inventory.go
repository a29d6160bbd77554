// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inspection

// Inventory is what Ironic answers at /v1/nodes/NODE/inventory, under inventory, as far as a BMC knows it.
type Inventory struct {
	CPU          CPU          `json:"cpu"`
	Memory       Memory       `json:"memory"`
	Disks        []Disk       `json:"disks"`
	Interfaces   []Interface  `json:"interfaces"`
	PCIDevices   []PCIDevice  `json:"pci_devices"`
	SystemVendor SystemVendor `json:"system_vendor"`
	Boot         Boot         `json:"boot"`
}

// CPU is all processors together.
type CPU struct {
	// Architecture is x86_64 or aarch64; empty if the BMC names another one.
	Architecture string `json:"architecture"`
	// Count of threads.
	Count int `json:"count"`
	// Model and Frequency, in MHz, of the first one.
	Model     string `json:"model_name"`
	Frequency string `json:"frequency"`
}

// Memory of the server.
type Memory struct {
	// PhysicalMiB is called MB by Ironic.
	PhysicalMiB int64 `json:"physical_mb"`
}

// Disk is a drive.
type Disk struct {
	// Name that the BMC has for it. Operating systems may call it otherwise.
	Name string `json:"name"`
	// Size in bytes.
	Size       int64  `json:"size"`
	Model      string `json:"model"`
	Serial     string `json:"serial"`
	Vendor     string `json:"vendor"`
	Rotational bool   `json:"rotational"`
}

// Interface is a network interface that is enabled.
type Interface struct {
	Name       string `json:"name"`
	MAC        string `json:"mac_address"`
	SpeedMbps  int    `json:"speed_mbps"`
	HasCarrier bool   `json:"has_carrier"`
}

// PCIDevice is one function of a PCIe device, with its IDs in hexadecimal.
type PCIDevice struct {
	VendorID  string `json:"vendor_id"`
	ProductID string `json:"product_id"`
	Class     string `json:"class"`
	Revision  string `json:"revision"`
}

// SystemVendor is what is printed on the server.
type SystemVendor struct {
	Manufacturer string   `json:"manufacturer"`
	Product      string   `json:"product_name"`
	Serial       string   `json:"serial_number"`
	Firmware     Firmware `json:"firmware"`
}

// Firmware of the server.
type Firmware struct {
	Vendor  string `json:"vendor"`
	Version string `json:"version"`
}

// Boot is how the server boots.
type Boot struct {
	// Mode is uefi or bios.
	Mode string `json:"current_boot_mode"`
}
