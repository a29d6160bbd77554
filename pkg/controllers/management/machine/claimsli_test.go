// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestClaimSLI: of the wait for a claim, only what the manager takes counts, and not the time in which no server could be had.
func TestClaimSLI(t *testing.T) {
	const takes, waits = 2 * time.Second, time.Hour
	addServer := func(w *fixture, p *process) {
		w.api.CreateHost(t, env.AvailableHost(w.metal3, "server-00", nil))
		host := w.hosts()[0]
		p.inventory.SetHost(&host)
	}
	for name, tc := range map[string]struct {
		reason string
		before func(w *fixture, p *process)
		// after is after an hour of waiting; nil for a Machine that does not wait.
		after func(w *fixture, p *process)
		want  time.Duration
	}{
		"Free":  {"there is a server when the Machine is created", addServer, nil, takes},
		"Freed": {"there is one after an hour", func(*fixture, *process) {}, addServer, takes},
		"Allowed": {"it may have that type after an hour; when that was is not known", func(w *fixture, p *process) {
			addServer(w, p)
			w.allow("another")
		}, func(w *fixture, p *process) {
			w.allow(w.nodeType)
			p.scheduler.move(objectChanged)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 0)
			key := w.machine("m", nil)
			clock := clocktesting.NewFakePassiveClock(w.get(key).CreationTimestamp.Time)
			w.clock = clock
			p := w.start(w.client)
			p.scheduler.listen()
			tc.before(w, p)
			if tc.after != nil {
				p.look(key)
				clock.SetTime(clock.Now().Add(waits))
				tc.after(w, p)
			}
			clock.SetTime(clock.Now().Add(takes))
			p.scheduler.schedulePending(t.Context())
			p.look(key)
			if w.get(key).Status.ProviderID == "" {
				t.Fatalf("it has no server: %+v", w.get(key).Status.Conditions)
			}
			written := &dto.Metric{}
			if err := p.claimSLI.Write(written); err != nil {
				t.Fatal(err)
			}
			if got := written.GetHistogram(); got.GetSampleCount() != 1 || got.GetSampleSum() != tc.want.Seconds() {
				t.Errorf("%s: got %d claims in %v s, want one in %s", tc.reason, got.GetSampleCount(), got.GetSampleSum(), tc.want)
			}
		})
	}
}
