// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

// bytesPerGB is the unit of disks in an inventory.
const bytesPerGB = 1000 * 1000 * 1000

// Hardware finds the hardware of this machine in the file systems of its kernel: below root are proc and sys.
func Hardware(root string) (inventory.Hardware, error) {
	processes, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return inventory.Hardware{}, fmt.Errorf("finding the hardware, %w", err)
	}
	processor, err := findProcessors(processes)
	if err != nil {
		return inventory.Hardware{}, fmt.Errorf("finding the processors, %w", err)
	}
	memory, err := processes.Meminfo()
	if err != nil {
		return inventory.Hardware{}, fmt.Errorf("finding the memory, %w", err)
	}
	sys := filepath.Join(root, "sys")
	identity := func(name string) string { return read(sys, "class/dmi/id", name) }
	h := inventory.Hardware{
		Manufacturer: identity("sys_vendor"), Model: identity("product_name"), SerialNumber: identity("product_serial"),
		BIOSVersion: identity("bios_version"), BIOS: map[string]string{"BootMode": "bios"}, Processors: []inventory.Processor{processor},
		// The kernel has some of it for itself.
		MemoryGiB: int((*memory.MemTotal + 1<<20 - 1) >> 20),
	}
	if _, err := os.Stat(filepath.Join(sys, "firmware/efi")); err == nil {
		h.BIOS["BootMode"] = "uefi"
	}
	// Devices that are not in software only.
	nics, err := filepath.Glob(filepath.Join(sys, "class/net/*/device"))
	if err != nil {
		return inventory.Hardware{}, err
	}
	for _, device := range nics {
		path := filepath.Dir(device)
		h.NICs = append(h.NICs, inventory.NIC{Name: filepath.Base(path), MAC: read(path, "address")})
	}
	disks, err := filepath.Glob(filepath.Join(sys, "block/*/device"))
	if err != nil {
		return inventory.Hardware{}, err
	}
	for _, device := range disks {
		path := filepath.Dir(device)
		sectors, err := strconv.Atoi(read(path, "size"))
		if err != nil {
			return inventory.Hardware{}, fmt.Errorf("finding the size of disk %s, %w", filepath.Base(path), err)
		}
		kind := inventory.SSD
		if read(path, "queue/rotational") == "1" {
			kind = inventory.HDD
		}
		h.Disks = append(h.Disks, inventory.Disk{Name: "/dev/" + filepath.Base(path), SizeGB: sectors * sector / bytesPerGB, Kind: kind})
	}
	if err := h.Validate(); err != nil {
		return inventory.Hardware{}, fmt.Errorf("this machine cannot be a server: %w", err)
	}
	return h, nil
}

// findProcessors returns the processors of the machine, which are all of a kind.
func findProcessors(processes procfs.FS) (inventory.Processor, error) {
	threads, err := processes.CPUInfo()
	if err != nil {
		return inventory.Processor{}, err
	}
	sockets := map[string]bool{}
	found := inventory.Processor{Architecture: inventory.X8664}
	for _, thread := range threads {
		sockets[thread.PhysicalID] = true
		found.Model, found.Cores = thread.ModelName, int(thread.CPUCores)
	}
	if found.Count = len(sockets); found.Count > 0 {
		found.Threads = len(threads) / found.Count
	}
	return found, nil
}

// read returns the line of a file, or nothing if there is none: not all hardware has all of them.
func read(path ...string) string {
	content, _ := os.ReadFile(filepath.Join(path...))
	return strings.TrimSpace(string(content))
}
