// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/openapi"
)

const document = "../../docs/network-endpoint.openapi.yaml"

// write writes a file into a directory of the test, and returns its path.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRefused: what is refused without a look at the bridge.
func TestRefused(t *testing.T) {
	const ports, token, vlan = "metal3/h1: [p1]\n", "secret\n", `{"network":"vlan:100"}`
	for name, tc := range map[string]struct {
		reason, body, authorization, ports, token, server, answer string
		status                                                    int
	}{
		"NoToken":    {reason: "the caller is not the manager", authorization: "-", status: 401, answer: "does not have the token"},
		"WrongToken": {reason: "nor is this one", authorization: "Bearer secrets", status: 401, answer: "does not have the token"},
		"NoJSON":     {reason: "it is no request of the contract", body: "vlan:100", status: 400, answer: "no JSON object with a network"},
		"NoNetwork":  {reason: "empty is the parking lot, missing is nothing", body: "{}", status: 400, answer: "no JSON object with a network"},
		"TooLong": {reason: "memory is finite", body: `{"network":"` + strings.Repeat("x", maxBody) + `"}`, status: 400,
			answer: "no JSON object"},
		"VNI": {reason: "a bridge has VLANs", body: `{"network":"vni:5000"}`, status: 422,
			answer: "set spec.network.vlan of the TenantCluster"},
		"ID":       {reason: "a bridge has no names", body: `{"network":"id:blue"}`, status: 422, answer: `the network is "id:blue"`},
		"Zero":     {reason: "802.1Q", body: `{"network":"vlan:0"}`, status: 422, answer: "no VLAN from 1 to 4094"},
		"TooLarge": {reason: "802.1Q", body: `{"network":"vlan:4095"}`, status: 422, answer: "no VLAN from 1 to 4094"},
		"Parking": {reason: "the provisioning network is no tenant's", body: `{"network":"vlan:5"}`, status: 422,
			answer: "that of unclaimed servers"},
		"Unknown": {reason: "its port may be another's", server: "metal3/h2", status: 404,
			answer: "does not know which port server metal3/h2"},
		"TwoServers": {reason: "one would move the other", ports: "a/b: [p1]\nc/d: [p1]\n", status: 500,
			answer: "gives port p1 to a/b and to c/d"},
		"BadFile":    {reason: "half of it would be guessed", ports: "a/b: p1\n", status: 500, answer: "is no map of lists"},
		"EmptyToken": {reason: "everyone has it", token: "\n", authorization: "Bearer ", status: 500, answer: "is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			or := func(text, otherwise string) string {
				if text == "" {
					return otherwise
				}
				return text
			}
			e := &endpoint{parking: 5, ports: write(t, or(tc.ports, ports)), token: write(t, or(tc.token, token))}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "https://switch/servers/"+or(tc.server, "metal3/h1"),
				strings.NewReader(or(tc.body, vlan)))
			request.Header.Set("Authorization", or(tc.authorization, "Bearer secret"))
			recorder := httptest.NewRecorder()
			e.handler().ServeHTTP(recorder, request)
			if answer := recorder.Body.String(); recorder.Code != tc.status || !strings.Contains(answer, tc.answer) {
				t.Errorf("%s: answered %d %q, want %d %q", tc.reason, recorder.Code, answer, tc.status, tc.answer)
			}
			err := openapi.Load(t, document, "https://switch").CheckResponse(request, recorder.Code, recorder.Header(), recorder.Body.String())
			if err != nil {
				t.Errorf("the answer is not of the contract: %v", err)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, problem string
		o               options
	}{
		"NoParking":     {reason: "servers would go back to nowhere", problem: "--parking-vlan is 0"},
		"LargeParking":  {reason: "802.1Q", o: options{parking: 5000}, problem: "--parking-vlan is 5000"},
		"NoCertificate": {reason: "the token would be sent in clear text", o: options{parking: 5}, problem: "--tls-cert-file"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(t.Context(), tc.o); err == nil || !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.problem)
			}
		})
	}
}
