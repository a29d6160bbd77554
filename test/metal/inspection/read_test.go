// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/bmc"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

type off struct{}

func (off) PowerState() schemas.PowerState { return schemas.OffPowerState }
func (off) Reset(schemas.ResetType)        {}

// startBMC is the BMC of a server with this hardware.
func startBMC(t *testing.T, hardware inventory.Hardware, has ...faults.Fault) Access {
	t.Helper()
	set := &faults.Set{}
	for _, fault := range has {
		if err := set.Put(fault); err != nil {
			t.Fatal(err)
		}
	}
	system := bmc.NewSystem(bmc.Identity{Name: "s1", UUID: "1", Username: "admin", Password: "secret"}, hardware.Complete("s1"), off{}, set)
	server := httptest.NewServer(bmc.NewService(clock.RealClock{}, system))
	t.Cleanup(server.Close)
	return Access{Address: server.URL, System: system.Path(), Username: "admin", Password: "secret"}
}

func TestRead(t *testing.T) {
	small := inventory.Hardware{Processors: []inventory.Processor{{Cores: 4, Architecture: inventory.AArch64}}, MemoryGiB: 8, NICs: []inventory.NIC{{MAC: "52:54:00:00:00:01"}}}
	large := inventory.Hardware{
		Manufacturer: "Acme", Model: "G8", BIOSVersion: "2.1", MemoryGiB: 512,
		Processors: []inventory.Processor{{Count: 2, Model: "Acme 9654", Cores: 16, Threads: 32, ClockMHz: 2400}},
		NICs:       []inventory.NIC{{Name: "eth0", MAC: "52:54:00:00:01:01", SpeedGbps: 100}, {Name: "eth1", MAC: "52:54:00:00:01:81"}},
		Disks:      []inventory.Disk{{SizeGB: 960, Model: "D1"}, {SizeGB: 18000, Kind: inventory.HDD, Model: "D2"}},
		GPUs:       []inventory.GPU{{Count: 2, Model: "H100"}},
	}
	gpu := PCIDevice{VendorID: "0x10de", ProductID: "0x2330", Class: "0x030200"}
	cases := map[string]struct {
		reason   string
		hardware inventory.Hardware
		want     Inventory
	}{
		"Large": {
			reason: "all that the BMC says is in the inventory", hardware: large,
			want: Inventory{
				CPU:    CPU{Architecture: "x86_64", Count: 64, Model: "Acme 9654", Frequency: "2400"},
				Memory: Memory{PhysicalMiB: 524288},
				Disks: []Disk{
					{Name: "/dev/sda", Size: 960e9, Model: "D1", Serial: "s1-D0"},
					{Name: "/dev/sdb", Size: 18000e9, Model: "D2", Serial: "s1-D1", Rotational: true},
				},
				Interfaces: []Interface{
					{Name: "eth0", MAC: "52:54:00:00:01:01", SpeedMbps: 100_000, HasCarrier: true},
					{Name: "eth1", MAC: "52:54:00:00:01:81", SpeedMbps: 25_000, HasCarrier: true},
				},
				PCIDevices:   []PCIDevice{gpu, gpu},
				SystemVendor: SystemVendor{Manufacturer: "Acme", Product: "G8", Serial: "s1", Firmware: Firmware{Vendor: "Acme", Version: "2.1"}},
				Boot:         Boot{Mode: "uefi"},
			},
		},
		"Small": {
			reason: "what there is none of is empty", hardware: small,
			want: Inventory{
				CPU: CPU{Architecture: "aarch64", Count: 4, Model: "Emulated Processor"}, Memory: Memory{PhysicalMiB: 8192},
				Interfaces:   []Interface{{Name: "eth0", MAC: "52:54:00:00:00:01", SpeedMbps: 25_000, HasCarrier: true}},
				SystemVendor: SystemVendor{Manufacturer: "Emulated", Product: "Rack Server", Serial: "s1", Firmware: Firmware{Vendor: "Emulated", Version: "1.0.0"}},
				Boot:         Boot{Mode: "uefi"},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Read(t.Context(), startBMC(t, tc.hardware))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestReadFails(t *testing.T) {
	hardware := inventory.Hardware{Processors: []inventory.Processor{{Cores: 1}}, MemoryGiB: 1, NICs: []inventory.NIC{{}}}
	cases := map[string]struct {
		reason string
		fault  faults.Kind
		change func(*Access)
		want   string
	}{
		"Unreachable": {reason: "no answer is no inventory", fault: faults.BMCUnreachable, want: "connecting to the BMC at http://127.0.0.1:"},
		"Password":    {reason: "the BMC refuses", change: func(a *Access) { a.Password = "******" }, want: "reading /redfish/v1/Systems/s1, 401"},
		"System":      {reason: "there is no such server", change: func(a *Access) { a.System += "0" }, want: "reading /redfish/v1/Systems/s10, 404"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var has []faults.Fault
			if tc.fault != "" {
				has = append(has, faults.Fault{Kind: tc.fault})
			}
			access := startBMC(t, hardware, has...)
			if tc.change != nil {
				tc.change(&access)
			}
			if _, err := Read(t.Context(), access); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error is %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
