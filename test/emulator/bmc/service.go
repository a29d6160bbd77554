// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"

	"k8s.io/utils/clock"
)

// root is where a Redfish service is, by its specification.
const root = "/redfish/v1"

// Service answers for the BMCs of one or several servers at one address. It is an http.Handler.
//
// A BMC with its own address has the faults of its server in all calls. Where several servers share an address, that
// applies to calls that name a server, log in, or use an account of one server only.
type Service struct {
	systems  []*System
	clock    clock.Clock
	sessions *sessions
	mux      *http.ServeMux
}

// NewService returns the service of these systems. Several servers may have one account, but not one user name with
// several passwords: clients keep one session for each address and user name.
func NewService(clock clock.Clock, systems ...*System) *Service {
	s := &Service{systems: systems, clock: clock, sessions: newSessions(clock), mux: http.NewServeMux()}
	for path, methods := range s.open() {
		s.mux.Handle(path, methods.handler(s))
	}
	for path, methods := range s.service() {
		s.mux.Handle(path, authenticated(s, methods))
	}
	for path, methods := range systemRoutes() {
		s.mux.Handle(path, ofSystem(s, methods))
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if _, refusal := s.authenticate(r); refusal != nil {
			refusal.write(w)
			return
		}
		notFound(r.URL.Path).write(w)
	})
	return s
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Clients ask with and without a slash at the end.
	if path := strings.TrimRight(r.URL.Path, "/"); path != r.URL.Path && path != "" {
		r = r.Clone(r.Context())
		r.URL.Path = path
	}
	if len(s.systems) == 1 && !s.endure(r, s.systems[0]) {
		return
	}
	w.Header().Set("OData-Version", "4.0")
	w.Header().Set("Cache-Control", "no-cache")
	s.mux.ServeHTTP(w, r)
}

func (s *Service) find(name string) *System {
	for _, system := range s.systems {
		if system.identity.Name == name {
			return system
		}
	}
	return nil
}

// call is a request that may be answered.
type call struct {
	*http.Request
	service *Service
	// caller are the systems that the account can access; nil if no login is needed.
	caller []*System
	// system is the one that the path names, if it names one.
	system *System
}

// result is the response of a handler without an error.
type result struct {
	// status 0 means 200 with a body and 204 without.
	status int
	header map[string]string
	body   map[string]any
}

type handlerFunc func(*call) (result, *fault)

// methods of one resource.
type methods map[string]handlerFunc

// get is a resource that can only be read.
func get(read func(*call) map[string]any) methods {
	return methods{http.MethodGet: reading(read)}
}

func reading(read func(*call) map[string]any) handlerFunc {
	return func(c *call) (result, *fault) {
		body := read(c)
		if body == nil {
			return result{}, notFound(c.URL.Path)
		}
		return result{body: body}, nil
	}
}

func (m methods) handler(s *Service) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, &call{Request: r, service: s}) })
}

func (m methods) serve(w http.ResponseWriter, c *call) {
	method := c.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	handle, ok := m[method]
	if !ok {
		var allowed []string
		for _, name := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
			if m[name] != nil {
				allowed = append(allowed, name)
			}
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		notAllowed(c.Method, c.URL.Path).write(w)
		return
	}
	if refusal := m.checkETag(c); refusal != nil {
		refusal.write(w)
		return
	}
	answer, refusal := handle(c)
	if refusal != nil {
		refusal.write(w)
		return
	}
	for name, value := range answer.header {
		w.Header().Set(name, value)
	}
	if answer.body == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	tag := etag(answer.body)
	w.Header().Set("ETag", tag)
	answer.body["@odata.etag"] = tag
	if answer.status == 0 {
		answer.status = http.StatusOK
	}
	writeJSON(w, answer.status, answer.body)
}

// checkETag rejects a change whose If-Match is not of the present state.
func (m methods) checkETag(c *call) *fault {
	wanted := c.Header.Get("If-Match")
	if c.Method != http.MethodPatch || wanted == "" || wanted == "*" || m[http.MethodGet] == nil {
		return nil
	}
	current, refusal := m[http.MethodGet](c)
	if refusal == nil && strings.TrimPrefix(wanted, "W/") != strings.TrimPrefix(etag(current.body), "W/") {
		return preconditionFailed()
	}
	return refusal
}

// etag is weak and leaves out the power, so that a change of settings does not conflict with one of power.
func etag(body map[string]any) string {
	body = maps.Clone(body)
	delete(body, "PowerState")
	// A document of plain values can always be written.
	data, _ := json.Marshal(body)
	sum := sha256.Sum256(data)
	return `W/"` + hex.EncodeToString(sum[:8]) + `"`
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	// This fails only if the client has closed the connection.
	_ = json.NewEncoder(w).Encode(body)
}

// decode reads a body that may only have the fields of into. An empty one is an empty object.
func decode(r *http.Request, target any) *fault {
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 1<<20))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(target); err != nil && !errors.Is(err, io.EOF) {
		if name, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
			return unknownProperty(strings.Trim(name, `"`))
		}
		return malformed(err.Error())
	}
	return nil
}
