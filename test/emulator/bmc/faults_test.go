// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

func TestUnreachable(t *testing.T) {
	for name, servers := range map[string][]string{"OwnAddress": {"s1"}, "SharedAddress": {"s1", "s2"}} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t, clock.RealClock{}, servers...)
			client, err := r.connect(t, "s1", "secret", false)
			if err != nil {
				t.Fatal(err)
			}
			r.put(t, "s1", faults.Fault{Kind: faults.BMCUnreachable})
			for _, path := range []string{root + "/Systems/s1", root + "/Systems"} {
				if _, err := client.Get(path); err == nil || errors.As(err, new(*schemas.Error)) {
					t.Errorf("%s answers %v, want no answer at all", path, err)
				}
			}
			if _, err := r.connect(t, "s1", "secret", false); err == nil {
				t.Error("a session was made with a BMC that cannot be reached")
			}
			if len(servers) > 1 {
				r.system(t, "s2") // other servers are not affected
			}
			r.faults["s1"].Clear(faults.BMCUnreachable)
			if _, err := client.Get(root + "/Systems/s1"); err != nil {
				t.Errorf("after the fault: %v", err)
			}
		})
	}
}

func TestWrongPassword(t *testing.T) {
	r := newRack(t, clock.RealClock{}, "s1")
	client, err := r.connect(t, "s1", "secret", false)
	if err != nil {
		t.Fatal(err)
	}
	r.put(t, "s1", faults.Fault{Kind: faults.WrongPassword})
	_, err = client.Get(root + "/Systems/s1")
	refusedWith(t, "sessions are refused", err, http.StatusUnauthorized)
	_, err = r.connect(t, "s1", "secret", false)
	refusedWith(t, "and the password", err, http.StatusUnauthorized)
	r.faults["s1"].Clear(faults.WrongPassword)
	if _, err := client.Get(root + "/Systems/s1"); err != nil {
		t.Errorf("after the fault: %v", err)
	}
}

func TestSlow(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(0, 0))
	r := newRack(t, now, "s1", "s2")
	r.put(t, "s1", faults.Fault{Kind: faults.Slow, Seconds: 5})
	answered := make(chan int, 1)
	request := newRequest(t, http.MethodGet, r.url+root+"/Systems/s1", "")
	request.SetBasicAuth("s1", "secret")
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			answered <- 0
			return
		}
		_ = response.Body.Close()
		answered <- response.StatusCode
	}()
	poll.Eventually(t, "the server waits", func(context.Context) error {
		select {
		case status := <-answered:
			t.Fatalf("answered at once, with status %d", status)
		default:
		}
		if !now.HasWaiters() {
			return errors.New("nothing waits for the clock")
		}
		return nil
	})
	r.system(t, "s2") // other servers are not affected
	now.Step(5 * time.Second)
	if status := <-answered; status != http.StatusOK {
		t.Errorf("status %d, want 200 after 5 s", status)
	}
}
