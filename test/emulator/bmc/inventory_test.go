// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// A client reads the hardware of the inventory.
func TestInventory(t *testing.T) {
	system := newRack(t, clock.RealClock{}, "s1").system(t, "s1")
	type summary struct {
		Model, Serial, BIOS string
		MemoryGiB           float64
		Sockets, Threads    uint
	}
	want := summary{Model: "GPU Server", Serial: "s1", BIOS: "2.1", MemoryGiB: 512, Sockets: 2, Threads: 128}
	got := summary{system.Model, system.SerialNumber, system.BiosVersion, *system.MemorySummary.TotalSystemMemoryGiB,
		*system.ProcessorSummary.Count, *system.ProcessorSummary.LogicalProcessorCount}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("system (-want +got):\n%s", diff)
	}

	var found []any
	read := func(list any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, list)
	}
	read(each(system.Processors, func(p *schemas.Processor) any {
		return []any{p.ID, p.Model, p.ProcessorArchitecture, p.InstructionSet, *p.TotalCores, *p.TotalThreads, *p.MaxSpeedMHz}
	}))
	read(each(system.Memory, func(m *schemas.Memory) any { return *m.CapacityMiB }))
	read(each(system.EthernetInterfaces, func(n *schemas.EthernetInterface) any {
		return []any{n.ID, n.MACAddress, *n.SpeedMbps, n.Status.State}
	}))
	read(each(system.SimpleStorage, func(s *schemas.SimpleStorage) any {
		return []any{*s.Devices[0].CapacityBytes, *s.Devices[1].CapacityBytes}
	}))
	read(each(system.Storage, func(s *schemas.Storage) any {
		list, err := each(s.Drives, func(d *schemas.Drive) any { return []any{d.Name, *d.CapacityBytes, d.MediaType, d.Protocol} })
		if err != nil {
			t.Fatal(err)
		}
		return list
	}))
	read(each(system.PCIeDevices, func(d *schemas.PCIeDevice) any {
		functions, err := each(d.PCIeFunctions, func(f *schemas.PCIeFunction) any { return []any{f.DeviceClass, f.VendorID, f.DeviceID} })
		if err != nil {
			t.Fatal(err)
		}
		return []any{d.ID, d.Manufacturer, d.Model, functions}
	}))
	gpu := []any{[]any{schemas.DisplayControllerDeviceClass, "0x10de", "0x2330"}}
	cpu := []any{"Xeon", schemas.X86ProcessorArchitecture, schemas.X8664InstructionSet, 32, 64, 3800}
	wanted := []any{
		[]any{append([]any{"CPU0"}, cpu...), append([]any{"CPU1"}, cpu...)},
		[]any{512 * 1024},
		[]any{[]any{"eth0", "52:54:00:aa:00:01", 100_000, schemas.EnabledState},
			[]any{"ib0", hardware().Complete("s1").NICs[1].MAC, 25_000, schemas.EnabledState}},
		[]any{[]any{uint(960e9), uint(4000e9)}},
		[]any{[]any{
			[]any{"/dev/sda", int(960e9), schemas.SSDMediaType, schemas.NVMeProtocol},
			[]any{"/dev/sdb", int(4000e9), schemas.HDDMediaType, schemas.SATAProtocol},
		}},
		[]any{[]any{"GPU0", "NVIDIA", "H100", gpu}, []any{"GPU1", "NVIDIA", "H100", gpu}},
	}
	if diff := cmp.Diff(wanted, found); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}

	bios, err := system.Bios()
	if err != nil || bios.Attributes["BootMode"] != "Uefi" {
		t.Errorf("bios is %+v, %v", bios, err)
	}
	chassis, err := system.Chassis()
	if err != nil || len(chassis) != 1 || chassis[0].SerialNumber != "s1" {
		t.Errorf("chassis is %+v, %v", chassis, err)
	}
}

// each reads a collection and returns a description of each member, sorted: gofish reads them concurrently.
func each[T any](read func() ([]T, error), say func(T) any) ([]any, error) {
	members, err := read()
	answers := make([]any, 0, len(members))
	for _, member := range members {
		answers = append(answers, say(member))
	}
	slices.SortFunc(answers, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return answers, err
}

func TestEncode(t *testing.T) {
	cases := map[string]struct {
		reason string
		value  any
		want   string
	}{
		"Zero":    {"zero values are left out, and structs with only those", schemas.ComputerSystem{}, `{}`},
		"Pointer": {"a pointer to zero is not left out", schemas.VirtualMedia{Inserted: ptr.To(false)}, `{"Inserted":false}`},
		"Names": {"names are those of the schema", schemas.ComputerSystem{Entity: schemas.Entity{ODataID: "/x", ID: "x"}, ODataType: "#t"},
			`{"@odata.id":"/x","@odata.type":"#t","Id":"x"}`},
		"Nested": {"objects and lists are entered", schemas.SimpleStorage{Devices: []schemas.Device{{Name: "d"}}},
			`{"Devices":[{"Name":"d"}]}`},
		"Marshals": {"json.Marshaler is used", schemas.ComputerSystem{OEM: json.RawMessage(`{"a":1}`)}, `{"Oem":{"a":1}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(encode(tc.value))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
