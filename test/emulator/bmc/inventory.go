// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

// part is a component of a server: the last part of its path, and its properties.
type part struct {
	id       string
	document map[string]any
}

// parts are all components of a kind, the members of a collection.
type parts struct {
	// path of the collection below that of the system or chassis, and what it is a collection of.
	path, kind string
	list       func(*System) []part
}

func inventoryRoutes() map[string]methods {
	system, chassis := root+"/Systems/{server}", root+"/Chassis/{server}"
	routes := map[string]methods{
		system + "/Bios": get(func(c *call) map[string]any { return c.system.bios() }),
		chassis:          get(func(c *call) map[string]any { return c.system.chassis() }),
		system + "/Storage/1/Drives/{part}": get(func(c *call) map[string]any {
			return find(c.system.drives(), c.PathValue("part"))
		}),
		chassis + "/PCIeDevices/{part}/PCIeFunctions": get(func(c *call) map[string]any {
			if find(c.system.gpus(), c.PathValue("part")) == nil {
				return nil
			}
			return collection(c.URL.Path, "PCIeFunctionCollection", "PCIe Functions", []string{c.URL.Path + "/0"})
		}),
		chassis + "/PCIeDevices/{part}/PCIeFunctions/0": get(func(c *call) map[string]any {
			return c.system.gpuFunction(c.PathValue("part"))
		}),
	}
	for _, kind := range []parts{
		{path: system + "/Processors", kind: "ProcessorCollection", list: (*System).processors},
		{path: system + "/Memory", kind: "MemoryCollection", list: (*System).memory},
		{path: system + "/EthernetInterfaces", kind: "EthernetInterfaceCollection", list: (*System).nics},
		{path: system + "/SimpleStorage", kind: "SimpleStorageCollection", list: (*System).simpleStorage},
		{path: system + "/Storage", kind: "StorageCollection", list: (*System).storage},
		{path: chassis + "/PCIeDevices", kind: "PCIeDeviceCollection", list: (*System).gpus},
	} {
		routes[kind.path] = get(func(c *call) map[string]any {
			var members []string
			for _, part := range kind.list(c.system) {
				members = append(members, c.URL.Path+"/"+part.id)
			}
			return collection(c.URL.Path, kind.kind, kind.kind, members)
		})
		routes[kind.path+"/{part}"] = get(func(c *call) map[string]any {
			return find(kind.list(c.system), c.PathValue("part"))
		})
	}
	return routes
}

func find(list []part, id string) map[string]any {
	for _, part := range list {
		if part.id == id {
			return part.document
		}
	}
	return nil
}

func entity(path, id string) schemas.Entity {
	return schemas.Entity{ODataID: path + "/" + id, ID: id, Name: id}
}

func (s *System) processors() []part {
	var list []part
	for _, p := range s.hardware.Processors {
		arch, set := architecture(p)
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
			list = append(list, part{id, document(model, nil)})
		}
	}
	return list
}

// memory is one module: no client depends on the number of modules.
func (s *System) memory() []part {
	return []part{{"DIMM1", document(schemas.Memory{
		Entity: entity(s.below("Memory"), "DIMM1"), ODataType: "#Memory.v1_17_0.Memory",
		CapacityMiB: ptr.To(s.hardware.MemoryGiB * 1024), Status: healthy(),
	}, nil)}}
}

func (s *System) nics() []part {
	list := make([]part, 0, len(s.hardware.NICs))
	for _, nic := range s.hardware.NICs {
		list = append(list, part{nic.Name, document(schemas.EthernetInterface{
			Entity: entity(s.below("EthernetInterfaces"), nic.Name), ODataType: "#EthernetInterface.v1_9_0.EthernetInterface",
			MACAddress: nic.MAC, PermanentMACAddress: nic.MAC, SpeedMbps: ptr.To(nic.SpeedGbps * 1000), FullDuplex: true,
			InterfaceEnabled: true, LinkStatus: schemas.LinkUpLinkStatus, Status: healthy(),
		}, nil)})
	}
	return list
}

// simpleStorage is for older clients, which do not read storage.
func (s *System) simpleStorage() []part {
	if len(s.hardware.Disks) == 0 {
		return nil
	}
	model := schemas.SimpleStorage{
		Entity: entity(s.below("SimpleStorage"), "1"), ODataType: "#SimpleStorage.v1_3_1.SimpleStorage", Status: healthy(),
	}
	for _, disk := range s.hardware.Disks {
		model.Devices = append(model.Devices, schemas.Device{
			Name: disk.Name, Model: disk.Model, CapacityBytes: ptr.To(uint(disk.Bytes())), Status: healthy(),
		})
	}
	return []part{{"1", document(model, nil)}}
}

func (s *System) storage() []part {
	if len(s.hardware.Disks) == 0 {
		return nil
	}
	var paths []string
	for _, drive := range s.drives() {
		paths = append(paths, s.drive(drive.id))
	}
	return []part{{"1", document(schemas.Storage{
		Entity: entity(s.below("Storage"), "1"), ODataType: "#Storage.v1_15_0.Storage", Status: healthy(),
	}, map[string]any{"Drives": links(paths...), "Drives@odata.count": len(paths)})}}
}

func (s *System) drives() []part {
	list := make([]part, 0, len(s.hardware.Disks))
	for i, disk := range s.hardware.Disks {
		id := strconv.Itoa(i)
		media, protocol := schemas.SSDMediaType, schemas.SATAProtocol
		switch disk.Kind {
		case inventory.HDD:
			media = schemas.HDDMediaType
		case inventory.NVMe:
			protocol = schemas.NVMeProtocol
		}
		list = append(list, part{id, document(schemas.Drive{
			Entity:    schemas.Entity{ODataID: s.drive(id), ID: id, Name: disk.Name},
			ODataType: "#Drive.v1_17_0.Drive", Model: disk.Model, CapacityBytes: ptr.To(disk.Bytes()), MediaType: media,
			Protocol: protocol, SerialNumber: fmt.Sprintf("%s-D%d", s.hardware.SerialNumber, i), Status: healthy(),
		}, nil)})
	}
	return list
}

func (s *System) gpus() []part {
	var list []part
	for _, gpu := range s.hardware.GPUs {
		for range gpu.Count {
			id := fmt.Sprintf("GPU%d", len(list))
			list = append(list, part{id, document(schemas.PCIeDevice{
				Entity:    schemas.Entity{ODataID: s.pciePath() + "/" + id, ID: id, Name: gpu.Manufacturer + " " + gpu.Model},
				ODataType: "#PCIeDevice.v1_11_0.PCIeDevice", Manufacturer: gpu.Manufacturer, Model: gpu.Model,
				DeviceType: schemas.SingleFunctionDeviceType, SerialNumber: s.hardware.SerialNumber + "-" + id, Status: healthy(),
			}, map[string]any{"PCIeFunctions": link(s.pciePath() + "/" + id + "/PCIeFunctions")})})
		}
	}
	return list
}

func (s *System) pcieDevices() []string {
	var paths []string
	for _, gpu := range s.gpus() {
		paths = append(paths, s.pciePath()+"/"+gpu.id)
	}
	return paths
}

// gpuFunction is the PCIe function of a GPU. Metal3 and Ironic identify GPUs by it.
func (s *System) gpuFunction(device string) map[string]any {
	n := 0
	for _, gpu := range s.hardware.GPUs {
		for range gpu.Count {
			if id := fmt.Sprintf("GPU%d", n); id == device {
				path := s.pciePath() + "/" + id + "/PCIeFunctions"
				return document(schemas.PCIeFunction{
					Entity: entity(path, "0"), ODataType: "#PCIeFunction.v1_5_0.PCIeFunction",
					DeviceClass: schemas.DisplayControllerDeviceClass, ClassCode: "0x030200", VendorID: gpu.VendorID, DeviceID: gpu.DeviceID,
					FunctionType: schemas.PhysicalFunctionType, FunctionID: ptr.To(0), Status: healthy(),
				}, map[string]any{"Links": map[string]any{"PCIeDevice": link(s.pciePath() + "/" + id)}})
			}
			n++
		}
	}
	return nil
}

func (s *System) bios() map[string]any {
	attributes := schemas.SettingsAttributes{}
	for _, name := range slices.Sorted(maps.Keys(s.hardware.BIOS)) {
		attributes[name] = s.hardware.BIOS[name]
	}
	return document(schemas.Bios{
		Entity: entity(s.Path(), "Bios"), ODataType: "#Bios.v1_2_1.Bios",
	}, map[string]any{"Attributes": attributes})
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
