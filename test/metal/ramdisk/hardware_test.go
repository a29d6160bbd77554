// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

const cpuinfo = `processor	: 0
vendor_id	: GenuineIntel
model name	: Acme 9004
physical id	: 0
siblings	: 2
core id		: 0
cpu cores	: 2

processor	: 1
vendor_id	: GenuineIntel
model name	: Acme 9004
physical id	: 0
siblings	: 2
core id		: 1
cpu cores	: 2

`

// files are what the kernel shows of a virtual machine. Loopback and ram disks have no device.
func files() map[string]string {
	return map[string]string{
		"proc/cpuinfo": cpuinfo, "proc/meminfo": "MemTotal: 2023456 kB\n",
		"sys/class/dmi/id/sys_vendor": "Acme\n", "sys/class/dmi/id/product_name": "Virtual server\n",
		"sys/class/dmi/id/product_serial": "vm-01\n", "sys/class/dmi/id/bios_version": "1.16.2\n",
		"sys/class/net/lo/address":   "00:00:00:00:00:00\n",
		"sys/class/net/eth0/address": "52:54:00:00:00:01\n", "sys/class/net/eth0/device/vendor": "0x1af4\n",
		"sys/block/ram0/size": "8192\n", "sys/block/vda/size": "9765625\n", "sys/block/vda/device/vendor": "0x1af4\n",
		"sys/block/vda/queue/rotational": "1\n",
	}
}

func find(t *testing.T, files map[string]string) (inventory.Hardware, error) {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Hardware(root)
}

func TestHardware(t *testing.T) {
	got, err := find(t, files())
	if err != nil {
		t.Fatal(err)
	}
	want := inventory.Hardware{
		Manufacturer: "Acme", Model: "Virtual server", SerialNumber: "vm-01", BIOSVersion: "1.16.2",
		BIOS:       map[string]string{"BootMode": "bios"},
		Processors: []inventory.Processor{{Count: 1, Model: "Acme 9004", Architecture: inventory.X8664, Cores: 2, Threads: 2}}, MemoryGiB: 2,
		NICs:  []inventory.NIC{{Name: "eth0", MAC: "52:54:00:00:00:01"}},
		Disks: []inventory.Disk{{Name: "/dev/vda", SizeGB: 5, Kind: inventory.HDD}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the hardware (-want +got):\n%s", diff)
	}
	others := files()
	others["sys/firmware/efi/config_table"], others["sys/block/vda/queue/rotational"] = "0x1\n", "0\n"
	if got, err = find(t, others); err != nil || got.BIOS["BootMode"] != "uefi" || got.Disks[0].Kind != inventory.SSD {
		t.Errorf("the firmware is UEFI and the disk is an SSD, and found are %+v, %v", got, err)
	}
}

func TestHardwareIsMissing(t *testing.T) {
	for name, tc := range map[string]struct{ reason, file, content, want string }{
		"No NIC":  {"Ironic finds the node by a MAC address", "sys/class/net/eth0/address", "", "nics[0].mac"},
		"No size": {"no image would fit", "sys/block/vda/size", "", "the size of disk vda"},
		"Small":   {"the inventory is in GB", "sys/block/vda/size", "1024\n", "disks[0].sizeGB"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := files()
			changed[tc.file] = tc.content
			if _, err := find(t, changed); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: the error is %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestParseInterface(t *testing.T) {
	for name, tc := range map[string]struct{ reason, commandLine, want, err string }{
		"By iPXE": {
			reason:      "Ironic writes the first, and iPXE fills in addresses",
			commandLine: "text ip=10.0.0.200::10.0.0.1:255.255.255.0 ipa-debug=1 BOOTIF=52:54:00:00:00:01 initrd=deploy_ramdisk\n",
			want:        "52:54:00:00:00:01 10.0.0.200/24 by 10.0.0.1",
		},
		"No gateway": {reason: "Ironic is in the same network", commandLine: "ip=10.0.0.200:::255.255.255.0 BOOTIF=52:54:00:00:00:01",
			want: "52:54:00:00:00:01 10.0.0.200/24 by invalid IP"},
		"Bad gateway": {reason: "Ironic would not be reached", commandLine: "ip=10.0.0.200::x:255.255.255.0 BOOTIF=52:54:00:00:00:01",
			err: "the gateway"},
		"Not by network": {reason: "there is no address", commandLine: "console=ttyS0", err: "it must have BOOTIF=MAC and ip="},
		"No MAC":         {reason: "any interface could be meant", commandLine: "ip=10.0.0.200::10.0.0.1:255.255.255.0 BOOTIF=e", err: "BOOTIF"},
		"No DHCP":        {reason: "iPXE had no address", commandLine: "ip=::: BOOTIF=52:54:00:00:00:01", err: "ip of the kernel"},
		"By the kernel":  {reason: "the kernel has no DHCP", commandLine: "ip=dhcp BOOTIF=52:54:00:00:00:01", err: `is "dhcp"`},
		"No netmask": {reason: "Ironic would not be reached", commandLine: "ip=10.0.0.200::10.0.0.1: BOOTIF=52:54:00:00:00:01",
			err: `the netmask ""`},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := ParseInterface(tc.commandLine)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: the error is %v, want one with %q", tc.reason, err, tc.err)
				}
				return
			}
			if got := fmt.Sprintf("%s %s by %s", found.MAC, found.Address, found.Gateway); err != nil || got != tc.want {
				t.Errorf("%s: the interface is %s, %v, want %s", tc.reason, got, err, tc.want)
			}
		})
	}
}
