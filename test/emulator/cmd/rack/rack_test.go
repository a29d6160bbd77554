// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/admin"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
)

// A server as Ironic uses it: deployed from a virtual CD, booted from its disk, switched off.
func TestDeployAndBoot(t *testing.T) {
	p := startProgram(t, `echo $$ > pid; echo "$SERVER_NAME boots $(cat image) with $(cat config-drive.iso)"; exec sleep 1000`)
	p.redfish("s2", "two", http.MethodPost, "/Managers/s2/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia", `{"Image": "`+p.ironic.URL+
		`/deploy.iso"}`)
	p.redfish("s2", "two", http.MethodPatch, "/Systems/s2", `{"Boot": {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": `+
		`"Once"}}`)
	p.redfish("s2", "two", http.MethodPost, "/Systems/s2/Actions/ComputerSystem.Reset", `{"ResetType": "On"}`)
	callback := <-p.beats

	drive := &bytes.Buffer{}
	writer := gzip.NewWriter(drive)
	_, _ = writer.Write([]byte("user data"))
	_ = writer.Close()
	sum := sha256.Sum256([]byte("an image"))
	p.command(callback, "deploy.execute_deploy_step", fmt.Sprintf(`{"step": {"interface": "deploy", "step": "write_image", "args":
	  {"image_info": {"id": "image", "urls": ["%s/image"], "os_hash_algo": "sha256", "os_hash_value": "%s"}, "configdrive": "%s"}}}`,
		p.ironic.URL, hex.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(drive.Bytes())))
	p.command(callback, "standby.power_off", "{}")
	p.is("s2", "Off", "off")

	p.redfish("s2", "two", http.MethodPost, "/Systems/s2/Actions/ComputerSystem.Reset", `{"ResetType": "On"}`)
	p.is("s2", "On", "running the image from "+p.ironic.URL+"/image")
	p.until(func() string {
		data, err := os.ReadFile(filepath.Join(p.server("s2").Dir, "console.log"))
		if string(data) == "s2 boots an image with user data\n" {
			return ""
		}
		return fmt.Sprintf("console has %q, %v", data, err)
	})
	// A rack that is stopped switches its servers off. After a restart it finds their disks.
	booted := processOf(t, p.server("s2").Dir)
	p.end()
	if alive(booted) {
		t.Errorf("process %d of the boot command still runs", booted)
	}
	p.start()
	p.is("s2", "Off", "off")
	if image := p.server("s2").Image; image == nil || image.URL != p.ironic.URL+"/image" {
		t.Errorf("after a restart the disk has %+v", image)
	}
}

// processOf returns the process ID that the boot command wrote to the directory of its server.
func processOf(t *testing.T, dir string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// alive returns whether a process runs. A zombie does not.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(data), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}

// scenarioOfChild makes this binary run a rack instead of the tests.
const scenarioOfChild = "RACK_TEST_SCENARIO"

func TestMain(m *testing.M) {
	path := os.Getenv(scenarioOfChild)
	if path == "" {
		os.Exit(m.Run())
	}
	o := newOptions()
	o.scenario, o.dataDir = path, filepath.Join(filepath.Dir(path), "data")
	o.redfishAddress, o.adminAddress = "127.0.0.1:0", os.Getenv("RACK_TEST_ADMIN")
	o.bootCommand = filepath.Join(filepath.Dir(path), "boot.sh")
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The boot commands of a killed rack are killed with it.
func TestKilledRackLeavesNoProcesses(t *testing.T) {
	p := startProgram(t, `echo $$ > pid.new; mv pid.new pid; exec sleep 1000`)
	p.end()
	installed := filepath.Join(p.options.dataDir, "s1")
	for name, content := range map[string]string{"image": "an image", "image.json": `{"url": "http://images/1"}`} {
		if err := os.WriteFile(filepath.Join(installed, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), scenarioOfChild+"="+p.options.scenario, "RACK_TEST_ADMIN="+p.options.adminAddress)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	p.ended = ended
	go func() { ended <- child.Wait() }()
	t.Cleanup(func() { _ = child.Process.Kill() })
	p.untilReady()
	p.redfish("s1", "one", http.MethodPost, "/Systems/s1/Actions/ComputerSystem.Reset", `{"ResetType": "On"}`)
	p.until(func() string {
		if _, err := os.Stat(filepath.Join(installed, "pid")); err != nil {
			return err.Error()
		}
		return ""
	})
	booted := processOf(t, installed)
	if !alive(booted) {
		t.Fatalf("process %d of the boot command is not there", booted)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	p.ended = nil
	p.until(func() string {
		if alive(booted) {
			return fmt.Sprintf("process %d of the boot command still runs", booted)
		}
		return ""
	})
	p.ended = closed()
}

// closed is the end of a rack that has ended before.
func closed() chan error {
	c := make(chan error)
	close(c)
	return c
}

func TestAdmin(t *testing.T) {
	p := startProgram(t, "")
	var list []admin.View
	if p.admin(http.MethodGet, "/v1/servers", "", &list); len(list) != 3 || list[0].Name != "s1" || list[2].Name != "s3" {
		t.Fatalf("servers are %+v, want three in the order of the scenario", list)
	}
	first := list[0]
	want := admin.View{
		Name: "s1", UUID: first.UUID, MACs: first.MACs, URL: "http://" + p.options.redfishAddress + "/redfish/v1/Systems/s1", Username: "one",
		Status: first.Status, Activity: "off", Dir: filepath.Join(p.options.dataDir, "s1"), Faults: []faults.Fault{},
	}
	if diff := cmp.Diff(want, first); diff != "" || first.PowerState != "Off" || len(first.MACs) != 1 {
		t.Errorf("%+v (-want +got):\n%s", first, diff)
	}
	if diff := cmp.Diff([]faults.Fault{{Kind: faults.AgentSilent}}, list[2].Faults); diff != "" {
		t.Errorf("faults of the scenario (-want +got):\n%s", diff)
	}

	view := admin.View{}
	for _, put := range []struct{ kind, body string }{{"slow", `{"seconds": 2}`}, {"power-stuck", ""},
		{"dies-after", `{"kind": "dies-after", "minutes": 5, "power": "Off"}`}} {
		if status := p.admin(http.MethodPut, "/v1/servers/s1/faults/"+put.kind, put.body, &view); status != http.StatusOK {
			t.Errorf("%s: status %d", put.kind, status)
		}
	}
	wanted := []faults.Fault{{Kind: faults.Slow, Seconds: 2}, {Kind: faults.PowerStuck}, {Kind: faults.DiesAfter, Minutes: 5, Power: "Off"}}
	if diff := cmp.Diff(wanted, view.Faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	view = admin.View{}
	p.admin(http.MethodDelete, "/v1/servers/s1/faults/slow", "", &view)
	if diff := cmp.Diff(wanted[1:], view.Faults); diff != "" {
		t.Errorf("after one was cleared (-want +got):\n%s", diff)
	}
	view = admin.View{}
	if p.admin(http.MethodDelete, "/v1/servers/s1/faults", "", &view); len(view.Faults) != 0 {
		t.Errorf("after all were cleared: %v", view.Faults)
	}

	url := "http://" + p.options.adminAddress + "/v1/servers/s1/chassis"
	if answer, err := admin.AskChassis(t.Context(), url, "get", "power"); err != nil || answer != "power:0\n" {
		t.Errorf("a simulator that asks for the power is answered %q, %v", answer, err)
	}

	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		want               string
	}{
		"UnknownServer": {http.MethodGet, "/v1/servers/s9", "", 404, `no server is called "s9"`},
		"UnknownFault":  {http.MethodPut, "/v1/servers/s1/faults/fire", "", 400, `"fire" is not known`},
		"ClearUnknown":  {http.MethodDelete, "/v1/servers/s1/faults/fire", "", 400, `"fire" is not known`},
		"Parameters":    {http.MethodPut, "/v1/servers/s1/faults/slow", "", 400, "seconds 0"},
		"Field":         {http.MethodPut, "/v1/servers/s1/faults/slow", `{"minute": 1}`, 400, `unknown field`},
		"Chassis":       {http.MethodPost, "/v1/servers/s1/chassis", "get fan", 400, `the chassis of server s1: "fan" cannot be got`},
		"TwoKinds": {http.MethodPut, "/v1/servers/s1/faults/slow", `{"kind": "power-stuck"}`, 400,
			"the path says slow and the body power-stuck"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := map[string]string{}
			if status := p.admin(tc.method, tc.path, tc.body, &answer); status != tc.status || !strings.Contains(answer["error"], tc.want) {
				t.Errorf("status %d, %q; want %d, %q", status, answer["error"], tc.status, tc.want)
			}
		})
	}
}

func TestInvalidOptions(t *testing.T) {
	dir := t.TempDir()
	plain, machine := filepath.Join(dir, "plain"), filepath.Join(dir, "machine.yaml")
	for path, content := range map[string]string{plain: "", machine: `servers: [{name: s1, machine: true, bmc: {username: one, password: secret},
  hardware: {processors: [{cores: 1}], memoryGiB: 1, nics: [{}], disks: [{sizeGB: 1}]}}]`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		change func(*options)
		want   string
	}{
		"NoScenario":   {func(o *options) { o.scenario = "" }, "--scenario is empty"},
		"GoneScenario": {func(o *options) { o.scenario = filepath.Join(dir, "gone") }, "gone"},
		"Address":      {func(o *options) { o.redfishAddress = "here" }, "redfish-bind-address"},
		"Ironic":       {func(o *options) { o.ironicURL = "127.0.0.1:6385" }, "--ironic-url"},
		"NetworkBoot":  {func(o *options) { o.networkBoot = "127.0.0.1:8080" }, "--network-boot-url"},
		"AgentHost":    {func(o *options) { o.agentHost = "localhost" }, "--agent-host"},
		"Heartbeat":    {func(o *options) { o.heartbeat = 0 }, "--heartbeat-interval is 0s"},
		"BootGone":     {func(o *options) { o.bootCommand = filepath.Join(dir, "gone") }, "--boot-command"},
		"BootDir":      {func(o *options) { o.bootCommand = dir }, "must be a program"},
		"BootPlain":    {func(o *options) { o.bootCommand = plain }, "must be a program"},
		"Machine":      {func(o *options) { o.scenario = machine }, "server s1 has machine: true, and --boot-command is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOptions()
			o.scenario, o.dataDir = plain, dir
			tc.change(o)
			if err := run(t.Context(), o); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
}

func TestReachable(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for bound, want := range map[string]string{
		"127.0.0.1:8000": "127.0.0.1:8000", "[::1]:8000": "[::1]:8000", "[::]:8000": name + ":8000", "0.0.0.0:8000": name + ":8000",
	} {
		if got := reachable(bound); got != want {
			t.Errorf("what is bound to %s is reached at %s, want %s", bound, got, want)
		}
	}
}

// A second rack at an address fails with an error.
func TestAddressInUse(t *testing.T) {
	p := startProgram(t, "")
	second := *p.options
	second.dataDir = t.TempDir()
	if err := run(t.Context(), &second); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("error is %v", err)
	}
}
