// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
)

// watcher keeps what is counted and timed up to date by a watch. It works on the leader only, or every replica would count
// the same. What happens while no leader is there is not counted; the gauges are right all the same.
type watcher struct {
	informers cache.Informers
	clock     clock.PassiveClock

	claims, givenUp, drifts *prometheus.CounterVec
	steps, provisioning     *prometheus.HistogramVec
}

func newWatcher(informers cache.Informers, clock clock.PassiveClock) *watcher {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: Namespace, Name: name, Help: help, Buckets: durations}, labels)
	}
	return &watcher{
		informers: informers, clock: clock,
		claims: counter("machine_claims_total", "Claims on servers, by type.", NodeTypeLabel),
		givenUp: counter("machines_given_up_total", "Machines that were given up, by the reason of their condition GivenUp.", NodeTypeLabel,
			ReasonLabel),
		drifts: counter("machine_drifts_total", "Machines that have drifted, by the reason of their condition Drifted.", NodeTypeLabel,
			ReasonLabel),
		steps: histogram("machine_step_duration_seconds",
			"Seconds that a Machine took for a step: install (claim to booted image), join (booted image to node), release (deletion to the "+
				"server's return to the pool).",
			NodeTypeLabel, StepLabel),
		provisioning: histogram("machine_provisioning_duration_seconds", "Seconds from the claim on a server to its node.", NodeTypeLabel),
	}
}

func (w *watcher) collectors() []prometheus.Collector {
	return []prometheus.Collector{w.claims, w.givenUp, w.drifts, w.steps, w.provisioning}
}

// Start implements manager.Runnable.
func (w *watcher) Start(ctx context.Context) error {
	for kind, handler := range map[client.Object]toolscache.ResourceEventHandler{
		&v1alpha1.Machine{}: toolscache.ResourceEventHandlerFuncs{
			// A Machine that is seen for the first time may be old; what has happened to it has been counted.
			UpdateFunc: func(before, after any) { w.changed(before, after) },
			DeleteFunc: func(object any) { w.released(object) },
		},
		&v1alpha1.NodeType{}: controllers.Handler(nil, w.forget),
	} {
		_, stop, err := controllers.Watch(ctx, w.informers, kind, handler)
		if err != nil {
			return err
		}
		defer stop()
	}
	<-ctx.Done()
	return nil
}

func (w *watcher) changed(from, to any) {
	before, ok := from.(*v1alpha1.Machine)
	after, also := to.(*v1alpha1.Machine)
	if !ok || !also || before.UID != after.UID {
		return
	}
	seen := observe(before, after)
	if seen.claimed {
		w.claims.WithLabelValues(seen.nodeType).Inc()
	}
	if seen.givenUp != "" {
		w.givenUp.WithLabelValues(seen.nodeType, seen.givenUp).Inc()
	}
	if seen.drifted != "" {
		w.drifts.WithLabelValues(seen.nodeType, seen.drifted).Inc()
	}
	for step, took := range seen.steps {
		w.steps.WithLabelValues(seen.nodeType, step).Observe(took.Seconds())
	}
	if seen.joined {
		w.provisioning.WithLabelValues(seen.nodeType).Observe(seen.provisioned.Seconds())
	}
}

// released times the way back of a Machine that had a server. When it went is not written anywhere, so the clock says it. A
// tombstone tells too late, and is left out.
func (w *watcher) released(object any) {
	machine, ok := object.(*v1alpha1.Machine)
	if !ok || machine.DeletionTimestamp.IsZero() || machine.Status.ProviderID == "" {
		return
	}
	w.steps.WithLabelValues(nodeTypeOf(machine), StepRelease).Observe(w.clock.Since(machine.DeletionTimestamp.Time).Seconds())
}

// forget ends the series of a type that is gone.
func (w *watcher) forget(nodeType *v1alpha1.NodeType) {
	labels := prometheus.Labels{NodeTypeLabel: nodeType.Name}
	for _, vector := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{w.claims, w.givenUp, w.drifts, w.steps, w.provisioning} {
		vector.DeletePartialMatch(labels)
	}
}
