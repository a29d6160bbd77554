// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/bmc"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// machine is a running server with a client of its BMC.
type machine struct {
	*Server
	t   *testing.T
	bmc string
}

// start runs a server with this boot command, a shell script; none if it is empty.
func start(t *testing.T, now clock.Clock, ironicURL, script string, changes ...func(*Options)) *machine {
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
	for _, change := range changes {
		change(&options)
	}
	hardware := inventory.Hardware{
		Processors: []inventory.Processor{{Cores: 4}}, MemoryGiB: 8, NICs: []inventory.NIC{{MAC: "52:54:00:00:00:01"}},
		Disks: []inventory.Disk{{SizeGB: 10}},
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
	if _, err := io.WriteString(file, "image"); err != nil {
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
	m.call(http.MethodPatch, "Systems/s1",
		map[string]any{"Boot": map[string]any{"BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": "Once"}})
}

func (m *machine) insert(slot, image string) {
	m.t.Helper()
	m.call(http.MethodPost, "Managers/s1/VirtualMedia/"+slot+"/Actions/VirtualMedia.InsertMedia", map[string]any{"Image": image})
}

// is waits until the server has this power state and this activity.
func (m *machine) is(power schemas.PowerState, activity string) {
	m.t.Helper()
	m.until(func() string {
		if m.PowerState() == power && strings.Contains(m.Activity(), activity) {
			return ""
		}
		return fmt.Sprintf("server is %s and %q, want %s and %q", m.PowerState(), m.Activity(), power, activity)
	})
}

// prints waits until the console has this line.
func (m *machine) prints(line string) {
	m.t.Helper()
	m.until(func() string {
		data, err := os.ReadFile(filepath.Join(m.Dir(), disk.ConsoleFile))
		if strings.Contains(string(data), line+"\n") {
			return ""
		}
		return fmt.Sprintf("console has %q, %v, want %q", data, err, line)
	})
}

// hasBooted waits until the boot command has run so many times.
func (m *machine) hasBooted(times int) {
	m.t.Helper()
	m.until(func() string {
		data, err := os.ReadFile(filepath.Join(m.Dir(), disk.ConsoleFile))
		if strings.Count(string(data), "booted\n") == times {
			return ""
		}
		return fmt.Sprintf("console has %q, %v, want %d boots", data, err, times)
	})
}

// until waits for a condition, which returns what is missing.
func (m *machine) until(missing func() string) {
	m.t.Helper()
	poll.Eventually(m.t, "nothing is missing", func(context.Context) error {
		if reason := missing(); reason != "" {
			return errors.New(reason)
		}
		return nil
	})
}

// ironic answers lookups, and records callers and tokens.
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
	for _, path := range []string{"/medium", "/network/pxelinux.cfg/52-54-00-00-00-01"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(medium(i.URL)) })
	}
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func plainMedium(string) []byte { return []byte("an ISO without parameters") }
