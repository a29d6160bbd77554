// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package deployagent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

var hardware = inventory.Hardware{
	Processors: []inventory.Processor{{Count: 2, Cores: 8, Threads: 16}}, MemoryGiB: 64,
	NICs:  []inventory.NIC{{MAC: "52:54:00:00:00:01"}, {MAC: "52:54:00:00:00:02"}},
	Disks: []inventory.Disk{{Name: "/dev/nvme0n1", SizeGB: 960}},
	GPUs:  []inventory.GPU{{Count: 2, Model: "H100"}},
}

// fakeIronic implements the parts of Ironic that an agent needs.
type fakeIronic struct {
	*httptest.Server
	// token is in the response to a lookup.
	token string
	// beats has the body of each heartbeat.
	beats chan map[string]string
	// files are served by their path.
	files map[string][]byte

	mu sync.Mutex
	// refusals is how many lookups fail, as they do while a node cannot be deployed.
	refusals int
	lookups  []url.Values
	// inspected is the inventory that was sent.
	inspected struct {
		BootInterface string `json:"boot_interface"`
		Inventory     struct {
			Hostname   string
			Interfaces []any
			CPU        struct {
				Count        int
				Architecture string
			}
			Memory struct {
				PhysicalMB int `json:"physical_mb"`
			}
		}
		RootDisk   *struct{ Size float64 } `json:"root_disk"`
		PCIDevices []struct {
			Vendor string `json:"vendor_id"`
		} `json:"pci_devices"`
	}
}

func newFakeIronic(t *testing.T) *fakeIronic {
	t.Helper()
	s := &fakeIronic{token: "secret", beats: make(chan map[string]string, 100), files: map[string][]byte{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/lookup", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lookups = append(s.lookups, r.URL.Query())
		if s.refusals > 0 {
			s.refusals--
			http.Error(w, `{"error_message": "not found"}`, http.StatusNotFound)
			return
		}
		writeJSON(w, http.StatusOK, map[string]any{
			"node": map[string]string{"uuid": "node-1"}, "config": map[string]any{"agent_token": s.token, "heartbeat_timeout": 300},
		})
	})
	mux.HandleFunc("POST /v1/heartbeat/node-1", func(w http.ResponseWriter, r *http.Request) {
		beat := map[string]string{}
		if err := json.NewDecoder(r.Body).Decode(&beat); err != nil {
			t.Errorf("heartbeat: %v", err)
		}
		w.WriteHeader(http.StatusAccepted)
		s.beats <- beat
	})
	mux.HandleFunc("POST /v1/continue_inspection", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.refusals > 0 {
			s.refusals--
			http.Error(w, `{"error_message": "not found"}`, http.StatusNotFound)
			return
		}
		if err := json.NewDecoder(r.Body).Decode(&s.inspected); err != nil {
			t.Errorf("inspection: %v", err)
		}
		writeJSON(w, http.StatusAccepted, map[string]string{"uuid": "node-1"})
	})
	mux.HandleFunc("GET /files/{name}", func(w http.ResponseWriter, r *http.Request) {
		data, ok := s.files[r.PathValue("name")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// serve returns the URL that the data can be fetched from.
func (s *fakeIronic) serve(name string, data []byte) string {
	s.files[name] = data
	return s.URL + "/files/" + name
}

func (s *fakeIronic) lookedUp() []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookups
}

// booted is a server that runs the agent.
type booted struct {
	t        *testing.T
	ironic   *fakeIronic
	agent    *Agent
	disk     disk.Disk
	faults   *faults.Set
	powered  chan string
	powerCut context.CancelFunc
	cut      sync.Once
	ended    chan error
	callback string
}

// boot starts an agent on a server with these faults.
func boot(t *testing.T, ironic *fakeIronic, parameters Parameters, has ...faults.Fault) *booted {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if parameters.InspectionURL == "" {
		parameters.IronicURL = ironic.URL
	}
	b := &booted{
		t: t, ironic: ironic, disk: disk.Disk{Dir: t.TempDir()}, faults: &faults.Set{}, powered: make(chan string, 1), powerCut: cancel,
		ended: make(chan error, 1),
	}
	for _, fault := range has {
		if err := b.faults.Put(fault); err != nil {
			t.Fatal(err)
		}
	}
	b.agent = New(Options{
		Server: Server{
			Name: "server-1", Hardware: hardware.Complete("server-1"), Disk: b.disk, Faults: b.faults,
			PowerOff: func() { b.powered <- "off" }, Reboot: func() { b.powered <- "reboot" },
		},
		Parameters: parameters, Heartbeat: time.Hour, Retry: time.Millisecond, Clock: clock.RealClock{},
		Logger: logr.Discard(),
	})
	go func() { b.ended <- b.agent.Run(ctx) }()
	t.Cleanup(b.cutPower)
	return b
}

// known waits for the first heartbeat.
func (b *booted) known() *booted {
	b.t.Helper()
	beat := <-b.ironic.beats
	b.callback = beat["callback_url"]
	if beat["agent_version"] == "" || b.callback == "" {
		b.t.Fatalf("heartbeat is %v", beat)
	}
	return b
}

func (b *booted) cutPower() {
	b.cut.Do(func() {
		b.powerCut()
		if err := <-b.ended; err != nil {
			b.t.Errorf("agent: %v", err)
		}
	})
}

// waitFor waits until the agent reports a state.
func (b *booted) waitFor(state string) {
	b.t.Helper()
	poll.Eventually(b.t, "the agent is "+state, func(context.Context) error {
		if now := b.agent.State(); !strings.Contains(now, state) {
			return errors.New("it is " + now)
		}
		return nil
	})
}

// shown is a command in the form that Ironic reads.
type shown struct {
	ID     string         `json:"id"`
	Name   string         `json:"command_name"`
	Params map[string]any `json:"command_params"`
	Status string         `json:"command_status"`
	Error  *commandError  `json:"command_error"`
	Result map[string]any `json:"command_result"`
}

// post sends a command with a token and returns the status and body of the response.
func (b *booted) post(name string, params map[string]any, token, wait string) (int, []byte) {
	b.t.Helper()
	body, err := json.Marshal(map[string]any{"name": name, "params": params})
	if err != nil {
		b.t.Fatal(err)
	}
	query := url.Values{"wait": {wait}}
	if token != "" {
		query.Set("agent_token", token)
	}
	response, err := http.Post(b.callback+"/v1/commands/?"+query.Encode(), "application/json", bytes.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return response.StatusCode, data
}

// command sends a command, waits for its end, and returns the last one in the list, as Ironic reads it.
func (b *booted) command(name string, params map[string]any) shown {
	b.t.Helper()
	if status, body := b.post(name, params, b.ironic.token, "true"); status != http.StatusOK {
		b.t.Fatalf("%s: status %d: %s", name, status, body)
	}
	response, err := http.Get(b.callback + "/v1/commands/")
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var list struct {
		Commands []shown `json:"commands"`
	}
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		b.t.Fatal(err)
	}
	return list.Commands[len(list.Commands)-1]
}

// writeImage executes a deploy step as Ironic does.
func (b *booted) writeImage(info map[string]any, configDrive string) shown {
	b.t.Helper()
	return b.command("deploy.execute_deploy_step", map[string]any{
		"step": map[string]any{
			"interface": "deploy", "step": "write_image",
			"args": map[string]any{"image_info": info, "configdrive": configDrive},
		},
		"node": map[string]any{"uuid": "node-1"}, "ports": []any{},
	})
}
