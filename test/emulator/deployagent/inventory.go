// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package deployagent

import (
	"cmp"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

// inventory is the hardware of the server as an operating system on it finds it, in the form in which ironic-python-agent
// sends it to an inspection: its collector default.
func (a *Agent) inventory() map[string]any {
	has := a.options.Server.Hardware
	nics, disks, devices := []map[string]any{}, []map[string]any{}, []map[string]any{}
	bootInterface := ""
	for _, nic := range has.NICs {
		nics = append(nics, map[string]any{
			"name": nic.Name, "mac_address": nic.MAC, "has_carrier": true, "speed_mbps": nic.SpeedGbps * 1000,
		})
		bootInterface = cmp.Or(bootInterface, nic.MAC)
	}
	for _, disk := range has.Disks {
		disks = append(disks, map[string]any{
			"name": disk.Name, "model": disk.Model, "size": disk.Bytes(), "rotational": disk.Kind == inventory.HDD,
		})
	}
	for _, gpu := range has.GPUs {
		for range gpu.Count {
			devices = append(devices, map[string]any{
				"vendor_id": strings.TrimPrefix(gpu.VendorID, "0x"), "product_id": strings.TrimPrefix(gpu.DeviceID, "0x"),
				"class": "030200", // a 3D controller
			})
		}
	}
	sockets, _, threads := has.Count()
	cpu := map[string]any{"count": threads, "socket_count": sockets}
	if len(has.Processors) > 0 {
		cpu["model_name"], cpu["architecture"] = has.Processors[0].Model, has.Processors[0].Architecture
	}
	sent := map[string]any{
		"inventory": map[string]any{
			"hostname": a.options.Server.Name, "interfaces": nics, "disks": disks, "cpu": cpu,
			"memory": map[string]int{"total": has.MemoryGiB << 30, "physical_mb": has.MemoryGiB << 10},
			"system_vendor": map[string]any{
				"manufacturer": has.Manufacturer, "product_name": has.Model, "serial_number": has.SerialNumber,
				"firmware": map[string]string{"vendor": has.Manufacturer, "version": has.BIOSVersion},
			},
			"boot": map[string]string{"current_boot_mode": "uefi", "pxe_interface": bootInterface},
		},
		"root_disk": nil, "boot_interface": bootInterface, "pci_devices": devices, "error": nil,
	}
	if len(disks) > 0 {
		sent["root_disk"] = disks[0]
	}
	return sent
}

// diskName is the device name of the disk that takes the image, for messages.
func (a *Agent) diskName() string {
	if disks := a.options.Server.Hardware.Disks; len(disks) > 0 {
		return disks[0].Name
	}
	return "/dev/sda"
}
