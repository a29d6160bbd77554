// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/bmc"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

// machine is a server that runs, with a client of its BMC.
type machine struct {
	*Server
	t   *testing.T
	bmc string
}

// start runs a server with this boot command, a shell script; none if it is empty.
func start(t *testing.T, now clock.Clock, ironicURL, script string) *machine {
	t.Helper()
	options := Options{
		IronicURL: ironicURL, AgentHost: "127.0.0.1", Heartbeat: time.Hour, Retry: time.Millisecond, Grace: time.Minute, Clock: now,
		Logger: logr.Discard(),
	}
	if script != "" {
		options.BootCommand = filepath.Join(t.TempDir(), "boot.sh")
		if err := os.WriteFile(options.BootCommand, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	hardware := inventory.Hardware{
		Processors: []inventory.Processor{{Cores: 4}}, MemoryGiB: 8, NICs: []inventory.NIC{{MAC: "52:54:00:00:00:01"}}, Disks: []inventory.Disk{{SizeGB: 10}},
	}.Complete("s1")
	identity := bmc.Identity{Name: "s1", UUID: "11111111-1111-1111-1111-111111111111", Username: "admin", Password: "secret"}
	m := &machine{Server: New(options, identity, hardware, t.TempDir()), t: t}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	service := httptest.NewServer(bmc.NewService(now, m.System()))
	t.Cleanup(service.Close)
	m.bmc = service.URL
	return m
}

// install puts an image on the disk, as the deploy agent does.
func (m *machine) install(configDrive string) {
	m.t.Helper()
	file, err := m.disk.Create()
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := file.WriteString("image"); err != nil {
		m.t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		m.t.Fatal(err)
	}
	if err := m.disk.Commit(disk.Image{URL: "http://images/os.qcow2", Bytes: 5}, []byte(configDrive)); err != nil {
		m.t.Fatal(err)
	}
}

// call makes a change at the BMC.
func (m *machine) call(method, path string, body any) {
	m.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		m.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(m.t.Context(), method, m.bmc+"/redfish/v1/"+path, strings.NewReader(string(data)))
	if err != nil {
		m.t.Fatal(err)
	}
	request.SetBasicAuth("admin", "secret")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusNoContent {
		m.t.Fatalf("%s %s: %s", method, path, response.Status)
	}
}

func (m *machine) reset(kind schemas.ResetType) {
	m.t.Helper()
	m.call(http.MethodPost, "Systems/s1/Actions/ComputerSystem.Reset", map[string]any{"ResetType": kind})
}

func (m *machine) bootFrom(target schemas.BootSource) {
	m.t.Helper()
	m.call(http.MethodPatch, "Systems/s1", map[string]any{"Boot": map[string]any{"BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": "Once"}})
}

func (m *machine) insert(slot, image string) {
	m.t.Helper()
	m.call(http.MethodPost, "Managers/s1/VirtualMedia/"+slot+"/Actions/VirtualMedia.InsertMedia", map[string]any{"Image": image})
}

// is waits until the server has this power and says that it does this.
func (m *machine) is(power schemas.PowerState, activity string) {
	m.t.Helper()
	m.until(func() string {
		if m.PowerState() == power && strings.Contains(m.Activity(), activity) {
			return ""
		}
		return fmt.Sprintf("server is %s and %q, want %s and %q", m.PowerState(), m.Activity(), power, activity)
	})
}

// says waits until the console has this line.
func (m *machine) says(line string) {
	m.t.Helper()
	m.until(func() string {
		data, err := os.ReadFile(filepath.Join(m.Dir(), ConsoleFile))
		if strings.Contains(string(data), line+"\n") {
			return ""
		}
		return fmt.Sprintf("console has %q, %v, want %q", data, err, line)
	})
}

// hasBooted waits until the boot command has said so as many times.
func (m *machine) hasBooted(times int) {
	m.t.Helper()
	m.until(func() string {
		data, err := os.ReadFile(filepath.Join(m.Dir(), ConsoleFile))
		if strings.Count(string(data), "booted\n") == times {
			return ""
		}
		return fmt.Sprintf("console has %q, %v, want %d boots", data, err, times)
	})
}

// until waits for a condition, which returns what is missing.
func (m *machine) until(missing func() string) {
	m.t.Helper()
	deadline := time.After(time.Minute)
	for {
		reason := missing()
		if reason == "" {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			m.t.Fatal(reason)
		}
	}
}

// ironic answers lookups, and says who called it with which token.
type ironic struct {
	*httptest.Server
	beats chan [2]string // agent token, callback URL
}

// newIronic answers agents, and serves this medium.
func newIronic(t *testing.T, medium func(url string) []byte) *ironic {
	t.Helper()
	i := &ironic{beats: make(chan [2]string, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/lookup", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"node": {"uuid": "node-1"}, "config": {"agent_token": "looked-up"}}`))
	})
	mux.HandleFunc("POST /v1/heartbeat/node-1", func(_ http.ResponseWriter, r *http.Request) {
		beat := map[string]string{}
		if err := json.NewDecoder(r.Body).Decode(&beat); err != nil {
			t.Error(err)
		}
		i.beats <- [2]string{beat["agent_token"], beat["callback_url"]}
	})
	mux.HandleFunc("GET /medium", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(medium(i.URL)) })
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func plainMedium(string) []byte { return []byte("an ISO without parameters") }

func TestFirmwareBootsWhatItIsGiven(t *testing.T) {
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
		boot      schemas.BootSource
		want      string // activity
		token     string // of the agent, if one is to call
	}{
		"EmptyDisk":       {reason: "there is nothing to boot", want: "no bootable device: the disk is empty"},
		"Disk":            {reason: "an installed image is booted", installed: true, want: "running the image from http://images/os.qcow2"},
		"DiskBeforeMedia": {reason: "a medium that was left in is not booted unless asked for", installed: true, cd: "medium", want: "running the image"},
		"Hdd":             {reason: "the disk, by an override", installed: true, cd: "medium", boot: schemas.HddBootSource, want: "running the image"},
		"EmptyHdd":        {reason: "an override by something that has nothing", boot: schemas.HddBootSource, want: "no bootable device"},
		"Cd":              {reason: "the medium before the disk, by an override", installed: true, cd: "medium", boot: schemas.CdBootSource, want: "deploy agent from ", token: "looked-up"},
		"CdOfItself":      {reason: "without an image, a medium is booted", cd: "medium", want: "deploy agent", token: "looked-up"},
		"NoCd":            {reason: "an empty drive", installed: true, boot: schemas.CdBootSource, want: "virtual CD, which is empty"},
		"CdGone":          {reason: "a medium that cannot be read", cd: "/gone", boot: schemas.CdBootSource, want: "404 Not Found"},
		"Pxe":             {reason: "by network there are no parameters", installed: true, boot: schemas.PxeBootSource, want: "deploy agent by network", token: "looked-up"},
		"CdParameters":    {reason: "the token on the medium is the agent's", medium: withParameters, cd: "medium", boot: schemas.CdBootSource, want: "deploy agent", token: "on-the-medium"},
		"UsbParameters":   {reason: "Ironic can put them on a second medium", medium: withParameters, cd: "plain", usb: "medium", boot: schemas.CdBootSource, want: "deploy agent", token: "on-the-medium"},
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
	for _, reset := range []schemas.ResetType{schemas.OnResetType, schemas.ForceRestartResetType, schemas.GracefulRestartResetType, schemas.PowerCycleResetType} {
		m.reset(reset)
		booted(1)
		m.is(schemas.OnPowerState, "running")
	}
	m.reset(schemas.OnResetType) // it is on
	m.reset(schemas.GracefulShutdownResetType)
	m.is(schemas.OffPowerState, "off")
	booted(0)
	m.says("told to stop")
	m.reset(schemas.ForceOffResetType) // it is off
	m.reset(schemas.ForceOnResetType)
	booted(1)
	m.is(schemas.OnPowerState, "running")
}

func TestBootCommandSeesTheServer(t *testing.T) {
	m := start(t, clock.RealClock{}, "", `echo "$SERVER_NAME $SERVER_UUID $SERVER_MAC $(cat "$SERVER_DIR/image") $(cat config-drive.iso)"`)
	m.install("user data")
	m.reset(schemas.OnResetType)
	m.says("s1 11111111-1111-1111-1111-111111111111 52:54:00:00:00:01 image user data")
	m.is(schemas.OffPowerState, "off: the boot command has ended")
}

func TestBootCommandThatFails(t *testing.T) {
	m := start(t, clock.RealClock{}, "", `exit 3`)
	m.install("")
	m.reset(schemas.OnResetType)
	m.is(schemas.OffPowerState, "off: the boot command has ended, exit status 3")
	if err := os.Remove(m.options.BootCommand); err != nil {
		t.Fatal(err)
	}
	m.reset(schemas.OnResetType)
	m.is(schemas.OffPowerState, "off: starting the boot command, ")
}

// What the boot command has started goes with it, and one that does not want to stop is killed.
func TestPowerOffLeavesNothing(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(0, 0))
	m := start(t, now, "", `trap '' TERM; sleep 1000 & echo "child $!"; while :; do sleep 1000; done`)
	m.install("")
	m.reset(schemas.OnResetType)
	var child int
	m.until(func() string {
		data, _ := os.ReadFile(filepath.Join(m.Dir(), ConsoleFile))
		if _, err := fmt.Sscanf(string(data), "child %d\n", &child); err != nil {
			return err.Error()
		}
		return ""
	})
	m.reset(schemas.ForceOffResetType)
	m.until(func() string {
		if now.HasWaiters() {
			return ""
		}
		return "the boot command has no time to stop"
	})
	if m.PowerState() != schemas.OnPowerState {
		t.Error("the server is off while its boot command still runs")
	}
	now.Step(time.Minute)
	m.is(schemas.OffPowerState, "off")
	m.until(func() string {
		if alive(t, child) {
			return "a child of the boot command is still there"
		}
		return ""
	})
}

// alive says whether a process runs. One that nobody has waited for yet does not.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestAgentPowersTheServerOff(t *testing.T) {
	called := newIronic(t, plainMedium)
	m := start(t, clock.RealClock{}, called.URL, "")
	m.bootFrom(schemas.PxeBootSource)
	m.reset(schemas.OnResetType)
	give := func(beat [2]string, command string) {
		t.Helper()
		response, err := http.Post(beat[1]+"/v1/commands/?agent_token="+beat[0], "application/json", strings.NewReader(`{"name": "`+command+`", "params": {}}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.Status, err)
		}
	}
	beat := <-called.beats
	// Even a BMC that does nothing cannot keep a server from switching itself off.
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
		"Late":     {reason: "the time starts when the fault is set, if the server was on before", late: true, want: schemas.OnPowerState, activity: "dead"},
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
			// It has no time to stop: its grace would be a minute of this clock.
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
				return "the boot command has no time to stop"
			})
			now.Step(time.Minute)
			m.is(schemas.OffPowerState, "off")
		})
	}
}

// A server that its own rack forgot finds on its disk what it had.
func TestDiskIsKept(t *testing.T) {
	m := start(t, clock.RealClock{}, "", "")
	m.install("")
	again := New(m.options, m.identity, m.hardware, m.Dir())
	image, err := again.Installed()
	if err != nil || image == nil || image.URL != "http://images/os.qcow2" {
		t.Errorf("after a restart the disk has %+v, %v", image, err)
	}
}
