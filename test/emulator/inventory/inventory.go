// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory describes the hardware of an emulated server, which its BMC reports and its deploy agent finds.
package inventory

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Architectures that a processor can have.
const (
	X8664   = "x86_64"
	AArch64 = "aarch64"
)

// Kinds of disks.
const (
	HDD  = "HDD"
	SSD  = "SSD"
	NVMe = "NVMe"
)

// Hardware of one server. The zero value of a field means what its comment says.
type Hardware struct {
	// Manufacturer and Model of the server.
	Manufacturer string `json:"manufacturer,omitempty"`
	Model        string `json:"model,omitempty"`
	// SerialNumber of the server; empty means its name.
	SerialNumber string `json:"serialNumber,omitempty"`
	// BIOSVersion is the version of the firmware.
	BIOSVersion string `json:"biosVersion,omitempty"`
	// BIOS holds the settings of the firmware.
	BIOS map[string]string `json:"bios,omitempty"`
	// Processors are the sockets, at least one.
	Processors []Processor `json:"processors,omitempty"`
	// MemoryGiB is the size of the memory, at least 1.
	MemoryGiB int `json:"memoryGiB,omitempty"`
	// NICs are the network interfaces, at least one: servers are identified by their MAC addresses.
	NICs []NIC `json:"nics,omitempty"`
	// Disks are the drives; the first one takes the image.
	Disks []Disk `json:"disks,omitempty"`
	// GPUs are shown as PCIe devices.
	GPUs []GPU `json:"gpus,omitempty"`
}

// Processor is one or several equal sockets.
type Processor struct {
	// Count of sockets of this kind; 0 means 1.
	Count int `json:"count,omitempty"`
	// Model is what is printed on it.
	Model string `json:"model,omitempty"`
	// Architecture is x86_64, which is the default, or aarch64.
	Architecture string `json:"architecture,omitempty"`
	// Cores of one socket, at least 1.
	Cores int `json:"cores"`
	// Threads of one socket; 0 means as many as cores.
	Threads int `json:"threads,omitempty"`
	// ClockMHz is the highest clock rate; 0 means that it is not reported.
	ClockMHz int `json:"clockMHz,omitempty"`
}

// NIC is a network interface.
type NIC struct {
	// Name as the operating system calls it; empty means eth and its number.
	Name string `json:"name,omitempty"`
	// MAC address; empty means one that is derived from the names of the server and of the interface.
	MAC string `json:"mac,omitempty"`
	// SpeedGbps is the speed of the link; 0 means 25.
	SpeedGbps int `json:"speedGbps,omitempty"`
}

// Disk is a drive.
type Disk struct {
	// Name as the operating system calls it; empty means /dev/sda, /dev/sdb and so on.
	Name string `json:"name,omitempty"`
	// SizeGB is the size in units of 10^9 bytes, at least 1.
	SizeGB int `json:"sizeGB"`
	// Kind is HDD, SSD, which is the default, or NVMe.
	Kind string `json:"kind,omitempty"`
	// Model is what is printed on it.
	Model string `json:"model,omitempty"`
}

// Bytes is the size of the disk.
func (d Disk) Bytes() int { return d.SizeGB * 1000 * 1000 * 1000 }

// GPU is one or several equal accelerators.
type GPU struct {
	// Count of accelerators of this kind; 0 means 1.
	Count int `json:"count,omitempty"`
	// Manufacturer and Model, such as NVIDIA and H100.
	Manufacturer string `json:"manufacturer,omitempty"`
	Model        string `json:"model"`
	// VendorID and DeviceID of the PCI function, such as 0x10de and 0x2330.
	VendorID string `json:"vendorID,omitempty"`
	DeviceID string `json:"deviceID,omitempty"`
}

// Complete returns the hardware of the named server with defaults filled in.
func (h Hardware) Complete(server string) Hardware {
	h.Manufacturer = cmp.Or(h.Manufacturer, "Emulated")
	h.Model = cmp.Or(h.Model, "Rack Server")
	h.SerialNumber = cmp.Or(h.SerialNumber, server)
	h.BIOSVersion = cmp.Or(h.BIOSVersion, "1.0.0")
	if h.BIOS == nil {
		h.BIOS = map[string]string{"BootMode": "Uefi", "SecureBoot": "Disabled"}
	}
	h.Processors, h.NICs, h.Disks, h.GPUs = slices.Clone(h.Processors), slices.Clone(h.NICs), slices.Clone(h.Disks), slices.Clone(h.GPUs)
	for i := range h.Processors {
		p := &h.Processors[i]
		p.Count = cmp.Or(p.Count, 1)
		p.Model = cmp.Or(p.Model, "Emulated Processor")
		p.Architecture = cmp.Or(p.Architecture, X8664)
		p.Threads = cmp.Or(p.Threads, p.Cores)
	}
	for i := range h.NICs {
		n := &h.NICs[i]
		n.Name = cmp.Or(n.Name, fmt.Sprintf("eth%d", i))
		n.MAC = cmp.Or(n.MAC, derivedMAC(server, n.Name))
		n.MAC = strings.ToLower(n.MAC)
		n.SpeedGbps = cmp.Or(n.SpeedGbps, 25)
	}
	for i := range h.Disks {
		d := &h.Disks[i]
		d.Name = cmp.Or(d.Name, "/dev/sd"+string(rune('a'+i%26)))
		d.Kind = cmp.Or(d.Kind, SSD)
		d.Model = cmp.Or(d.Model, "Emulated Disk")
	}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		g.Count = cmp.Or(g.Count, 1)
		g.Manufacturer = cmp.Or(g.Manufacturer, "NVIDIA")
		g.VendorID = cmp.Or(g.VendorID, "0x10de")
		g.DeviceID = cmp.Or(g.DeviceID, "0x2330")
	}
	return h
}

// Validate returns the errors of completed hardware. Each names the field.
func (h Hardware) Validate() error {
	var problems []error
	refuse := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if len(h.Processors) == 0 {
		refuse("processors is empty: a server has at least one")
	}
	for i, p := range h.Processors {
		if p.Cores < 1 || p.Threads < p.Cores || p.Count < 1 {
			refuse("processors[%d] has %d sockets with %d cores and %d threads: there must be at least one core, and no fewer threads than cores", i,
				p.Count, p.Cores, p.Threads)
		}
		if p.Architecture != X8664 && p.Architecture != AArch64 {
			refuse("processors[%d].architecture is %q: it must be %s or %s", i, p.Architecture, X8664, AArch64)
		}
	}
	if h.MemoryGiB < 1 {
		refuse("memoryGiB is %d: it must be at least 1", h.MemoryGiB)
	}
	if len(h.NICs) == 0 {
		refuse("nics is empty: the deploy agent finds its server by a MAC address")
	}
	for i, n := range h.NICs {
		if mac, err := net.ParseMAC(n.MAC); err != nil || len(mac) != 6 {
			refuse("nics[%d].mac is %q: it must be like 52:54:00:12:34:56", i, n.MAC)
		}
		if n.SpeedGbps < 0 {
			refuse("nics[%d].speedGbps is %d: it must not be negative", i, n.SpeedGbps)
		}
	}
	for i, d := range h.Disks {
		if d.SizeGB < 1 {
			refuse("disks[%d].sizeGB is %d: it must be at least 1", i, d.SizeGB)
		}
		if d.Kind != HDD && d.Kind != SSD && d.Kind != NVMe {
			refuse("disks[%d].kind is %q: it must be %s, %s or %s", i, d.Kind, HDD, SSD, NVMe)
		}
	}
	for i, g := range h.GPUs {
		if g.Count < 1 || g.Model == "" {
			refuse("gpus[%d] has count %d and model %q: it needs at least one, and a model", i, g.Count, g.Model)
		}
	}
	return errors.Join(problems...)
}

// MACs are the addresses of all network interfaces.
func (h Hardware) MACs() []string {
	macs := make([]string, 0, len(h.NICs))
	for _, nic := range h.NICs {
		macs = append(macs, nic.MAC)
	}
	return macs
}

// derivedMAC is locally administered, unicast, and the same in each run.
func derivedMAC(server, nic string) string {
	sum := sha256.Sum256([]byte(server + "/" + nic))
	return net.HardwareAddr{0x52, 0x54, 0x00, sum[0], sum[1], sum[2]}.String()
}

// Count returns how many sockets, cores and threads the processors have in all.
func (h Hardware) Count() (sockets, cores, threads int) {
	for _, p := range h.Processors {
		sockets, cores, threads = sockets+p.Count, cores+p.Count*p.Cores, threads+p.Count*p.Threads
	}
	return sockets, cores, threads
}
