// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"crypto/rand"
	"crypto/subtle"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
)

// tokenHeader has the key of a session.
const tokenHeader = "X-Auth-Token"

// sessionTimeout is how long an unused session is valid.
const sessionTimeout = 30 * time.Minute

// session is one that was made with the account of one or several servers.
type session struct {
	number      int
	token, user string
	systems     []*System
	used        time.Time
}

func (s session) id() string { return strconv.Itoa(s.number) }

type sessions struct {
	clock clock.Clock

	mu      sync.Mutex
	last    int
	byToken map[string]session
}

func newSessions(clock clock.Clock) *sessions {
	return &sessions{clock: clock, byToken: map[string]session{}}
}

// expire removes the sessions that were unused for sessionTimeout. The lock is held.
func (s *sessions) expire() {
	maps.DeleteFunc(s.byToken, func(_ string, candidate session) bool { return s.clock.Since(candidate.used) >= sessionTimeout })
}

func (s *sessions) create(user string, systems []*System) session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	s.last++
	made := session{number: s.last, token: rand.Text(), user: user, systems: systems, used: s.clock.Now()}
	s.byToken[made.token] = made
	return made
}

// use extends a session and returns its systems; none if there is no such session.
func (s *sessions) use(token string) []*System {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	found, ok := s.byToken[token]
	if !ok {
		return nil
	}
	found.used = s.clock.Now()
	s.byToken[token] = found
	return found.systems
}

// list returns the sessions of those servers, oldest first.
func (s *sessions) list(systems []*System) []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	var list []session
	for _, candidate := range s.byToken {
		if slices.ContainsFunc(candidate.systems, func(system *System) bool { return slices.Contains(systems, system) }) {
			list = append(list, candidate)
		}
	}
	slices.SortFunc(list, func(a, b session) int { return a.number - b.number })
	return list
}

func (s *sessions) remove(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byToken, token)
}

// account returns the systems with this user name and password.
func (s *Service) account(user, password string) []*System {
	var systems []*System
	for _, system := range s.systems {
		if equal(user, system.identity.Username) && equal(password, system.identity.Password) && !system.faults.Has(faults.WrongPassword) {
			systems = append(systems, system)
		}
	}
	return systems
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// authenticate returns the systems that the caller may use, at least one.
func (s *Service) authenticate(r *http.Request) ([]*System, *fault) {
	var systems []*System
	if token := r.Header.Get(tokenHeader); token != "" {
		for _, system := range s.sessions.use(token) {
			if !system.faults.Has(faults.WrongPassword) {
				systems = append(systems, system)
			}
		}
	} else if user, password, ok := r.BasicAuth(); ok {
		systems = s.account(user, password)
	}
	if len(systems) == 0 {
		return nil, unauthorized()
	}
	return systems, nil
}

// authenticated serves a resource to every account.
func authenticated(s *Service, m methods) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		systems, refusal := s.authenticate(r)
		if refusal != nil {
			refusal.write(w)
			return
		}
		if len(systems) == 1 && len(s.systems) > 1 && !s.endure(r, systems[0]) {
			return
		}
		m.serve(w, &call{Request: r, service: s, caller: systems})
	})
}

// ofSystem serves a resource of one server to the account of its BMC.
func ofSystem(s *Service, m methods) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		system := s.find(r.PathValue("server"))
		if system != nil && len(s.systems) > 1 && !s.endure(r, system) {
			return
		}
		systems, refusal := s.authenticate(r)
		switch {
		case refusal != nil:
		case system == nil:
			refusal = notFound(r.URL.Path)
		case !slices.Contains(systems, system):
			refusal = forbidden(system.Name())
		}
		if refusal != nil {
			refusal.write(w)
			return
		}
		m.serve(w, &call{Request: r, service: s, caller: systems, system: system})
	})
}

// endure applies the faults of the server to a call, and returns whether the caller is still connected. If the BMC is
// unreachable, the connection is closed.
func (s *Service) endure(r *http.Request, system *System) bool {
	if slow, is := system.faults.Get(faults.Slow); is {
		timer := s.clock.NewTimer(slow.Delay())
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-r.Context().Done():
			return false
		}
	}
	if system.faults.Has(faults.BMCUnreachable) {
		panic(http.ErrAbortHandler)
	}
	return true
}

type credentials struct {
	UserName string
	Password string
	Oem      any
	Context  string
	// SessionType and OemSessionType are ignored, because the only type is Redfish.
	SessionType    string
	OemSessionType string
}

// logIn makes a session.
func logIn(c *call) (result, *fault) {
	var given credentials
	if refusal := decode(c.Request, &given); refusal != nil {
		return result{}, refusal
	}
	if given.UserName == "" {
		return result{}, missing("UserName")
	}
	for _, system := range c.service.systems {
		if len(c.service.systems) > 1 && equal(given.UserName, system.identity.Username) && !c.service.endure(c.Request, system) {
			return result{}, nil
		}
	}
	systems := c.service.account(given.UserName, given.Password)
	if len(systems) == 0 {
		return result{}, unauthorized()
	}
	made := c.service.sessions.create(given.UserName, systems)
	document := sessionDocument(made)
	return result{
		status: http.StatusCreated, body: document,
		header: map[string]string{tokenHeader: made.token, "Location": sessionPath(made.id())},
	}, nil
}

// logOut ends a session of the caller's.
func logOut(c *call) (result, *fault) {
	for _, candidate := range c.service.sessions.list(c.caller) {
		if candidate.id() == c.PathValue("session") {
			c.service.sessions.remove(candidate.token)
			return result{}, nil
		}
	}
	return result{}, notFound(c.URL.Path)
}

func readSession(c *call) map[string]any {
	for _, candidate := range c.service.sessions.list(c.caller) {
		if candidate.id() == c.PathValue("session") {
			return sessionDocument(candidate)
		}
	}
	return nil
}

func sessionPath(id string) string { return root + "/SessionService/Sessions/" + id }

func sessionDocument(s session) map[string]any {
	return document(schemas.Session{
		Entity:    schemas.Entity{ODataID: sessionPath(s.id()), ID: s.id(), Name: "Session " + s.id()},
		ODataType: "#Session.v1_7_0.Session", UserName: s.user, SessionType: schemas.RedfishSessionTypes,
	}, nil)
}
