// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

const profiles = `
profiles:
  small:
    processors: [{cores: 8}]
    memoryGiB: 32
    nics: [{}, {name: ib0, speedGbps: 400}]
    disks: [{sizeGB: 100}]
`

func TestParse(t *testing.T) {
	parsed, err := Parse([]byte(profiles + `
servers:
- name: s1
  profile: small
  macs: ["52:54:00:AA:00:01"]
  bmc: {username: admin, password: secret, bindAddress: "127.0.0.1:8001"}
  faults: [{kind: slow, seconds: 2}, {kind: dies-after, minutes: 1, power: Off}]
- name: s2
  profile: small
  bmc: {username: admin, password: other}
`))
	if err != nil {
		t.Fatal(err)
	}
	first, second := parsed.Servers[0], parsed.Servers[1]
	want := &inventory.Hardware{
		Manufacturer: "Emulated", Model: "Rack Server", SerialNumber: "s1", BIOSVersion: "1.0.0",
		BIOS:       map[string]string{"BootMode": "Uefi", "SecureBoot": "Disabled"},
		Processors: []inventory.Processor{{Count: 1, Model: "Emulated Processor", Architecture: "x86_64", Cores: 8, Threads: 8}},
		MemoryGiB:  32,
		NICs: []inventory.NIC{{Name: "eth0", MAC: "52:54:00:aa:00:01", SpeedGbps: 25},
			{Name: "ib0", MAC: first.Hardware.NICs[1].MAC, SpeedGbps: 400}},
		Disks: []inventory.Disk{{Name: "/dev/sda", SizeGB: 100, Kind: "SSD", Model: "Emulated Disk"}},
	}
	if diff := cmp.Diff(want, first.Hardware); diff != "" {
		t.Errorf("hardware of s1 (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]faults.Fault{{Kind: faults.Slow, Seconds: 2}, {Kind: faults.DiesAfter, Minutes: 1, Power: faults.PowerOff}},
		first.Faults); diff != "" {
		t.Errorf("faults of s1 (-want +got):\n%s", diff)
	}
	for i, mac := range second.Hardware.MACs() {
		if mac == first.Hardware.MACs()[i] || !strings.HasPrefix(mac, "52:54:00:") {
			t.Errorf("server s2 of the same profile has the MAC address %s", mac)
		}
	}
	if first.UUID == second.UUID || len(first.UUID) != 36 {
		t.Errorf("UUIDs are %s and %s", first.UUID, second.UUID)
	}
}

func TestParseRefuses(t *testing.T) {
	const fine = "bmc: {username: u, password: p}"
	cases := map[string]struct{ yaml, want string }{
		"Nothing":      {"", "servers is empty"},
		"UnknownField": {"servers:\n- {name: a, colour: red}", `unknown field "servers[0].colour"`},
		"Duplicate":    {"servers: []\nservers: []", "already set"},
		"Name":         {"servers:\n- {name: A_1, profile: small, " + fine + "}", `servers[A_1]: name "A_1" is not a DNS label`},
		"NoName":       {"servers:\n- {profile: small, " + fine + "}", `servers[0]: name ""`},
		"SameName": {"servers:\n- {name: a, profile: small, " + fine + "}\n- {name: a, profile: small, " + fine + "}",
			"servers[a]: name a is that of server a already"},
		"SameMAC": {"servers:\n- {name: a, profile: small, macs: ['52:54:00:00:00:01'], " + fine +
			"}\n- {name: b, profile: small, macs: ['52:54:00:00:00:01'], " + fine + "}",
			"servers[b]: mac 52:54:00:00:00:01 is that of server a already"},
		"UUID":           {"servers:\n- {name: a, profile: small, uuid: x, " + fine + "}", `uuid "x"`},
		"NoHardware":     {"servers:\n- {name: a, " + fine + "}", "neither profile nor hardware"},
		"BothHardwares":  {"servers:\n- {name: a, profile: small, hardware: {}, " + fine + "}", "both given"},
		"UnknownProfile": {"servers:\n- {name: a, profile: large, " + fine + "}", `profile "large" is not one of profiles: they are small`},
		"TooManyMACs":    {"servers:\n- {name: a, profile: small, macs: [a, b, c], " + fine + "}", "3 addresses for 2 network interfaces"},
		"Machine": {"servers:\n- {name: a, machine: true, hardware: {processors: [{cores: 1}], memoryGiB: 1, nics: [{}]}, " + fine + "}",
			"servers[a]: hardware.disks is empty: a server with machine: true needs one"},
		"MAC":           {"servers:\n- {name: a, profile: small, macs: [x], " + fine + "}", `servers[a]: nics[0].mac is "x"`},
		"EmptyHardware": {"servers:\n- {name: a, hardware: {}, " + fine + "}", "servers[a]: memoryGiB is 0"},
		"NoCores": {"servers:\n- {name: a, hardware: {processors: [{cores: 0}], memoryGiB: 1, nics: [{}]}, " + fine + "}",
			"processors[0] has 1 sockets with 0 cores"},
		"Architecture": {"servers:\n- {name: a, hardware: {processors: [{cores: 1, architecture: z80}], memoryGiB: 1, nics: [{}]}, " + fine + "}",
			`architecture is "z80"`},
		"NoNICs": {"servers:\n- {name: a, hardware: {processors: [{cores: 1}], memoryGiB: 1}, " + fine + "}", "nics is empty"},
		"Disk": {"servers:\n- {name: a, hardware: {processors: [{cores: 1}], memoryGiB: 1, nics: [{}], disks: [{sizeGB: 0, kind: " +
			"tape}]}, " + fine + "}", `disks[0].kind is "tape"`},
		"GPU": {"servers:\n- {name: a, hardware: {processors: [{cores: 1}], memoryGiB: 1, nics: [{}], gpus: [{count: 2, model: ''}]}, " +
			fine + "}", "gpus[0] has count 2 and model"},
		"NoAccount":   {"servers:\n- {name: a, profile: small}", "bmc needs a username and a password"},
		"BindAddress": {"servers:\n- {name: a, profile: small, bmc: {username: u, password: p, bindAddress: here}}", `bmc.bindAddress "here"`},
		"Protocol": {"servers:\n- {name: a, profile: small, bmc: {username: u, password: p, protocol: snmp}}",
			`servers[a]: bmc.protocol "snmp" is not known: it must be redfish or ipmi`},
		"LongPassword": {"servers:\n- {name: a, profile: small, bmc: {username: u, password: 'of-21-bytes-and-more-', protocol: ipmi}}",
			"must not be longer than 16 and 20 bytes"},
		"Spaces": {"servers:\n- {name: a, profile: small, bmc: {username: u, password: two words, protocol: ipmi}}",
			"must not have quotes, backslashes or spaces"},
		"Fault": {"servers:\n- {name: a, profile: small, " + fine + ", faults: [{kind: slow}]}",
			"servers[a]: faults[0]: fault slow has seconds 0"},
		"Passwords": {"servers:\n- {name: a, profile: small, " + fine + "}\n- {name: b, profile: small, bmc: {username: u, password: q}}",
			`servers[b]: bmc.username "u" has another password at server a`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(profiles + tc.yaml))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	described, err := Load(filepath.Join("..", "cmd", "rack", "example.yaml"))
	if err != nil || len(described.Servers) != 3 {
		t.Errorf("the example: %v, %v", described, err)
	}
	path := filepath.Join(t.TempDir(), "rack.yaml")
	if err := os.WriteFile(path, []byte("servers: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{path, path + ".gone"} {
		if _, err := Load(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("error is %v: it must name the file %s", err, bad)
		}
	}
}
