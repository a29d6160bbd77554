// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/bmc"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
)

func TestFirmwareBootOrder(t *testing.T) {
	// A medium as Ironic builds it, with the parameters where two blocks meet.
	withParameters := func(url string) []byte {
		text := "linux /vmlinuz ipa-api-url=" + url + " ipa-agent-token=on-the-medium quiet\n"
		return []byte(strings.Repeat("\x00", 1<<20-30) + text + strings.Repeat("\x00", 1<<20))
	}
	cases := map[string]struct {
		reason    string
		installed bool
		medium    func(string) []byte
		cd, usb   string // "medium", or another URL
		network   string // path of the directory for boots by network
		boot      schemas.BootSource
		want      string // activity
		token     string // of the agent, if one is expected to call
	}{
		"EmptyDisk": {reason: "there is nothing to boot", want: "no bootable device: the disk is empty"},
		"Disk":      {reason: "an installed image is booted", installed: true, want: "running the image from http://images/os.qcow2"},
		"DiskBeforeMedia": {reason: "a medium that was left inserted is not booted without an override", installed: true, cd: "medium",
			want: "running the image"},
		"Hdd": {reason: "the disk, by an override", installed: true, cd: "medium", boot: schemas.HddBootSource,
			want: "running the image"},
		"EmptyHdd": {reason: "an override by a device without a bootable medium", boot: schemas.HddBootSource, want: "no bootable device"},
		"Cd": {reason: "the medium before the disk, by an override", installed: true, cd: "medium", boot: schemas.CdBootSource,
			want: "deploy agent from ", token: "looked-up"},
		"CdOfItself": {reason: "without an image, a medium is booted", cd: "medium", want: "deploy agent", token: "looked-up"},
		"NoCd":       {reason: "an empty drive", installed: true, boot: schemas.CdBootSource, want: "virtual CD, which is empty"},
		"CdGone":     {reason: "a medium that cannot be read", cd: "/gone", boot: schemas.CdBootSource, want: "404 Not Found"},
		"Pxe": {reason: "by network there are no parameters", installed: true, boot: schemas.PxeBootSource,
			want: "deploy agent by network", token: "looked-up"},
		"PxeParameters": {reason: "or those that Ironic has written for its MAC address", medium: withParameters, network: "/network",
			boot: schemas.PxeBootSource, want: "deploy agent from ", token: "on-the-medium"},
		"PxeUnknown": {reason: "Ironic has not prepared the server", installed: true, network: "/gone", boot: schemas.PxeBootSource,
			want: "no configuration of the network boot"},
		"CdParameters": {reason: "the token on the medium is the agent's", medium: withParameters, cd: "medium", boot: schemas.CdBootSource,
			want: "deploy agent", token: "on-the-medium"},
		"UsbParameters": {reason: "Ironic can put them on a second medium", medium: withParameters, cd: "plain", usb: "medium",
			boot: schemas.CdBootSource, want: "deploy agent", token: "on-the-medium"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.medium == nil {
				tc.medium = plainMedium
			}
			other := newIronic(t, plainMedium)
			called := newIronic(t, tc.medium)
			url := called.URL
			if tc.token == "on-the-medium" {
				url = "http://127.0.0.1:1" // the medium says where Ironic is
			}
			m := start(t, clock.RealClock{}, url, "")
			if tc.network != "" {
				m.options.NetworkBoot = called.URL + tc.network
			}
			if tc.installed {
				m.install("")
			}
			for slot, image := range map[string]string{bmc.CdSlot: tc.cd, bmc.UsbSlot: tc.usb} {
				switch image {
				case "":
				case "plain":
					m.insert(slot, other.URL+"/medium")
				default:
					m.insert(slot, called.URL+"/"+strings.TrimPrefix(image, "/"))
				}
			}
			if tc.boot != "" {
				m.bootFrom(tc.boot)
			}
			m.reset(schemas.OnResetType)
			m.is(schemas.OnPowerState, tc.want)
			if tc.token != "" {
				if beat := <-called.beats; beat[0] != tc.token {
					t.Errorf("%s: the agent's token is %q, want %q", tc.reason, beat[0], tc.token)
				}
			}
			m.reset(schemas.ForceOffResetType)
			m.is(schemas.OffPowerState, "off")
		})
	}
}

func TestResets(t *testing.T) {
	m := start(t, clock.RealClock{}, "", `echo "booted"; trap 'echo "told to stop"; exit 0' TERM; while :; do sleep 0.01; done`)
	m.install("")
	boots := 0
	booted := func(times int) {
		t.Helper()
		boots += times
		m.hasBooted(boots)
	}
	for _, reset := range []schemas.ResetType{schemas.OnResetType, schemas.ForceRestartResetType, schemas.GracefulRestartResetType,
		schemas.PowerCycleResetType} {
		m.reset(reset)
		booted(1)
		m.is(schemas.OnPowerState, "running")
	}
	m.reset(schemas.OnResetType) // it is on
	m.reset(schemas.GracefulShutdownResetType)
	m.is(schemas.OffPowerState, "off")
	booted(0)
	m.prints("told to stop")
	m.reset(schemas.ForceOffResetType) // it is off
	m.reset(schemas.ForceOnResetType)
	booted(1)
	m.is(schemas.OnPowerState, "running")
}

// A request for power on that comes right after the server has switched itself off takes effect.
func TestPowerOnAfterShutdown(t *testing.T) {
	m := start(t, clock.RealClock{}, "", "")
	ended := &life{cancel: func(error) {}, over: make(chan struct{})}
	close(ended.over)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	again := m.Server.reset(ctx, ended, schemas.OnResetType)
	if again == ended || again == nil {
		t.Fatal("the server stays off")
	}
	if same := m.Server.reset(ctx, again, schemas.OnResetType); same != again {
		t.Error("a server that is on is switched on again")
	}
	m.switchOff(again)
}

func TestAgentPowersTheServerOff(t *testing.T) {
	called := newIronic(t, plainMedium)
	m := start(t, clock.RealClock{}, called.URL, "")
	m.bootFrom(schemas.PxeBootSource)
	m.reset(schemas.OnResetType)
	give := func(beat [2]string, command string) {
		t.Helper()
		response, err := http.Post(beat[1]+"/v1/commands/?agent_token="+beat[0], "application/json",
			strings.NewReader(`{"name": "`+command+`", "params": {}}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.Status, err)
		}
	}
	beat := <-called.beats
	// A server can switch itself off even if its BMC does nothing.
	if err := m.Faults().Put(faults.Fault{Kind: faults.PowerStuck}); err != nil {
		t.Fatal(err)
	}
	give(beat, "standby.power_off")
	m.is(schemas.OffPowerState, "off")
	m.reset(schemas.OnResetType) // it is stuck
	if !m.Faults().Clear(faults.PowerStuck) {
		t.Fatal("no fault to clear")
	}
	m.bootFrom(schemas.PxeBootSource)
	m.reset(schemas.OnResetType)
	second := <-called.beats
	for second == beat { // the first agent has called at the end of its command
		second = <-called.beats
	}
	give(second, "standby.run_image")
	m.is(schemas.OnPowerState, "the disk is empty")
}

func TestStuckPower(t *testing.T) {
	m := start(t, clock.RealClock{}, "", "")
	if err := m.Faults().Put(faults.Fault{Kind: faults.PowerStuck}); err != nil {
		t.Fatal(err)
	}
	m.reset(schemas.OnResetType) // which is accepted
	m.press(schemas.ForceOffResetType)
	m.until(func() string {
		if _, waiting := m.nextRequest(); waiting || m.PowerState() != schemas.OffPowerState {
			return "the reset had an effect"
		}
		return ""
	})
	m.Faults().Clear(faults.PowerStuck)
	m.reset(schemas.OnResetType)
	m.is(schemas.OnPowerState, "no bootable device")
}

func TestServerDies(t *testing.T) {
	script := `trap '' TERM; echo "booted"; while :; do sleep 1000; done`
	cases := map[string]struct {
		reason   string
		power    faults.Power
		want     schemas.PowerState
		activity string
		late     bool
	}{
		"Hangs":    {reason: "a system that hangs is on, as far as its BMC can see", want: schemas.OnPowerState, activity: "dead"},
		"PowerOff": {reason: "a power supply that fails is seen", power: faults.PowerOff, want: schemas.OffPowerState, activity: "died"},
		"Late": {reason: "the time starts when the fault is set on a server that is on", late: true, want: schemas.OnPowerState,
			activity: "dead"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := clocktesting.NewFakeClock(time.Unix(0, 0))
			m := start(t, now, "", script)
			m.install("")
			fault := faults.Fault{Kind: faults.DiesAfter, Minutes: 2, Power: tc.power}
			put := func() {
				if err := m.Faults().Put(fault); err != nil {
					t.Fatal(err)
				}
			}
			if !tc.late {
				put()
			}
			m.reset(schemas.OnResetType)
			m.hasBooted(1)
			if tc.late {
				now.Step(time.Hour)
				put()
			}
			m.until(func() string {
				if now.HasWaiters() {
					return ""
				}
				return "the server has no end"
			})
			now.Step(119 * time.Second)
			if m.PowerState() != schemas.OnPowerState || !strings.Contains(m.Activity(), "running") {
				t.Errorf("%s: before its time it is %s, %s", tc.reason, m.PowerState(), m.Activity())
			}
			// It gets no grace period, which would be a minute of this clock.
			now.Step(time.Second)
			m.is(tc.want, tc.activity)

			m.Faults().Clear(faults.DiesAfter)
			m.reset(schemas.ForceRestartResetType)
			m.is(schemas.OnPowerState, "running the image")
			m.hasBooted(2)
			m.reset(schemas.ForceOffResetType)
			m.until(func() string {
				if now.HasWaiters() {
					return ""
				}
				return "the boot command got SIGTERM"
			})
			now.Step(time.Minute)
			m.is(schemas.OffPowerState, "off")
		})
	}
}

// A restarted rack finds the disks of its servers.
func TestDiskIsKept(t *testing.T) {
	m := start(t, clock.RealClock{}, "", "")
	m.install("")
	again := New(m.options, m.identity, m.hardware, m.Dir())
	image, err := again.Installed()
	if err != nil || image == nil || image.URL != "http://images/os.qcow2" {
		t.Errorf("after a restart the disk has %+v, %v", image, err)
	}
}
