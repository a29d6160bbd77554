// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
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

const sessionsPath = root + "/SessionService/Sessions"

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

func (s session) path() string { return fmt.Sprintf("%s/%d", sessionsPath, s.number) }

func (s session) document() map[string]any {
	id := strconv.Itoa(s.number)
	return document(schemas.Session{
		Entity:    schemas.Entity{ODataID: s.path(), ID: id, Name: "Session " + id},
		ODataType: "#Session.v1_7_0.Session", UserName: s.user, SessionType: schemas.RedfishSessionTypes,
	}, nil)
}

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

// endure applies the faults of the server to a call. If the BMC is unreachable, or the caller has gone, the connection is closed.
func (s *Service) endure(r *http.Request, system *System) {
	if err := system.faults.AwaitAnswer(r.Context(), s.clock); err != nil {
		panic(http.ErrAbortHandler)
	}
	if system.faults.Has(faults.BMCUnreachable) {
		panic(http.ErrAbortHandler)
	}
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
func (s *Service) logIn(r *http.Request) (result, *fault) {
	var given credentials
	if refusal := decode(r, &given); refusal != nil {
		return result{}, refusal
	}
	if given.UserName == "" {
		return result{}, missing("UserName")
	}
	for _, system := range s.systems {
		if len(s.systems) > 1 && equal(given.UserName, system.identity.Username) {
			s.endure(r, system)
		}
	}
	systems := s.account(given.UserName, given.Password)
	if len(systems) == 0 {
		return result{}, unauthorized()
	}
	made := s.sessions.create(given.UserName, systems)
	return result{
		status: http.StatusCreated, body: made.document(), header: map[string]string{tokenHeader: made.token, "Location": made.path()},
	}, nil
}
