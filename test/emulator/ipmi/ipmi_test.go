// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/baremetal"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/bmc"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

var identity = bmc.Identity{Name: "s1", UUID: "11111111-2222-3333-4444-555555555555", Username: "admin", Password: "secret"}

// run runs something until the end of the test.
func run(t *testing.T, what func(context.Context)) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { what(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

func TestChassis(t *testing.T) {
	server := baremetal.New(baremetal.Options{Clock: clock.RealClock{}, Logger: logr.Discard()}, identity, inventory.Hardware{}, t.TempDir())
	run(t, server.Run)
	for _, tc := range []struct {
		reason, arguments, want string
		power                   schemas.PowerState
		err                     string
	}{
		{reason: "a server is off at first", arguments: "get power boot", want: "power:0\nboot:none\n", power: schemas.OffPowerState},
		{reason: "it is switched on", arguments: "set power 1", power: schemas.OnPowerState},
		{reason: "and says so", arguments: "get power", want: "power:1\n", power: schemas.OnPowerState},
		{reason: "a boot device changes no power", arguments: "set boot pxe", power: schemas.OnPowerState},
		{reason: "and is kept until the next boot", arguments: "get boot", want: "boot:pxe\n", power: schemas.OnPowerState},
		{reason: "a reset leaves it on", arguments: "set reset 1", power: schemas.OnPowerState},
		{reason: "Ironic asks the operating system first", arguments: "set shutdown 1", power: schemas.OffPowerState},
		{reason: "the next boot has used the boot device up", arguments: "get boot", want: "boot:none\n", power: schemas.OffPowerState},
		{reason: "the disk is the simulator's default", arguments: "set boot default", power: schemas.OffPowerState},
		{reason: "and is told under that name", arguments: "get boot", want: "boot:default\n", power: schemas.OffPowerState},
		{reason: "on once more", arguments: "set power 1", power: schemas.OnPowerState},
		{reason: "off at once", arguments: "set power 0", power: schemas.OffPowerState},
		{reason: "a device that servers do not have", arguments: "set boot bios", err: `boot cannot be set to "bios"`},
		{reason: "a value is not taken for another", arguments: "set power pxe", err: `power cannot be set to "pxe"`},
		{reason: "what is not known", arguments: "get fan", err: `"fan" cannot be got`},
		{reason: "an unfinished request", arguments: "set power", err: "they must be get NAME..., or set NAME VALUE"},
		{reason: "an empty one", err: "they must be get NAME..., or set NAME VALUE"},
	} {
		got, err := Chassis(server, strings.Fields(tc.arguments)...)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %s returns %q, %v, want %q, %q", tc.reason, tc.arguments, got, err, tc.want, tc.err)
		}
		if tc.err != "" {
			continue
		}
		poll.Eventually(t, tc.reason, func(context.Context) error {
			if power := server.PowerState(); power != tc.power {
				return fmt.Errorf("after %s it is %s, want %s", tc.arguments, power, tc.power)
			}
			return nil
		})
	}
}

// The program of this test keeps the settings that it was given.
func TestSimulatorFaults(t *testing.T) {
	dir := t.TempDir()
	seen, program := filepath.Join(dir, "seen"), filepath.Join(dir, "ipmi_sim")
	script := fmt.Sprintf("#!/bin/sh\ncp \"$3\" %[1]s.new && mv %[1]s.new %[1]s\nexec sleep 1000\n", seen)
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	set := &faults.Set{}
	address := freeport.ForTest(t)
	simulator := Simulator{Program: program, Identity: identity, Address: address, ChassisControl: "control s1", Dir: filepath.Join(dir, "s1"),
		Faults: set, Supervisor: process.ForTest(t, dir)}
	run(t, func(ctx context.Context) {
		if err := simulator.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	has := func(what string, wanted bool, parts ...string) {
		t.Helper()
		poll.Eventually(t, what, func(context.Context) error {
			settings, err := os.ReadFile(seen)
			for _, part := range parts {
				if err == nil && strings.Contains(string(settings), part) != wanted {
					err = fmt.Errorf("that they have %q is not %t:\n%s", part, wanted, settings)
				}
			}
			return err
		})
	}
	account := `user 2 true "admin" "secret" admin`
	_, port, _ := strings.Cut(address, ":")
	has("the settings to be those of the server", true, account, "addr 127.0.0.1 "+port, "guid 11111111222233334444555555555555",
		`chassis_control "control s1"`)
	if swallows(t, address) == nil {
		t.Fatal("the program does not listen, and the address takes packets")
	}
	put := func(kind faults.Kind) {
		t.Helper()
		if err := set.Put(faults.Fault{Kind: kind}); err != nil {
			t.Fatal(err)
		}
	}
	put(faults.WrongPassword)
	has("the password to be another one", false, account)
	put(faults.BMCUnreachable)
	poll.Eventually(t, "the BMC to be silent", func(context.Context) error { return swallows(t, address) })
	set.Clear(faults.BMCUnreachable)
	set.Clear(faults.WrongPassword)
	has("the password to be the right one", true, account)
}

// swallows returns an error if nobody listens at a UDP address, which the second packet is told.
func swallows(t *testing.T, address string) error {
	t.Helper()
	connection, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	_, first := connection.Write([]byte("ping"))
	_, second := connection.Write([]byte("ping"))
	return errors.Join(first, second, connection.Close())
}
