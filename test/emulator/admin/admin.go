// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admin is the HTTP API of an emulated rack. It shows what each server is doing, and sets and clears its
// faults; the simulators of BMCs with IPMI control its chassis by it. Real racks have no such API.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/baremetal"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/bmc"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/ipmi"
)

// Server is a server of the rack, with the URL of its BMC.
type Server struct {
	*baremetal.Server
	URL string
}

// View is what the API shows of a server.
type View struct {
	Name string   `json:"name"`
	UUID string   `json:"uuid"`
	MACs []string `json:"macs"`
	// URL of the ComputerSystem, or ipmi://HOST:PORT. With redfish+ or redfish-virtualmedia+ before that of a ComputerSystem, it is the
	// address of a BareMetalHost.
	URL string `json:"url"`
	// Username of the BMC's account.
	Username string `json:"username"`
	bmc.Status
	// Activity describes what the server is doing.
	Activity string `json:"activity"`
	// Image on its disk; absent if the disk is empty.
	Image *disk.Image `json:"image,omitempty"`
	// Dir is the directory of the server.
	Dir string `json:"dir"`
	// Faults that it has.
	Faults []faults.Fault `json:"faults"`
}

// New returns the API of these servers.
//
//	GET    /healthz
//	GET    /v1/servers
//	GET    /v1/servers/{name}
//	PUT    /v1/servers/{name}/faults/{kind}   the parameters of the fault, if it has any, as JSON
//	DELETE /v1/servers/{name}/faults/{kind}
//	DELETE /v1/servers/{name}/faults          all of them
//	POST   /v1/servers/{name}/chassis         the arguments of ipmi.Chassis, as text
func New(servers ...Server) http.Handler {
	a := &api{servers: servers}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /v1/servers", a.list)
	mux.HandleFunc("GET /v1/servers/{name}", a.handlerFor(a.show))
	mux.HandleFunc("PUT /v1/servers/{name}/faults/{kind}", a.handlerFor(a.put))
	mux.HandleFunc("DELETE /v1/servers/{name}/faults/{kind}", a.handlerFor(a.clear))
	mux.HandleFunc("DELETE /v1/servers/{name}/faults", a.handlerFor(a.clearAll))
	mux.HandleFunc("POST /v1/servers/{name}/chassis", a.handlerFor(a.chassis))
	return mux
}

type api struct{ servers []Server }

type handler func(http.ResponseWriter, *http.Request, Server)

func (a *api) handlerFor(handle handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, server := range a.servers {
			if server.Identity().Name == r.PathValue("name") {
				handle(w, r, server)
				return
			}
		}
		refuse(w, http.StatusNotFound, fmt.Errorf("no server is called %q", r.PathValue("name")))
	}
}

func (a *api) list(w http.ResponseWriter, _ *http.Request) {
	views := make([]View, 0, len(a.servers))
	for _, server := range a.servers {
		view, err := viewOf(server)
		if err != nil {
			refuse(w, http.StatusInternalServerError, err)
			return
		}
		views = append(views, view)
	}
	write(w, http.StatusOK, views)
}

func (a *api) show(w http.ResponseWriter, _ *http.Request, server Server) {
	view, err := viewOf(server)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err)
		return
	}
	write(w, http.StatusOK, view)
}

func (a *api) put(w http.ResponseWriter, r *http.Request, server Server) {
	fault := faults.Fault{}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&fault); err != nil && !errors.Is(err, io.EOF) {
		refuse(w, http.StatusBadRequest, fmt.Errorf("the fault is not valid JSON: %w", err))
		return
	}
	kind := faults.Kind(r.PathValue("kind"))
	if fault.Kind != "" && fault.Kind != kind {
		refuse(w, http.StatusBadRequest, fmt.Errorf("the path says %s and the body %s: they must be the same", kind, fault.Kind))
		return
	}
	fault.Kind = kind
	if err := server.Faults().Put(fault); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	a.show(w, r, server)
}

func (a *api) clear(w http.ResponseWriter, r *http.Request, server Server) {
	kind := faults.Kind(r.PathValue("kind"))
	if err := kind.Validate(); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	server.Faults().Clear(kind)
	a.show(w, r, server)
}

func (a *api) clearAll(w http.ResponseWriter, r *http.Request, server Server) {
	for _, kind := range faults.Kinds() {
		server.Faults().Clear(kind)
	}
	a.show(w, r, server)
}

func (a *api) chassis(w http.ResponseWriter, r *http.Request, server Server) {
	arguments, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	// The simulator waits for the answer before it answers anyone.
	if err := server.Server.Faults().AwaitAnswer(r.Context(), clock.RealClock{}); err != nil {
		return
	}
	answer, err := ipmi.Chassis(server.Server, strings.Fields(string(arguments))...)
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("the chassis of server %s: %w", server.Identity().Name, err))
		return
	}
	_, _ = io.WriteString(w, answer) // this fails only if the client has closed the connection
}

// AskChassis gives the arguments to the chassis of a server, at its URL, and returns the answer.
func AskChassis(ctx context.Context, url string, arguments ...string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(strings.Join(arguments, " ")))
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // the body was read completely
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return string(answer), err
}

func viewOf(server Server) (View, error) {
	image, err := server.Installed()
	if err != nil {
		return View{}, fmt.Errorf("server %s, %w", server.Identity().Name, err)
	}
	return View{
		Name: server.Identity().Name, UUID: server.Identity().UUID, MACs: server.Hardware().MACs(), URL: server.URL,
		Username: server.Identity().Username, Status: server.System().Status(), Activity: server.Activity(), Image: image,
		Dir: server.Dir(), Faults: server.Server.Faults().List(),
	}, nil
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	// This fails only if the client has closed the connection.
	_ = encoder.Encode(body)
}

func refuse(w http.ResponseWriter, status int, err error) {
	write(w, status, map[string]string{"error": err.Error()})
}
