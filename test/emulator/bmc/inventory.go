// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"strconv"

	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

// addInventory adds the hardware of the server.
func (s *System) addInventory(t tree) {
	t.collect(s.below("Processors"), "Processor", s.processors()...)
	// One module of memory: no client depends on the number of modules.
	t.collect(s.below("Memory"), "Memory", document(schemas.Memory{
		Entity: entity(s.below("Memory"), "DIMM1"), ODataType: "#Memory.v1_17_0.Memory",
		CapacityMiB: ptr.To(s.hardware.MemoryGiB * 1024), Status: healthy(),
	}, nil))
	t.collect(s.below("EthernetInterfaces"), "EthernetInterface", s.nics()...)
	s.addDisks(t)
	s.addGPUs(t)
	t.add(document(schemas.Bios{
		Entity: entity(s.Path(), "Bios"), ODataType: "#Bios.v1_2_1.Bios",
	}, map[string]any{"Attributes": s.hardware.BIOS}))
	t.add(s.chassis())
}

func entity(path, id string) schemas.Entity {
	return schemas.Entity{ODataID: path + "/" + id, ID: id, Name: id}
}

func (s *System) processors() []map[string]any {
	var list []map[string]any
	for _, p := range s.hardware.Processors {
		arch, set := schemas.X86ProcessorArchitecture, schemas.X8664InstructionSet
		if p.Architecture == inventory.AArch64 {
			arch, set = schemas.ARMProcessorArchitecture, schemas.ARMA64InstructionSet
		}
		for range p.Count {
			id := fmt.Sprintf("CPU%d", len(list))
			model := schemas.Processor{
				Entity: entity(s.below("Processors"), id), ODataType: "#Processor.v1_17_0.Processor", Socket: id, Model: p.Model,
				ProcessorType: schemas.CPUProcessorType, ProcessorArchitecture: arch, InstructionSet: set,
				TotalCores: ptr.To(p.Cores), TotalThreads: ptr.To(p.Threads), Status: healthy(),
			}
			if p.ClockMHz > 0 {
				model.MaxSpeedMHz = ptr.To(p.ClockMHz)
			}
			list = append(list, document(model, nil))
		}
	}
	return list
}

func (s *System) nics() []map[string]any {
	var list []map[string]any
	for _, nic := range s.hardware.NICs {
		list = append(list, document(schemas.EthernetInterface{
			Entity: entity(s.below("EthernetInterfaces"), nic.Name), ODataType: "#EthernetInterface.v1_9_0.EthernetInterface",
			MACAddress: nic.MAC, PermanentMACAddress: nic.MAC, SpeedMbps: ptr.To(nic.SpeedGbps * 1000), FullDuplex: true,
			InterfaceEnabled: true, LinkStatus: schemas.LinkUpLinkStatus, Status: healthy(),
		}, nil))
	}
	return list
}

// addDisks adds the disks as Storage, and as SimpleStorage for older clients, which do not read the other.
func (s *System) addDisks(t tree) {
	var storage, simpleStorage, drives []map[string]any
	simple := schemas.SimpleStorage{
		Entity: entity(s.below("SimpleStorage"), "1"), ODataType: "#SimpleStorage.v1_3_1.SimpleStorage", Status: healthy(),
	}
	for i, disk := range s.hardware.Disks {
		media, protocol := schemas.SSDMediaType, schemas.SATAProtocol
		switch disk.Kind {
		case inventory.HDD:
			media = schemas.HDDMediaType
		case inventory.NVMe:
			protocol = schemas.NVMeProtocol
		}
		drive := entity(s.below("Storage/1/Drives"), strconv.Itoa(i))
		drive.Name = disk.Name
		drives = append(drives, document(schemas.Drive{
			Entity: drive, ODataType: "#Drive.v1_17_0.Drive", Model: disk.Model, CapacityBytes: ptr.To(disk.Bytes()), MediaType: media,
			Protocol: protocol, SerialNumber: fmt.Sprintf("%s-D%d", s.hardware.SerialNumber, i), Status: healthy(),
		}, nil))
		simple.Devices = append(simple.Devices, schemas.Device{
			Name: disk.Name, Model: disk.Model, CapacityBytes: ptr.To(uint(disk.Bytes())), Status: healthy(),
		})
	}
	if len(drives) > 0 {
		simpleStorage = append(simpleStorage, document(simple, nil))
		storage = append(storage, document(schemas.Storage{
			Entity: entity(s.below("Storage"), "1"), ODataType: "#Storage.v1_15_0.Storage", Status: healthy(),
		}, map[string]any{"Drives": links(pathsOf(drives)...), "Drives@odata.count": len(drives)}))
	}
	t.add(drives...)
	t.collect(s.below("SimpleStorage"), "SimpleStorage", simpleStorage...)
	t.collect(s.below("Storage"), "Storage", storage...)
}

// addGPUs adds the GPUs, each with its PCIe function. Metal3 and Ironic identify GPUs by it.
func (s *System) addGPUs(t tree) {
	var list []map[string]any
	for _, gpu := range s.hardware.GPUs {
		for range gpu.Count {
			device := entity(s.pciePath(), fmt.Sprintf("GPU%d", len(list)))
			functions := device.ODataID + "/PCIeFunctions"
			t.collect(functions, "PCIeFunction", document(schemas.PCIeFunction{
				Entity: entity(functions, "0"), ODataType: "#PCIeFunction.v1_5_0.PCIeFunction",
				DeviceClass: schemas.DisplayControllerDeviceClass, ClassCode: "0x030200", VendorID: gpu.VendorID, DeviceID: gpu.DeviceID,
				FunctionType: schemas.PhysicalFunctionType, FunctionID: ptr.To(0), Status: healthy(),
			}, map[string]any{"Links": map[string]any{"PCIeDevice": link(device.ODataID)}}))
			device.Name = gpu.Manufacturer + " " + gpu.Model
			list = append(list, document(schemas.PCIeDevice{
				Entity: device, ODataType: "#PCIeDevice.v1_11_0.PCIeDevice", Manufacturer: gpu.Manufacturer, Model: gpu.Model,
				DeviceType: schemas.SingleFunctionDeviceType, SerialNumber: s.hardware.SerialNumber + "-" + device.ID, Status: healthy(),
			}, map[string]any{"PCIeFunctions": link(functions)}))
		}
	}
	t.collect(s.pciePath(), "PCIeDevice", list...)
}

func (s *System) chassis() map[string]any {
	h := s.hardware
	return document(schemas.Chassis{
		Entity:    schemas.Entity{ODataID: s.chassisPath(), ID: s.identity.Name, Name: s.identity.Name},
		ODataType: "#Chassis.v1_23_0.Chassis", ChassisType: schemas.RackMountChassisType, Manufacturer: h.Manufacturer, Model: h.Model,
		SerialNumber: h.SerialNumber, PowerState: s.power.PowerState(), Status: healthy(),
	}, map[string]any{
		"PCIeDevices": link(s.pciePath()),
		"Links":       map[string]any{"ComputerSystems": links(s.Path()), "ManagedBy": links(s.managerPath())},
	})
}
