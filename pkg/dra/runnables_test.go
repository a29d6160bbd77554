// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// countingManager counts the runnables that it is given while it runs.
type countingManager struct {
	manager.Manager
	running *atomic.Bool
	late    *atomic.Int64
}

func (m countingManager) Add(runnable manager.Runnable) error {
	if m.running.Load() {
		m.late.Add(1)
	}
	return m.Manager.Add(runnable)
}

// A manager that is given a runnable while it stops may not stop for as long as its grace period.
func TestRegisterDoesNotAddToRunningManager(t *testing.T) {
	w := newFixture(t)
	m := countingManager{Manager: w.manager(), running: &atomic.Bool{}, late: &atomic.Int64{}}
	host := w.hostCluster()
	w.must(m.Add(host))
	for _, c := range Controllers(tenant.Clusters{TenantCluster: w.cluster, Tenant: tenant.ClusterOf(m), Management: tenant.ClusterOf(host)},
		clock.RealClock{}, w.events) {
		w.must(c.Register(t.Context(), m))
	}
	m.running.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- m.Start(ctx) }()
	w.awaitCondition(v1alpha1.ReasonSynced)
	w.awaitClass(w.class, nil)
	cancel()
	w.must(<-stopped)
	if late := m.late.Load(); late > 0 {
		t.Errorf("%d runnables were added while the manager ran", late)
	}
}

type runnable func(context.Context) error

func (r runnable) Start(ctx context.Context) error { return r(ctx) }

func TestDynamicRunnables(t *testing.T) {
	failure := errors.New("no such watch")
	wait := func(ctx context.Context) error { <-ctx.Done(); return nil }
	for name, test := range map[string]struct {
		reason string
		early  []runnable
		late   []runnable
		want   error
	}{
		"None":      {reason: "a tenant without the sync runs nothing, and stops"},
		"BeforeAll": {reason: "one that came before the start is started too", early: []runnable{wait}},
		"Several":   {reason: "those that come together are all started", late: []runnable{wait, wait, wait}},
		"OneOfFails": {reason: "the failure of one ends the others and the process, as in the manager itself", early: []runnable{wait},
			late: []runnable{func(context.Context) error { return failure }}, want: failure},
	} {
		t.Run(name, func(t *testing.T) {
			l := newDynamicRunnables()
			var ended atomic.Int64
			began := make(chan struct{})
			add := func(r runnable) {
				l <- runnable(func(ctx context.Context) error {
					began <- struct{}{}
					defer ended.Add(1)
					return r(ctx)
				})
			}
			for _, r := range test.early {
				add(r)
			}
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan error, 1)
			go func() { stopped <- l.Start(ctx) }()
			for _, r := range test.late {
				add(r)
			}
			for range len(test.early) + len(test.late) {
				<-began
			}
			if test.want == nil {
				cancel()
			}
			if err := <-stopped; !errors.Is(err, test.want) {
				t.Errorf("%s: ended with %v, want %v", test.reason, err, test.want)
			}
			cancel()
			if got := int(ended.Load()); got != len(test.early)+len(test.late) {
				t.Errorf("%s: %d ended", test.reason, got)
			}
		})
	}
}
