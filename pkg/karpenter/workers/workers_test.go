// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestLimited has controller-runtime's own controllers say how many workers they start.
func TestLimited(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		workers int
		want    float64
	}{
		"more":  {reason: "it has as many as it may", workers: 1000, want: 10},
		"fewer": {reason: "a limit must not add workers to a controller that must have one", workers: 1, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			added, err := controller.NewUnmanaged(t.Name(), controller.Options{
				MaxConcurrentReconciles: tc.workers,
				Reconciler:              reconcile.Func(nil),
			})
			if err != nil {
				t.Fatal(err)
			}
			m := &recorder{}
			if err := Limited(core{added}, 10).Register(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			if err := m.added.Start(ended); err != nil {
				t.Fatal(err)
			}
			if got := startedWorkers(t, t.Name()); got != tc.want {
				t.Errorf("it starts %v workers, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// startedWorkers is the metric about a controller.
func startedWorkers(t *testing.T, name string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "controller_runtime_max_concurrent_reconciles" && metric.GetLabel()[0].GetValue() == name {
				return metric.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric about controller %s", name)
	return 0
}

// TestUnknownController: a version of controller-runtime with other controllers is an error, and no panic.
func TestUnknownController(t *testing.T) {
	for name, added := range map[string]manager.Runnable{
		"Function": manager.RunnableFunc(func(context.Context) error { return nil }),
		"Struct":   struct{ manager.Runnable }{},
		"Text":     &text{MaxConcurrentReconciles: "1000"},
		"Nothing":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			err := Limited(core{added}, 10).Register(t.Context(), &recorder{})
			if err == nil || !strings.Contains(err.Error(), "this is not the version of controller-runtime") {
				t.Errorf("want an error that says what is wrong, got %v", err)
			}
		})
	}
}

// core is a controller that adds something to its manager.
type core struct{ adds manager.Runnable }

func (c core) Register(_ context.Context, m manager.Manager) error { return m.Add(c.adds) }

// recorder is a manager that keeps what is added.
type recorder struct {
	manager.Manager
	added manager.Runnable
}

func (r *recorder) Add(runnable manager.Runnable) error {
	r.added = runnable
	return nil
}

type text struct {
	manager.Runnable
	MaxConcurrentReconciles string
}
