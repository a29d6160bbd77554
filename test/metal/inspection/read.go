// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"
)

// timeout bounds an inspection. A slow BMC may need seconds for each of some twenty calls.
const timeout = 2 * time.Minute

// Access is how the BMC of a server is reached, in the fields that Ironic has for it.
type Access struct {
	// Address is the URL of the BMC, without a path.
	Address string `json:"redfish_address"`
	// System is the path of the server's ComputerSystem.
	System string `json:"redfish_system_id"`
	// Username and Password of an account.
	Username string `json:"redfish_username"`
	Password string `json:"redfish_password"`
}

// Read reads the inventory of a server. Lists are sorted by name. What a BMC does not say is empty; an error is one of
// reaching it, or of what it answers.
func Read(ctx context.Context, access Access) (*Inventory, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	httpClient := &http.Client{Transport: &http.Transport{}}
	defer httpClient.CloseIdleConnections()
	client, err := gofish.ConnectContext(ctx, gofish.ClientConfig{
		Endpoint: access.Address, Username: access.Username, Password: access.Password, BasicAuth: true, HTTPClient: httpClient,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the BMC at %s, %w", access.Address, err)
	}
	system, err := schemas.GetObject[schemas.ComputerSystem](client, access.System)
	if err != nil {
		return nil, fmt.Errorf("reading %s, %w", access.System, err)
	}
	inventory := newInventory(system)
	for what, read := range map[string]func(*schemas.ComputerSystem) error{
		"processors": inventory.readProcessors, "disks": inventory.readDisks,
		"network interfaces": inventory.readInterfaces, "PCIe devices": inventory.readDevices,
	} {
		if err := read(system); err != nil {
			return nil, fmt.Errorf("reading the %s of %s, %w", what, access.System, err)
		}
	}
	return inventory, nil
}

// newInventory is what the system says itself.
func newInventory(system *schemas.ComputerSystem) *Inventory {
	inventory := &Inventory{SystemVendor: SystemVendor{
		Manufacturer: system.Manufacturer, Product: system.Model, Serial: system.SerialNumber,
		Firmware: Firmware{Vendor: system.Manufacturer, Version: system.BiosVersion},
	}}
	if size := system.MemorySummary.TotalSystemMemoryGiB; size != nil {
		inventory.Memory.PhysicalMiB = int64(*size * 1024)
	}
	switch system.Boot.BootSourceOverrideMode {
	case schemas.UEFIBootSourceOverrideMode:
		inventory.Boot.Mode = "uefi"
	case schemas.LegacyBootSourceOverrideMode:
		inventory.Boot.Mode = "bios"
	}
	return inventory
}

func (i *Inventory) readProcessors(system *schemas.ComputerSystem) error {
	processors, err := sorted(system.Processors, func(p *schemas.Processor) string { return p.ID })
	if err != nil {
		return err
	}
	for _, processor := range processors {
		if processor.ProcessorType != schemas.CPUProcessorType && processor.ProcessorType != "" {
			continue // accelerators and the like
		}
		i.CPU.Count += value(processor.TotalThreads)
		if i.CPU.Model != "" {
			continue
		}
		i.CPU.Model = processor.Model
		i.CPU.Architecture = map[schemas.ProcessorArchitecture]string{
			schemas.X86ProcessorArchitecture: "x86_64", schemas.ARMProcessorArchitecture: "aarch64",
		}[processor.ProcessorArchitecture]
		if clock := value(processor.MaxSpeedMHz); clock > 0 {
			i.CPU.Frequency = strconv.Itoa(clock)
		}
	}
	return nil
}

func (i *Inventory) readDisks(system *schemas.ComputerSystem) error {
	controllers, err := sorted(system.Storage, func(s *schemas.Storage) string { return s.ID })
	if err != nil {
		return err
	}
	for _, controller := range controllers {
		drives, err := sorted(controller.Drives, func(d *schemas.Drive) string { return d.Name })
		if err != nil {
			return err
		}
		for _, drive := range drives {
			i.Disks = append(i.Disks, Disk{
				Name: drive.Name, Size: int64(value(drive.CapacityBytes)), Model: drive.Model, Serial: drive.SerialNumber,
				Vendor: drive.Manufacturer, Rotational: drive.MediaType == schemas.HDDMediaType,
			})
		}
	}
	return nil
}

func (i *Inventory) readInterfaces(system *schemas.ComputerSystem) error {
	interfaces, err := sorted(system.EthernetInterfaces, func(e *schemas.EthernetInterface) string { return e.ID })
	if err != nil {
		return err
	}
	for _, found := range interfaces {
		if found.MACAddress == "" || found.Status.State != schemas.EnabledState {
			continue
		}
		i.Interfaces = append(i.Interfaces, Interface{
			Name: found.ID, MAC: found.MACAddress, SpeedMbps: value(found.SpeedMbps), HasCarrier: found.LinkStatus == schemas.LinkUpLinkStatus,
		})
	}
	return nil
}

func (i *Inventory) readDevices(system *schemas.ComputerSystem) error {
	devices, err := sorted(system.PCIeDevices, func(d *schemas.PCIeDevice) string { return d.ID })
	if err != nil {
		return err
	}
	for _, device := range devices {
		functions, err := sorted(device.PCIeFunctions, func(f *schemas.PCIeFunction) string { return f.ID })
		if err != nil {
			return err
		}
		for _, function := range functions {
			i.PCIDevices = append(i.PCIDevices, PCIDevice{
				VendorID: function.VendorID, ProductID: function.DeviceID, Class: function.ClassCode, Revision: function.RevisionID,
			})
		}
	}
	return nil
}

// sorted reads the members of a collection. The library reads them all at once, and returns them as they come.
func sorted[T any](read func() ([]T, error), name func(T) string) ([]T, error) {
	members, err := read()
	slices.SortFunc(members, func(a, b T) int { return cmp.Compare(name(a), name(b)) })
	return members, err
}

// value is what a BMC says, and 0 if it does not.
func value(said *int) int {
	if said == nil {
		return 0
	}
	return *said
}
