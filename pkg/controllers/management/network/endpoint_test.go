// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
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
			endpoint, err := NewHTTPEndpoint(server.URL + "/v1")
			if err != nil {
				t.Fatal(err)
			}
			err = endpoint.Move(t.Context(), move)
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
	for _, wrong := range []string{"", "switches", "ftp://switches/", "https://"} {
		if _, err := NewHTTPEndpoint(wrong); err == nil {
			t.Errorf("%q is taken for an endpoint", wrong)
		}
	}
}
