// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/scenario"
)

// checkInspected compares what the inspection has found by Redfish with what the server has.
func (w *world) checkInspected(t *testing.T, server scenario.Server) {
	t.Helper()
	host, err := w.Host(t.Context(), server.Name)
	if err != nil {
		t.Fatal(err)
	}
	details := host.Status.HardwareDetails
	if details == nil {
		t.Fatalf("host %s is available, and has no hardware details: it was not inspected", server.Name)
	}
	if diff := cmp.Diff(detailsOf(*server.Hardware), *details); diff != "" {
		t.Errorf("the hardware of host %s is not that of its server (-want +got):\n%s", server.Name, diff)
	}
}

// detailsOf is what Metal3 says of a server with this hardware, which has one kind of processors.
func detailsOf(hardware inventory.Hardware) bmov1alpha1.HardwareDetails {
	_, _, threads := hardware.Count()
	processor := hardware.Processors[0]
	details := bmov1alpha1.HardwareDetails{
		SystemVendor: bmov1alpha1.HardwareSystemVendor{
			Manufacturer: hardware.Manufacturer, ProductName: hardware.Model, SerialNumber: hardware.SerialNumber,
		},
		Firmware:     bmov1alpha1.Firmware{BIOS: bmov1alpha1.BIOS{Vendor: hardware.Manufacturer, Version: hardware.BIOSVersion}},
		RAMMebibytes: hardware.MemoryGiB << 10,
		CPU: bmov1alpha1.CPU{
			Arch: processor.Architecture, Model: processor.Model, Count: threads,
			ClockMegahertz: bmov1alpha1.ClockSpeed(processor.ClockMHz) * bmov1alpha1.MegaHertz,
		},
	}
	for _, nic := range hardware.NICs {
		// Ironic lets all network interfaces boot that the BMC says are enabled.
		details.NIC = append(details.NIC, bmov1alpha1.NIC{Name: nic.Name, MAC: nic.MAC, SpeedGbps: nic.SpeedGbps, PXE: true})
	}
	for i, disk := range hardware.Disks {
		kind := bmov1alpha1.SSD // the operator tells NVMe by a name that only an operating system gives
		if disk.Kind == inventory.HDD {
			kind = bmov1alpha1.HDD
		}
		details.Storage = append(details.Storage, bmov1alpha1.Storage{
			Name: disk.Name, AlternateNames: []string{disk.Name}, Rotational: disk.Kind == inventory.HDD, Type: kind,
			SizeBytes: bmov1alpha1.Capacity(disk.Bytes()), Model: disk.Model, SerialNumber: hardware.DiskSerial(i),
		})
	}
	return details
}
