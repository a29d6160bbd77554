// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seen records a request that the fake Ironic received.
type seen struct {
	version string
	body    map[string]any
}

// newIronic is a fake Ironic with one response for each path. It records the last request.
func newIronic(t *testing.T, answers map[string]string) (*httptest.Server, *seen) {
	t.Helper()
	last := &seen{}
	ironic := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*last = seen{version: r.Header.Get(versionHeader)}
		if r.Method != http.MethodGet {
			if err := json.NewDecoder(r.Body).Decode(&last.body); err != nil {
				t.Errorf("Ironic was sent invalid JSON, %v", err)
			}
		}
		w.Header().Set(maximumVersionHeader, Forwarded)
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"error_message": "not found"}`
		}
		_, _ = io.WriteString(w, answer) // the test sees what is missing
	}))
	t.Cleanup(ironic.Close)
	return ironic, last
}

// ask sends a request through a bridge to an Ironic.
func ask(t *testing.T, ironic *httptest.Server, method, path, body string) (*http.Response, string) {
	t.Helper()
	address, err := url.Parse(ironic.URL)
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	request.Header.Set(versionHeader, Advertised)
	recorder := httptest.NewRecorder()
	New(address).ServeHTTP(recorder, request)
	return recorder.Result(), recorder.Body.String()
}

func TestMicroversion(t *testing.T) {
	root := `{"default_version": {"id": "v1", "min_version": "1.1", "version": "1.82"}}`
	ironic, last := newIronic(t, map[string]string{"GET /": root, "GET /v1/": root, "GET /v1/nodes": `{"note": "1.82"}`})
	for name, tc := range map[string]struct{ reason, path, want string }{
		"Root":  {"the operator reads the versions here, or", "/", strings.ReplaceAll(root, "1.82", "1.89")},
		"V1":    {"here", "/v1/", strings.ReplaceAll(root, "1.82", "1.89")},
		"Nodes": {"other fields stay as they are, even if they look like a version", "/v1/nodes", `{"note": "1.82"}`},
	} {
		t.Run(name, func(t *testing.T) {
			response, body := ask(t, ironic, http.MethodGet, tc.path, "")
			if diff := cmp.Diff(tc.want, body); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
			if got := response.Header.Get(maximumVersionHeader); got != Advertised {
				t.Errorf("the newest version is %q, want %q: the operator would refuse to work", got, Advertised)
			}
			if last.version != Forwarded {
				t.Errorf("Ironic is asked for version %q, want %q: it would refuse", last.version, Forwarded)
			}
		})
	}
}

func TestNewNodesAreOlder(t *testing.T) {
	ironic, last := newIronic(t, map[string]string{"POST /v1/nodes": `{"uuid": "1"}`})
	response, body := ask(t, ironic, http.MethodPost, "/v1/nodes",
		`{"name": "n", "driver": "redfish", "firmware_interface": "redfish", "disable_power_off": false, "inspect_interface": "agent"}`)
	if response.StatusCode != http.StatusOK || body != `{"uuid": "1"}` {
		t.Errorf("the answer is %s %s, want Ironic's", response.Status, body)
	}
	want := map[string]any{"name": "n", "driver": "redfish", "inspect_interface": "redfish"}
	if diff := cmp.Diff(want, last.body); diff != "" {
		t.Errorf("Ironic refuses fields that it does not know, and has no inspection by the agent (-want +got)\n%s", diff)
	}
	ask(t, ironic, http.MethodPost, "/v1/nodes", `{"driver": "ipmi", "inspect_interface": "agent"}`)
	if diff := cmp.Diff(map[string]any{"driver": "ipmi", "inspect_interface": "inspector"}, last.body); diff != "" {
		t.Errorf("a BMC with IPMI does not know the hardware, so the agent sends it to the inspector (-want +got)\n%s", diff)
	}
	if response, _ := ask(t, ironic, http.MethodPost, "/v1/nodes", `{`); response.StatusCode != http.StatusBadRequest {
		t.Errorf("half a node is answered with %s, want Bad Request", response.Status)
	}
}

func TestInventory(t *testing.T) {
	const (
		path  = "/v1/nodes/metal3-system~a/inventory"
		node  = "GET /v1/nodes/metal3-system~a"
		ports = "GET /v1/nodes/1/ports/detail"
	)
	for name, tc := range map[string]struct {
		reason  string
		answers map[string]string
		status  int
		want    string
	}{
		"Made": {
			reason: "Ironic 21.4 found all this by Redfish, but makes no inventory of it",
			answers: map[string]string{
				node: `{"uuid": "1", "inspection_finished_at": "2026-01-01T00:00:00+00:00", "properties": {
					"vendor": "Acme", "cpu_arch": "x86_64", "cpus": 128, "memory_mb": "1048576", "local_gb": "893", "capabilities": "boot_mode:uefi"}}`,
				ports: `{"ports": [{"address": "52:54:00:00:00:02"}, {"address": "52:54:00:00:00:01", "pxe_enabled": true}]}`,
			},
			status: http.StatusOK,
			want: `{"inventory":{"cpu":{"architecture":"x86_64","count":128},"disks":[{"name":"/dev/sda","size":959925190656}],` +
				`"interfaces":[{"mac_address":"52:54:00:00:00:01","name":"eth0"},{"mac_address":"52:54:00:00:00:02","name":"eth1"}],` +
				`"memory":{"physical_mb":1048576},"system_vendor":{"manufacturer":"Acme"}},` +
				`"plugin_data":{"all_interfaces":{"eth0":{"pxe_enabled":true},"eth1":{"pxe_enabled":false}}}}`,
		},
		"Ironics own": {
			reason:  "an inventory of Ironic's own is used",
			answers: map[string]string{"GET " + path: `{"inventory": {"hostname": "a"}}`},
			status:  http.StatusOK, want: `{"inventory": {"hostname": "a"}}`,
		},
		"Not inspected": {
			reason:  "the operator must start the inspection",
			answers: map[string]string{node: `{"uuid": "1", "inspection_finished_at": null, "properties": {"vendor": "Acme"}}`},
			status:  http.StatusNotFound, want: `{"error_message": "not found"}`,
		},
		"No such node": {
			reason: "the operator must register it",
			status: http.StatusNotFound, want: `{"error_message": "not found"}`,
		},
		"Nonsense": {
			reason: "the operator would believe an inventory of zeros",
			answers: map[string]string{
				node:  `{"uuid": "1", "inspection_finished_at": "2026-01-01T00:00:00+00:00", "properties": {"memory_mb": "1.5"}}`,
				ports: `{"ports": []}`,
			},
			status: http.StatusBadGateway,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ironic, _ := newIronic(t, tc.answers)
			response, body := ask(t, ironic, http.MethodGet, path, "")
			if response.StatusCode != tc.status {
				t.Errorf("%s: the status is %s, want %d", tc.reason, response.Status, tc.status)
			}
			if diff := cmp.Diff(tc.want, body); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}
