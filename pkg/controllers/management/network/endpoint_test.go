// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestMove(t *testing.T) {
	move := Move{Host: types.NamespacedName{Namespace: "metal3", Name: "h1"}, Network: "vlan:100", MACs: []string{"00:00:5e:00:53:01"},
		Tenant: "acme"}
	for name, tc := range map[string]struct {
		reason, answer string
		status         int
		moving         bool
		problem        string
	}{
		"Confirmed": {reason: "it says where the server is", status: 200, answer: `{"network":"vlan:100"}`},
		"Moving":    {reason: "it is at it", status: 202, moving: true, problem: "is being moved"},
		"Elsewhere": {reason: "a server in another network must not boot the tenant's image", status: 200, answer: `{"network":"vlan:7"}`,
			problem: "the server is in network vlan:7"},
		"ParkingLot": {reason: "so must one that was never moved", status: 200, answer: `{"network":""}`,
			problem: "the server is in the parking lot"},
		"NoWord":       {reason: "what is not said is not confirmed", status: 200, answer: `{}`, problem: "confirms nothing"},
		"NotJSON":      {reason: "a portal's login page answers 200, too", status: 200, answer: `<html>`, problem: "confirms nothing"},
		"Created":      {reason: "only 200 is a confirmation", status: 201, answer: `{"network":"vlan:100"}`, problem: "201 Created"},
		"Redirect":     {reason: "redirects are not followed", status: 302, problem: "302 Found"},
		"Refused":      {reason: "the endpoint says why", status: 409, answer: "no such VLAN\n", problem: "409 Conflict no such VLAN"},
		"Broken":       {reason: "it is tried again", status: 500, answer: strings.Repeat("x", 10000), problem: "500 Internal Server Error"},
		"Disconnected": {reason: "no answer is no confirmation", status: 0, problem: "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				asked = r.Method + " " + r.URL.Path + " " + string(body)
				if tc.status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.answer)
			}))
			defer server.Close()
			endpoint, err := NewHTTPEndpoint(server.URL+"/v1", "")
			if err != nil {
				t.Fatal(err)
			}
			err = endpoint.Move(t.Context(), move)
			server.Close() // the handler may run on after its connection has ended
			if errors.Is(err, ErrMoving) != tc.moving || (err == nil) != (tc.problem == "") ||
				(err != nil && !strings.Contains(err.Error(), tc.problem)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.problem)
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
			want := `PUT /v1/servers/metal3/h1 {"network":"vlan:100","macs":["00:00:5e:00:53:01"],"tenant":"acme"}`
			if diff := cmp.Diff(want, asked); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewHTTPEndpoint(t *testing.T) {
	directory := func(files map[string]string) string {
		dir := t.TempDir()
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	for name, tc := range map[string]struct{ reason, address, credentials, problem string }{
		"Empty":    {reason: "there is none", problem: "not an http or https URL"},
		"Name":     {reason: "the scheme is missing", address: "switches", problem: "not an http or https URL"},
		"FTP":      {reason: "requests are HTTP", address: "ftp://switches/", problem: "not an http or https URL"},
		"Hostless": {reason: "there is no server", address: "https://", problem: "not an http or https URL"},
		"HTTP":     {reason: "the network may be one that is trusted", address: "http://switches/v1"},
		"ClearText": {reason: "a token in clear text is everyone's", address: "http://switches",
			credentials: directory(map[string]string{"token": "t"}),
			problem:     "sent in clear text"},
		"Token": {reason: "the system's authorities are used", address: "https://switches",
			credentials: directory(map[string]string{"token": "t"})},
		"Nothing": {reason: "a Secret with other keys", address: "https://switches", credentials: directory(nil),
			problem: "neither token nor ca.crt"},
		"EmptyToken": {reason: "it would look like no token", address: "https://switches",
			credentials: directory(map[string]string{"token": "\n"}), problem: "token is empty"},
		"NoPEM": {reason: "no certificate would be accepted", address: "https://switches",
			credentials: directory(map[string]string{"ca.crt": "x"}),
			problem:     "ca.crt has no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewHTTPEndpoint(tc.address, tc.credentials)
			if (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.problem)
			}
		})
	}
}

// TestCredentials: the manager and the endpoint know each other.
func TestCredentials(t *testing.T) {
	sent := ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization")
		_, _ = io.WriteString(w, `{"network":""}`)
	}))
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of the handshake that is refused below
	dir := t.TempDir()
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("token", []byte("first\n"))
	stranger, err := NewHTTPEndpoint(server.URL, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Move(t.Context(), Move{}); err == nil || sent != "" {
		t.Errorf("an endpoint with a certificate of an unknown authority was sent %q (%v)", sent, err)
	}
	write("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	endpoint, err := NewHTTPEndpoint(server.URL, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"first", "second"} {
		write("token", []byte(token))
		if err := endpoint.Move(t.Context(), Move{}); err != nil || sent != "Bearer "+token {
			t.Errorf("with token %s in the file, %q was sent (%v)", token, sent, err)
		}
	}
	write("token", nil)
	if err := endpoint.Move(t.Context(), Move{}); err == nil || !strings.Contains(err.Error(), "token is empty") {
		t.Errorf("with an empty token: %v", err)
	}
}
