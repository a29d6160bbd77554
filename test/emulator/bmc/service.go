// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bmc is the management controller of emulated servers: a Redfish service for Ironic and other clients.
//
// It has the state of a BMC (boot override, virtual media, sessions) and reports power and inventory. The server itself
// is behind the interface Power. Resources are the types of gofish. Those are made for clients and lack links and
// actions, which are added here.
package bmc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"
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
}

// NewService returns the service of these systems. Several servers may have one account, but not one user name with
// several passwords: clients keep one session for each address and user name.
func NewService(clock clock.Clock, systems ...*System) *Service {
	return &Service{systems: systems, clock: clock, sessions: newSessions(clock)}
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("OData-Version", "4.0")
	w.Header().Set("Cache-Control", "no-cache")
	if len(s.systems) == 1 {
		s.endure(r, s.systems[0])
	}
	// Clients ask with and without a slash at the end.
	answer, refusal := s.answer(w, r, strings.TrimRight(r.URL.Path, "/"))
	switch {
	case refusal != nil:
		refusal.write(w)
	case answer.body == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		for name, value := range answer.header {
			w.Header().Set(name, value)
		}
		tag := etag(answer.body)
		w.Header().Set("ETag", tag)
		answer.body["@odata.etag"] = tag
		writeJSON(w, answer.status, answer.body)
	}
}

// result is the response to a call without an error. Without a body, its status is 204.
type result struct {
	status int
	header map[string]string
	body   map[string]any
}

// answer answers a call to a path. The root and the login need no account, and what is of a server needs the account of its BMC.
func (s *Service) answer(w http.ResponseWriter, r *http.Request, path string) (result, *fault) {
	switch {
	case path == "/redfish":
		return resource{document: map[string]any{"v1": root + "/"}}.serve(w, r)
	case path == root:
		return resource{document: s.serviceRoot()}.serve(w, r)
	case path == sessionsPath && r.Method == http.MethodPost:
		return s.logIn(r)
	}
	shared, named := len(s.systems) > 1, s.named(path)
	if named != nil && shared {
		s.endure(r, named)
	}
	systems, refusal := s.authenticate(r)
	if refusal != nil {
		return result{}, refusal
	}
	var found tree
	switch {
	case named == nil:
		if len(systems) == 1 && shared {
			s.endure(r, systems[0])
		}
		found = s.resources(systems)
	case !slices.Contains(systems, named):
		return result{}, forbidden(named.Name())
	default:
		found = named.resources()
	}
	asked, is := found[path]
	if !is {
		return result{}, notFound(path)
	}
	return asked.serve(w, r)
}

// named returns the system that a path names: nil if it names none.
func (s *Service) named(path string) *System {
	for _, system := range s.systems {
		for _, own := range []string{system.Path(), system.managerPath(), system.chassisPath()} {
			if path == own || strings.HasPrefix(path, own+"/") {
				return system
			}
		}
	}
	return nil
}

// changes are what methods other than GET do.
type changes map[string]func(*http.Request) *fault

// resource is what is at a path.
type resource struct {
	// document is what is read; nil for an action.
	document map[string]any
	changes  changes
}

func (e resource) serve(w http.ResponseWriter, r *http.Request) (result, *fault) {
	if reads := r.Method == http.MethodGet || r.Method == http.MethodHead; reads && e.document != nil {
		return result{status: http.StatusOK, body: e.document}, nil
	}
	change := e.changes[r.Method]
	if change == nil {
		allowed := slices.Sorted(maps.Keys(e.changes))
		if e.document != nil {
			allowed = append([]string{http.MethodGet}, allowed...)
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		return result{}, notAllowed(r.Method, r.URL.Path)
	}
	// A change whose If-Match is not of the present state is refused.
	wanted := strings.TrimPrefix(r.Header.Get("If-Match"), "W/")
	if e.document != nil && wanted != "" && wanted != "*" && wanted != strings.TrimPrefix(etag(e.document), "W/") {
		return result{}, preconditionFailed()
	}
	return result{}, change(r)
}

// tree has resources by their paths.
type tree map[string]resource

// add adds documents that can only be read.
func (t tree) add(documents ...map[string]any) {
	for _, document := range documents {
		t[pathOf(document)] = resource{document: document}
	}
}

// collect adds a collection, and its members.
func (t tree) collect(path, kind string, members ...map[string]any) {
	t.add(members...)
	t.add(collection(path, kind, pathsOf(members)))
}

func pathOf(document map[string]any) string { return document["@odata.id"].(string) }

func pathsOf(documents []map[string]any) []string {
	var paths []string
	for _, document := range documents {
		paths = append(paths, pathOf(document))
	}
	return paths
}

// resources are those that need an account of any server.
func (s *Service) resources(systems []*System) tree {
	t := tree{}
	for kind, own := range map[string]func(*System) string{
		"Systems": (*System).Path, "Managers": (*System).managerPath, "Chassis": (*System).chassisPath,
	} {
		var paths []string
		for _, system := range systems {
			paths = append(paths, own(system))
		}
		t.add(collection(root+"/"+kind, collections[kind], paths))
	}
	t.add(document(schemas.SessionService{
		Entity:    schemas.Entity{ODataID: root + "/SessionService", ID: "SessionService", Name: "Session Service"},
		ODataType: "#SessionService.v1_1_8.SessionService", ServiceEnabled: true, SessionTimeout: uint(sessionTimeout.Seconds()),
		Status: healthy(),
	}, map[string]any{"Sessions": link(sessionsPath)}))
	var sessions []map[string]any
	for _, session := range s.sessions.list(systems) {
		described := session.document()
		sessions = append(sessions, described)
		t[session.path()] = resource{document: described, changes: changes{
			http.MethodDelete: func(*http.Request) *fault {
				s.sessions.remove(session.token)
				return nil
			},
		}}
	}
	t.add(collection(sessionsPath, "Session", pathsOf(sessions)))
	return t
}

// collections are the kinds of what the service has of all systems.
var collections = map[string]string{"Systems": "ComputerSystem", "Managers": "Manager", "Chassis": "Chassis"}

func (s *Service) serviceRoot() map[string]any {
	name := "rack"
	if len(s.systems) == 1 {
		name = s.systems[0].Name()
	}
	return document(gofish.Service{
		Entity:    schemas.Entity{ODataID: root + "/", ID: "RootService", Name: "Root Service"},
		ODataType: "#ServiceRoot.v1_15_0.ServiceRoot", RedfishVersion: "1.15.0", Product: "Emulated BMC", Vendor: "Emulated",
		UUID: uuid.NewSHA1(uuid.NameSpaceOID, []byte("service "+name)).String(),
	}, map[string]any{
		"Systems": link(root + "/Systems"), "Managers": link(root + "/Managers"), "Chassis": link(root + "/Chassis"),
		"SessionService": link(root + "/SessionService"), "Links": map[string]any{"Sessions": link(sessionsPath)},
	})
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

// decode reads a body that may only have the fields of target. An empty one is an empty object.
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
