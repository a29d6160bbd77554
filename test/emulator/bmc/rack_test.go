// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

// switchboard is a server that changes its power at once.
type switchboard struct {
	mu     sync.Mutex
	state  schemas.PowerState
	resets []schemas.ResetType
}

func (s *switchboard) PowerState() schemas.PowerState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *switchboard) Reset(reset schemas.ResetType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resets = append(s.resets, reset)
	s.state = schemas.OnPowerState
	if reset == schemas.ForceOffResetType || reset == schemas.GracefulShutdownResetType {
		s.state = schemas.OffPowerState
	}
}

// testRack is one service with two servers. Their user names are the names of the servers, the password is "secret".
type testRack struct {
	url     string
	service *Service
	power   map[string]*switchboard
	faults  map[string]*faults.Set
}

func hardware() inventory.Hardware {
	return inventory.Hardware{
		Manufacturer: "Emulated", Model: "GPU Server", BIOSVersion: "2.1",
		Processors: []inventory.Processor{{Count: 2, Model: "Xeon", Cores: 32, Threads: 64, ClockMHz: 3800}},
		MemoryGiB:  512,
		NICs:       []inventory.NIC{{MAC: "52:54:00:aa:00:01", SpeedGbps: 100}, {Name: "ib0"}},
		Disks:      []inventory.Disk{{SizeGB: 960, Kind: inventory.NVMe}, {SizeGB: 4000, Kind: inventory.HDD}},
		GPUs:       []inventory.GPU{{Count: 2, Model: "H100"}},
	}
}

func newRack(t *testing.T, timer clock.Clock, names ...string) *testRack {
	t.Helper()
	r := &testRack{power: map[string]*switchboard{}, faults: map[string]*faults.Set{}}
	var systems []*System
	for _, name := range names {
		r.power[name], r.faults[name] = &switchboard{state: schemas.OffPowerState}, &faults.Set{}
		systems = append(systems,
			NewSystem(Identity{Name: name, UUID: "00000000-0000-0000-0000-00000000000" + name[len(name)-1:], Username: name, Password: "secret"},
				hardware().Complete(name), r.power[name], r.faults[name]))
	}
	r.service = NewService(timer, systems...)
	server := httptest.NewServer(r.service)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *testRack) put(t *testing.T, server string, fault faults.Fault) {
	t.Helper()
	if err := r.faults[server].Put(fault); err != nil {
		t.Fatal(err)
	}
}

// connect logs a client in with a session, or has it use basic authentication.
func (r *testRack) connect(t *testing.T, user, password string, basic bool) (*gofish.APIClient, error) {
	t.Helper()
	client, err := gofish.ConnectContext(t.Context(), gofish.ClientConfig{
		Endpoint: r.url, Username: user, Password: password, BasicAuth: basic, HTTPClient: &http.Client{Transport: &http.Transport{}},
	})
	if err == nil {
		t.Cleanup(client.HTTPClient.CloseIdleConnections)
	}
	return client, err
}

func (r *testRack) system(t *testing.T, name string) *schemas.ComputerSystem {
	t.Helper()
	client, err := r.connect(t, name, "secret", true)
	if err != nil {
		t.Fatal(err)
	}
	systems, err := client.Service.Systems()
	if err != nil {
		t.Fatal(err)
	}
	if len(systems) != 1 || systems[0].ID != name {
		t.Fatalf("%s sees %d systems, want its own", name, len(systems))
	}
	return systems[0]
}

// call makes a plain request that the client library would not make.
func (r *testRack) call(t *testing.T, method, path, user, body string, header http.Header) *http.Response {
	t.Helper()
	request := newRequest(t, method, r.url+path, body)
	for name, values := range header {
		request.Header[name] = values
	}
	if user != "" {
		request.SetBasicAuth(user, "secret")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}
