// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"net/http"
	"testing"
	"time"

	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestAuthentication(t *testing.T) {
	r := newRack(t, clock.RealClock{}, "s1", "s2")
	for name, basic := range map[string]bool{"Basic": true, "Session": false} {
		t.Run(name, func(t *testing.T) {
			client, err := r.connect(t, "s1", "secret", basic)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := schemas.GetObject[schemas.ComputerSystem](client, root+"/Systems/s1"); err != nil {
				t.Error(err)
			}
			_, err = schemas.GetObject[schemas.ComputerSystem](client, root+"/Systems/s2")
			refusedWith(t, "an account is of one server", err, http.StatusForbidden)
			_, err = schemas.GetObject[schemas.ComputerSystem](client, root+"/Systems/s9")
			refusedWith(t, "there is no such server", err, http.StatusNotFound)
		})
	}
	for name, user := range map[string]string{"WrongPassword": "s1", "WrongUser": "unknown", "NoUser": ""} {
		t.Run(name, func(t *testing.T) {
			if response := r.call(t, http.MethodGet, "/redfish/v1/Systems/s1", "", "",
				basicHeader(user, "wrong")); response.StatusCode != http.StatusUnauthorized {
				t.Errorf("status %d, want 401", response.StatusCode)
			}
			if user == "" {
				return
			}
			_, err := r.connect(t, user, "wrong", false)
			refusedWith(t, "no session without the password", err, http.StatusUnauthorized)
		})
	}
	if response := r.call(t, http.MethodGet, "/redfish/v1/", "", "", nil); response.StatusCode != http.StatusOK {
		t.Errorf("the service root is status %d, want 200: Redfish requires no login for it", response.StatusCode)
	}
}

func basicHeader(user, password string) http.Header {
	request := &http.Request{Header: http.Header{}}
	if user != "" {
		request.SetBasicAuth(user, password)
	}
	return request.Header
}

func TestSessions(t *testing.T) {
	r := newRack(t, clock.RealClock{}, "s1", "s2")
	client, err := r.connect(t, "s1", "secret", false)
	if err != nil {
		t.Fatal(err)
	}
	session, err := client.GetSession()
	if err != nil {
		t.Fatal(err)
	}
	read, err := schemas.GetObject[schemas.Session](client, session.ID)
	if err != nil || read.UserName != "s1" || read.Password != "" || read.Token != "" {
		t.Errorf("session is %+v, %v", read, err)
	}
	other, err := r.connect(t, "s2", "secret", false)
	if err != nil {
		t.Fatal(err)
	}
	refusedWith(t, "sessions of other accounts are not accessible", other.Service.DeleteSession(session.ID), http.StatusNotFound)
	if err := client.Service.DeleteSession(session.ID); err != nil {
		t.Fatal(err)
	}
	_, err = client.Get(root + "/Systems")
	refusedWith(t, "a deleted session is invalid", err, http.StatusUnauthorized)
}

func TestSessionsExpire(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(0, 0))
	r := newRack(t, now, "s1")
	client, err := r.connect(t, "s1", "secret", false)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // each use extends it by half an hour
		now.Step(sessionTimeout - time.Second)
		if _, err := client.Get(root + "/Systems/s1"); err != nil {
			t.Fatal(err)
		}
	}
	now.Step(sessionTimeout)
	_, err = client.Get(root + "/Systems/s1")
	refusedWith(t, "it was not used", err, http.StatusUnauthorized)
}
