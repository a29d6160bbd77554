// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package deployagent

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
)

var image = []byte("the content of an image")

func sha256Of(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// packed is a config drive as Ironic hands it over.
func packed(t *testing.T, data string) string {
	t.Helper()
	buffer := &bytes.Buffer{}
	writer := gzip.NewWriter(buffer)
	if _, err := writer.Write([]byte(data)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(buffer.Bytes())
}

func TestDeployment(t *testing.T) {
	ironic := newFakeIronic(t)
	ironic.refusals = 3
	b := boot(t, ironic, Parameters{}).known()
	lookups := ironic.lookedUp()
	if diff := cmp.Diff("52:54:00:00:00:01,52:54:00:00:00:02", lookups[0].Get("addresses")); diff != "" || len(lookups) != 4 {
		t.Errorf("%d lookups, want 4; addresses (-want +got):\n%s", len(lookups), diff)
	}

	steps := b.command("deploy.get_deploy_steps", map[string]any{"node": map[string]any{}, "ports": []any{}})
	list, _ := steps.Result["deploy_steps"].(map[string]any)
	if listed, _ := list[hardwareManager].([]any); len(listed) == 0 || steps.Result["hardware_manager_version"] == nil ||
		steps.Status != succeeded {
		t.Fatalf("deploy steps are %+v: Ironic takes an empty list for none", steps)
	}

	written := b.writeImage(map[string]any{
		"id": "image", "urls": []string{ironic.serve("image.qcow2", image)}, "disk_format": "qcow2", "os_hash_algo": "sha256",
		"os_hash_value": sha256Of(image),
	}, packed(t, "config-2"))
	want := shown{
		ID: "2", Name: "execute_deploy_step", Status: succeeded,
		// The node and the config drive contain secrets, and every client can list the commands.
		Params: map[string]any{"step": map[string]any{"interface": "deploy", "step": "write_image"}},
		Result: map[string]any{
			"deploy_result": "image (image) written to device /dev/nvme0n1",
			"deploy_step":   map[string]any{"interface": "deploy", "step": "write_image"},
		},
	}
	if diff := cmp.Diff(want, written); diff != "" {
		t.Errorf("write_image (-want +got):\n%s", diff)
	}
	<-ironic.beats // each command's end sends a heartbeat at once: the next one would be in an hour

	installed, err := b.disk.Installed()
	if err != nil {
		t.Fatal(err)
	}
	wanted := &disk.Image{URL: ironic.URL + "/files/image.qcow2", Format: "qcow2", Checksum: "sha256:" + sha256Of(image),
		Bytes: int64(len(image))}
	if diff := cmp.Diff(wanted, installed); diff != "" {
		t.Errorf("on the disk (-want +got):\n%s", diff)
	}
	for name, content := range map[string]string{disk.ImageFile: string(image), disk.ConfigDriveFile: "config-2"} {
		data, err := os.ReadFile(filepath.Join(b.disk.Dir, name))
		if err != nil || string(data) != content {
			t.Errorf("%s holds %q, %v; want %q", name, data, err, content)
		}
	}
	for _, name := range []string{"standby.get_partition_uuids", "image.install_bootloader", "standby.sync"} {
		if command := b.command(name, map[string]any{}); command.Status != succeeded {
			t.Errorf("%s: %+v", name, command)
		}
	}
	if command := b.command("standby.power_off", map[string]any{}); command.Status != succeeded || <-b.powered != "off" {
		t.Errorf("power_off: %+v", command)
	}
}

// Older versions of Ironic write the image by a separate command, with the config drive among its parameters.
func TestPrepareImage(t *testing.T) {
	ironic := newFakeIronic(t)
	b := boot(t, ironic, Parameters{}).known()
	command := b.command("standby.prepare_image", map[string]any{
		"image_info": map[string]any{"urls": []string{ironic.serve("image", image)}, "checksum": sha256Of(image),
			"configdrive": packed(t, "config-2")},
	})
	if command.Status != succeeded || len(command.Params) != 0 {
		t.Errorf("prepare_image: %+v", command)
	}
	data, err := os.ReadFile(filepath.Join(b.disk.Dir, disk.ConfigDriveFile))
	if err != nil || string(data) != "config-2" {
		t.Errorf("config drive is %q, %v", data, err)
	}
}

func TestCleaning(t *testing.T) {
	ironic := newFakeIronic(t)
	b := boot(t, ironic, Parameters{}).known()
	b.writeImage(map[string]any{"urls": []string{ironic.serve("image", image)}, "checksum": sha256Of(image)}, packed(t, "config-2"))
	steps := b.command("clean.get_clean_steps", map[string]any{})
	if list, _ := steps.Result["clean_steps"].(map[string]any); len(list) == 0 {
		t.Fatalf("clean steps are %+v", steps)
	}
	step := map[string]any{"interface": "deploy", "step": "erase_devices_metadata", "priority": 10.0}
	cleaned := b.command("clean.execute_clean_step", map[string]any{"step": step})
	if diff := cmp.Diff(map[string]any{"clean_result": nil, "clean_step": step}, cleaned.Result); diff != "" || cleaned.Status != succeeded {
		t.Errorf("%+v, result (-want +got):\n%s", cleaned, diff)
	}
	left, err := os.ReadDir(b.disk.Dir)
	if err != nil || len(left) != 0 {
		t.Errorf("after cleaning there is %v, %v", left, err)
	}
}

// Ironic gives out a token once: the agent uses the one on the medium.
func TestVirtualMediaToken(t *testing.T) {
	ironic := newFakeIronic(t)
	ironic.token = hiddenToken
	b := boot(t, ironic, Parameters{Token: "from-the-medium"})
	if beat := <-ironic.beats; beat["agent_token"] != "from-the-medium" {
		t.Errorf("heartbeat has the token %q", beat["agent_token"])
	}
	b.cutPower()

	without := boot(t, ironic, Parameters{})
	without.waitFor("boot medium has none")
	if len(ironic.beats) != 0 {
		t.Error("an agent without a token called")
	}
}

func TestInvalidCommands(t *testing.T) {
	cases := map[string]struct {
		name, token string
		status      int
		want        string
	}{
		"NoToken":    {"standby.sync", "", http.StatusUnauthorized, "agent_token"},
		"WrongToken": {"standby.sync", "guessed", http.StatusUnauthorized, "agent_token"},
		"Unknown":    {"standby.dance", "secret", http.StatusNotFound, "Unknown command: standby.dance"},
	}
	b := boot(t, newFakeIronic(t), Parameters{}).known()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status, body := b.post(tc.name, nil, tc.token, "false")
			if status != tc.status || !strings.Contains(string(body), "faultstring") || !strings.Contains(string(body), tc.want) {
				t.Errorf("status %d: %s; want %d %q", status, body, tc.status, tc.want)
			}
		})
	}
	unknown := b.command("deploy.execute_deploy_step",
		map[string]any{"step": map[string]any{"interface": "raid", "step": "apply_configuration"}})
	if unknown.Status != failed || !strings.Contains(unknown.Error.Details, "raid.apply_configuration is not supported") {
		t.Errorf("a step that it does not have: %+v", unknown)
	}
}

// One command at a time: for a second one the agent returns that it is busy, and Ironic retries.
func TestBusy(t *testing.T) {
	ironic := newFakeIronic(t)
	hold, asked := make(chan struct{}), make(chan struct{})
	slow := http.NewServeMux()
	slow.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-hold
		_, _ = w.Write(image)
	})
	ironic.Config.Handler = handlers{ironic.Config.Handler, slow}
	b := boot(t, ironic, Parameters{}).known()
	step := map[string]any{"interface": "deploy", "step": "write_image", "args": map[string]any{
		"image_info": map[string]any{"urls": []string{ironic.URL + "/slow"}, "checksum": sha256Of(image)},
	}}
	status, body := b.post("deploy.execute_deploy_step", map[string]any{"step": step}, "secret", "false")
	if status != http.StatusOK || !strings.Contains(string(body), running) {
		t.Errorf("a step is answered before its end: status %d: %s", status, body)
	}
	<-asked
	if status, body := b.post("standby.sync", nil, "secret", "false"); status != http.StatusConflict ||
		!strings.Contains(strings.ToLower(string(body)), "agent is busy") {
		t.Errorf("status %d: %s", status, body)
	}
	close(hold)
	<-ironic.beats
	if command := b.command("standby.sync", nil); command.Status != succeeded {
		t.Errorf("after the step: %+v", command)
	}
}

type handlers struct{ usual, slow http.Handler }

func (h handlers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/slow" {
		h.slow.ServeHTTP(w, r)
		return
	}
	h.usual.ServeHTTP(w, r)
}

// A power cut while an image is written leaves a disk that cannot be booted, and no process.
func TestPowerCutWhileWriting(t *testing.T) {
	ironic := newFakeIronic(t)
	asked := make(chan struct{})
	slow := http.NewServeMux()
	slow.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(image[:4])
		w.(http.Flusher).Flush()
		close(asked)
		<-r.Context().Done()
	})
	ironic.Config.Handler = handlers{ironic.Config.Handler, slow}
	b := boot(t, ironic, Parameters{}).known()
	step := map[string]any{"interface": "deploy", "step": "write_image", "args": map[string]any{
		"image_info": map[string]any{"urls": []string{ironic.URL + "/slow"}, "checksum": sha256Of(image)},
	}}
	b.post("deploy.execute_deploy_step", map[string]any{"step": step}, "secret", "false")
	<-asked
	b.cutPower()
	if installed, err := b.disk.Installed(); installed != nil || err != nil {
		t.Errorf("the disk has %+v, %v", installed, err)
	}
	if _, err := os.Stat(filepath.Join(b.disk.Dir, disk.ImageFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half an image: %v", err)
	}
	if _, err := http.Get(b.callback + "/v1/status"); err == nil {
		t.Error("the agent still answers")
	}
}

func TestSilentAgent(t *testing.T) {
	ironic := newFakeIronic(t)
	b := boot(t, ironic, Parameters{}, faults.Fault{Kind: faults.AgentSilent})
	b.waitFor("silent")
	if n := len(ironic.lookedUp()); n != 0 {
		t.Errorf("a silent agent has called %d times", n)
	}
	b.faults.Clear(faults.AgentSilent)
	b.known()
	if err := b.faults.Put(faults.Fault{Kind: faults.AgentSilent}); err != nil {
		t.Fatal(err)
	}
	if _, err := http.Get(b.callback + "/v1/commands/"); err == nil {
		t.Error("a silent agent answers")
	}
}

func TestLogs(t *testing.T) {
	b := boot(t, newFakeIronic(t), Parameters{}).known()
	command := b.command("log.collect_system_logs", map[string]any{})
	logs, _ := command.Result["system_logs"].(string)
	data, err := base64.StdEncoding.DecodeString(logs)
	if err != nil || len(data) == 0 {
		t.Fatalf("%+v, %v", command, err)
	}
	if _, err := gzip.NewReader(bytes.NewReader(data)); err != nil {
		t.Errorf("logs are not what Ironic keeps them as: %v", err)
	}
}

// An agent whose Ironic has no name yet finds its own address later, and ends without it.
func TestAddressOfAgent(t *testing.T) {
	if got, err := addressToward(t.Context(), "http://127.0.0.1:6385"); err != nil || got != "127.0.0.1" {
		t.Errorf("loopback is reached from %q, %v", got, err)
	}
	if got, err := addressToward(t.Context(), "https://[::1"); err == nil {
		t.Errorf("what is no URL is reached from %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	a := New(Options{
		Parameters: Parameters{IronicURL: "http://ironic.invalid"}, Retry: time.Millisecond, Clock: clock.RealClock{}, Logger: logr.Discard(),
	})
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	for !strings.Contains(a.State(), "finding the address") {
		runtime.Gosched()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("its power is cut, and the error is %v", err)
	}
}

// An agent with a callback for inspections sends its inventory before it looks itself up, again if Ironic refuses it.
func TestInspection(t *testing.T) {
	ironic := newFakeIronic(t)
	ironic.refusals = 2
	boot(t, ironic, Parameters{InspectionURL: ironic.URL + "/v1/continue_inspection", IronicURL: ironic.URL}).known()
	if lookups := ironic.lookedUp(); len(lookups) != 1 {
		t.Errorf("%d lookups, want one, after the inspection", len(lookups))
	}
	ironic.mu.Lock()
	defer ironic.mu.Unlock()
	got := ironic.inspected
	if got.BootInterface != "52:54:00:00:00:01" || len(got.Inventory.Interfaces) != 2 || got.Inventory.Hostname != "server-1" {
		t.Errorf("its network is %s, %+v", got.BootInterface, got.Inventory.Interfaces)
	}
	if got.Inventory.CPU.Count != 32 || got.Inventory.CPU.Architecture != "x86_64" || got.Inventory.Memory.PhysicalMB != 64<<10 {
		t.Errorf("its processors are %+v, its memory is %+v", got.Inventory.CPU, got.Inventory.Memory)
	}
	if got.RootDisk == nil || got.RootDisk.Size != 960e9 || len(got.PCIDevices) != 2 || got.PCIDevices[0].Vendor != "10de" {
		t.Errorf("its disk is %+v, its devices are %+v", got.RootDisk, got.PCIDevices)
	}
}

// Ironic's inspector boots an agent that is told of the inspection only.
func TestOnlyInspection(t *testing.T) {
	ironic := newFakeIronic(t)
	boot(t, ironic, Parameters{InspectionURL: ironic.URL + "/v1/continue_inspection"}).waitFor("inspected, and nothing else to do")
	ironic.mu.Lock()
	defer ironic.mu.Unlock()
	if ironic.inspected.BootInterface == "" || len(ironic.lookups) != 0 {
		t.Errorf("the inspection got %+v, and there were the lookups %v: want none", ironic.inspected, ironic.lookups)
	}
}

// The certificate of an Ironic is checked unless the medium says otherwise.
func TestInsecure(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	for insecure, want := range map[bool]string{false: "certificate", true: "404 Not Found"} {
		a := New(Options{Parameters: Parameters{IronicURL: server.URL, Insecure: insecure}, Clock: clock.RealClock{}, Logger: logr.Discard()})
		if _, err := a.lookUp(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("insecure is %t, and the error is %v", insecure, err)
		}
	}
}
