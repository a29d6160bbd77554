// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

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
	"testing"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/admin"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const scenarioYAML = `
profiles:
  small:
    processors: [{cores: 8}]
    memoryGiB: 32
    nics: [{}]
    disks: [{sizeGB: 100}]
servers:
- {name: s1, profile: small, bmc: {username: one, password: secret}}
- {name: s2, profile: small, bmc: {username: two, password: secret, bindAddress: "127.0.0.1:%d"}}
- {name: s3, profile: small, bmc: {username: three, password: secret}, faults: [{kind: agent-silent}]}
`

// program is a rack that runs.
type program struct {
	t       *testing.T
	options *options
	ironic  *httptest.Server
	beats   chan string // callback URLs
	ended   chan error
	stop    context.CancelFunc
}

func startProgram(t *testing.T, script string) *program {
	t.Helper()
	p := &program{t: t, options: newOptions(), beats: make(chan string, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/lookup", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"node": {"uuid": "node-1"}, "config": {"agent_token": "token"}}`))
	})
	mux.HandleFunc("POST /v1/heartbeat/node-1", func(_ http.ResponseWriter, r *http.Request) {
		beat := map[string]string{}
		if err := json.NewDecoder(r.Body).Decode(&beat); err != nil {
			t.Error(err)
		}
		p.beats <- beat["callback_url"]
	})
	mux.HandleFunc("GET /image", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("an image")) })
	mux.HandleFunc("GET /deploy.iso", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a medium")) })
	p.ironic = httptest.NewServer(mux)
	t.Cleanup(p.ironic.Close)

	ports, err := freeport.Reserve(3)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	o := p.options
	o.redfishAddress, o.adminAddress = fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	o.scenario, o.dataDir, o.bootCommand = filepath.Join(dir, "rack.yaml"), filepath.Join(dir, "data"), filepath.Join(dir, "boot.sh")
	o.ironicURL, o.retry = p.ironic.URL, time.Millisecond
	for path, content := range map[string]string{o.scenario: fmt.Sprintf(scenarioYAML, ports[2]), o.bootCommand: "#!/bin/sh\n" + script} {
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.start()
	t.Cleanup(func() { p.end() })
	return p
}

func (p *program) start() {
	ctx, cancel := context.WithCancel(p.t.Context())
	p.stop = cancel
	ended := make(chan error, 1)
	p.ended = ended
	go func() {
		ended <- run(ctx, p.options)
		close(ended)
	}()
	p.untilReady()
}

func (p *program) untilReady() {
	p.t.Helper()
	p.until(func() string {
		response, err := http.Get("http://" + p.options.adminAddress + "/healthz")
		if err != nil {
			return err.Error()
		}
		_ = response.Body.Close()
		return ""
	})
}

// end stops the rack, which ends without an error.
func (p *program) end() {
	p.t.Helper()
	p.stop()
	if err := <-p.ended; err != nil {
		p.t.Error(err)
	}
}

func (p *program) until(missing func() string) {
	p.t.Helper()
	poll.Eventually(p.t, "the rack has done it", func(context.Context) error {
		select {
		case err := <-p.ended:
			p.t.Fatalf("the rack has ended: %v", err)
		default:
		}
		if reason := missing(); reason != "" {
			return errors.New(reason)
		}
		return nil
	})
}

// admin makes a call to the admin API and reads its answer.
func (p *program) admin(method, path, body string, target any) int {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+p.options.adminAddress+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(target); err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode
}

func (p *program) server(name string) admin.View {
	p.t.Helper()
	view := admin.View{}
	if status := p.admin(http.MethodGet, "/v1/servers/"+name, "", &view); status != http.StatusOK {
		p.t.Fatalf("server %s: status %d", name, status)
	}
	return view
}

func (p *program) is(name, power, activity string) {
	p.t.Helper()
	p.until(func() string {
		view := p.server(name)
		if string(view.PowerState) == power && strings.Contains(view.Activity, activity) {
			return ""
		}
		return fmt.Sprintf("server %s is %s and %q, want %s and %q", name, view.PowerState, view.Activity, power, activity)
	})
}

// redfish makes a change at the BMC of a server.
func (p *program) redfish(server, user, method, path, body string) {
	p.t.Helper()
	url := strings.Replace(p.server(server).URL, "/Systems/"+server, path, 1)
	request, err := http.NewRequestWithContext(p.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	request.SetBasicAuth(user, "secret")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusNoContent {
		data, _ := io.ReadAll(response.Body)
		p.t.Fatalf("%s %s: %s: %s", method, url, response.Status, data)
	}
}

func (p *program) command(callback, name, params string) {
	p.t.Helper()
	response, err := http.Post(callback+"/v1/commands/?wait=true&agent_token=token", "application/json",
		strings.NewReader(`{"name": "`+name+`", "params": `+params+`}`))
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, _ := io.ReadAll(response.Body)
	if !strings.Contains(string(data), "SUCCEEDED") {
		p.t.Fatalf("%s: %s: %s", name, response.Status, data)
	}
}
