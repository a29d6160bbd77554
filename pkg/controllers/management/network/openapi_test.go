// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/openapi"
)

const document = "../../../../docs/network-endpoint.openapi.yaml"

// TestContract: what the controllers send is what the document says.
func TestContract(t *testing.T) {
	var c *openapi.Document
	var sent []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Scheme, r.URL.Host = "https", r.Host
		if err := c.CheckRequest(r); err != nil {
			t.Errorf("the document does not have this request: %v", err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var move Move
		if err := json.Unmarshal(body, &move); err != nil {
			t.Error(err)
		}
		sent = append(sent, strings.Join(append([]string{fmt.Sprintf("%s: %s", move.Tenant, move.Network)},
			slices.Sorted(maps.Values(move.Topology))...), " "))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"network": move.Network})
	}))
	defer server.Close()
	c = openapi.Load(t, document, server.URL+"/v1")
	c.Security = openapi3.SecurityRequirements{{"token": []string{}}} // there is one, so it must be sent

	dir := t.TempDir()
	for name, content := range map[string][]byte{
		tokenFile: []byte("secret"), caFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	endpoint, err := NewHTTPEndpoint(server.URL+"/v1/", dir)
	if err != nil {
		t.Fatal(err)
	}
	controller := NewController(environment.Client, environment.Client, endpoint, topology.Default())
	inDomain := func(_ *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) {
		host.Labels = map[string]string{v1alpha1.NVLinkDomainLabelKey: "n1", v1alpha1.RackLabelKey: "r1", "team": "not-for-switches"}
	}
	for name, tc := range map[string]struct {
		reason  string
		network v1alpha1.TenantNetwork
		phase   v1alpha1.MachinePhase
		change  func(*v1alpha1.Machine, *bmov1alpha1.BareMetalHost)
		orphan  bool
		want    string
	}{
		"VLAN": {reason: "a claim", network: v1alpha1.TenantNetwork{VLAN: new(int32(4094))}, phase: v1alpha1.MachineClaimed,
			want: "*: vlan:4094"},
		"VNI": {reason: "the largest", network: v1alpha1.TenantNetwork{VNI: new(int32(16777215))}, phase: v1alpha1.MachineClaimed,
			want: "*: vni:16777215"},
		"ID": {reason: "a name of the endpoint's", network: v1alpha1.TenantNetwork{ID: "blue/7 east"}, phase: v1alpha1.MachineClaimed,
			want: "*: id:blue/7 east"},
		"Inspected": {reason: "with the other MAC addresses", network: v1alpha1.TenantNetwork{ID: "blue"}, phase: v1alpha1.MachineClaimed,
			change: func(_ *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) {
				host.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{NIC: []bmov1alpha1.NIC{{MAC: "52:54:00:00:00:0a"}, {}}}
			}, want: "*: id:blue"},
		"Topology": {reason: "a fabric manager makes a partition of the servers of a tenant in an NVLink domain",
			network: v1alpha1.TenantNetwork{ID: "blue"}, phase: v1alpha1.MachineClaimed, change: inDomain, want: "*: id:blue n1 r1"},
		"LeavesTopology": {reason: "and takes it away again", network: v1alpha1.TenantNetwork{ID: "blue"}, phase: v1alpha1.MachineReleasing,
			change: inDomain, want: ":  n1 r1"},
		"Release": {reason: "the way back", network: v1alpha1.TenantNetwork{ID: "blue"}, phase: v1alpha1.MachineReleasing, want: ": "},
		"Orphan": {reason: "its Machine was deleted by force", network: v1alpha1.TenantNetwork{ID: "blue"}, phase: v1alpha1.MachineReleasing,
			orphan: true, want: ": "},
	} {
		t.Run(name, func(t *testing.T) {
			sent = nil
			machine, host := held(t, tc.phase, v1alpha1.ReasonWaitingForHook)
			host.Annotations[before], host.Annotations[after] = tc.network.String(), tc.network.String()
			if err := environment.Client.Update(t.Context(), host); err != nil {
				t.Fatal(err)
			}
			if tc.change != nil {
				tc.change(machine, host)
				changed := host.DeepCopy()
				if err := environment.Client.Update(t.Context(), changed); err != nil {
					t.Fatal(err)
				}
				host.ResourceVersion = changed.ResourceVersion
				if err := environment.Client.Status().Update(t.Context(), host); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if tc.orphan {
				if err := environment.Client.Delete(t.Context(), machine); err != nil {
					t.Fatal(err)
				}
				_, err = orphans{controller}.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(host)})
			} else {
				_, err = controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(machine)})
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{strings.Replace(tc.want, "*", machine.Namespace, 1)}, sent); diff != "" {
				t.Errorf("%s: sent (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestContractHasAllFields: a field that the manager sends and the document does not have would be valid.
func TestContractHasAllFields(t *testing.T) {
	var fields []string
	for field := range reflect.TypeFor[Move]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
			fields = append(fields, name)
		}
	}
	slices.Sort(fields)
	c := openapi.Load(t, document, "https://switches")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(c.Components.Schemas["Move"].Value.Properties)), fields); diff != "" {
		t.Errorf("fields of the request (-document +code):\n%s", diff)
	}
}

// TestContractRefuses: the document tells what is right from what is wrong, and agrees with the code about the answers.
func TestContractRefuses(t *testing.T) {
	c := openapi.Load(t, document, "https://switches")
	request := func(method, path, body string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), method, "https://switches"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		return r
	}
	for name, tc := range map[string]struct {
		reason, method, path, body string
		valid                      bool
	}{
		"Right":     {reason: "so that the others fail for their reasons", body: `{"network":"vlan:1","macs":["m"],"tenant":"a"}`, valid: true},
		"NewField":  {reason: "fields may be added", body: `{"network":"","rack":"r1"}`, valid: true},
		"NoNetwork": {reason: "empty is a network, missing is none", body: `{"tenant":"a"}`},
		"OldForm":   {reason: "networks have a kind", body: `{"network":"blue"}`},
		"NoVLAN":    {reason: "0 is no VLAN", body: `{"network":"vlan:0"}`},
		"Namespace": {reason: "a tenant is a namespace", body: `{"network":"vlan:1","tenant":"A B"}`},
		"Post":      {reason: "a move can be repeated", method: http.MethodPost, body: `{"network":""}`},
		"Path":      {reason: "there is one resource", path: "/hosts/metal3/h1", body: `{"network":""}`},
	} {
		t.Run(name, func(t *testing.T) {
			method, path := http.MethodPut, "/servers/metal3/h1"
			if tc.method != "" {
				method = tc.method
			}
			if tc.path != "" {
				path = tc.path
			}
			if err := c.CheckRequest(request(method, path, tc.body)); (err == nil) != tc.valid {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
	for name, tc := range map[string]struct {
		reason, content, body string
		status                int
		valid, confirms       bool
	}{
		"Confirmed": {reason: "it is", status: 200, content: "application/json", body: `{"network":"vlan:1"}`, valid: true, confirms: true},
		"Elsewhere": {reason: "a document cannot compare", status: 200, content: "application/json", body: `{"network":""}`, valid: true},
		"NoNetwork": {reason: "it says nothing", status: 200, content: "application/json", body: `{}`},
		"Page":      {reason: "a portal answers", status: 200, content: "text/html", body: `<html>`},
		"Moving":    {reason: "it is at it", status: 202, valid: true},
		"Refused":   {reason: "with the reason", status: 422, content: "text/plain", body: "no such VLAN", valid: true},
		"Broken":    {reason: "with the reason", status: 503, content: "text/plain", body: "no switch", valid: true},
		"Created":   {reason: "only 200 confirms", status: 201, content: "application/json", body: `{"network":"vlan:1"}`},
		"Redirect":  {reason: "redirects are not followed", status: 302},
	} {
		t.Run("Answer"+name, func(t *testing.T) {
			header := http.Header{}
			if tc.content != "" {
				header.Set("Content-Type", tc.content)
			}
			asked := request(http.MethodPut, "/servers/metal3/h1", "")
			if err := c.CheckResponse(asked, tc.status, header, tc.body); (err == nil) != tc.valid {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if err := confirmed(Move{Network: "vlan:1"}, tc.status, []byte(tc.body)); (err == nil) != tc.confirms {
				t.Errorf("%s: the manager takes it for a confirmation, or does not: %v", tc.reason, err)
			}
		})
	}
}
