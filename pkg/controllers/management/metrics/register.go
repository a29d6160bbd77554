// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics has the manager's metrics of hosts and Machines. Each scrape computes the gauges from the inventory
// and the cache, so a series ends with the objects that it counts. Counters and durations come from a watch on
// Machines.
//
// Labels are types, states, phases, reasons and namespaces; never a host or a Machine. docs/metrics.md has all.
package metrics

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// Fleet is the metrics of one manager's hosts and Machines.
type Fleet struct {
	inventory Inventory
	clock     clock.PassiveClock
	registry  prometheus.Registerer
}

// NewFleet returns the metrics of the hosts in the inventory, and of all Machines.
func NewFleet(inventory Inventory, clock clock.PassiveClock) *Fleet {
	return &Fleet{inventory: inventory, clock: clock, registry: ctrlmetrics.Registry}
}

// Register adds the metrics to the metrics that the manager serves.
func (f *Fleet) Register(_ context.Context, mgr manager.Manager) error {
	watcher := newWatcher(mgr.GetCache(), f.clock)
	if err := mgr.Add(watcher); err != nil {
		return fmt.Errorf("adding the watch for metrics, %w", err)
	}
	collectors := append(watcher.collectors(), hostCounts{inventory: f.inventory}, machineCounts{machines: mgr.GetClient(), clock: f.clock},
		tenantCounts{mgr.GetClient()})
	for _, collector := range collectors {
		if err := f.registry.Register(collector); err != nil {
			return fmt.Errorf("registering the metrics of the fleet, %w", err)
		}
	}
	return nil
}

// Inventory is the part of the inventory that the metrics read.
type Inventory interface {
	// Synced reports whether the inventory has all hosts and types.
	Synced() bool
	// States counts the hosts of each type by state and reason.
	States() []inventory.StateCount
}

var hostsDescription = describe("hosts",
	"BareMetalHosts that match a NodeType, by state: available, claimed, error, quarantined, unavailable. A host may match several types.",
	NodeTypeLabel, StateLabel, ReasonLabel)

// hostCounts counts the hosts at each scrape.
type hostCounts struct{ inventory Inventory }

// Describe implements prometheus.Collector.
func (h hostCounts) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- hostsDescription }

// Collect implements prometheus.Collector. It sends nothing while the inventory fills: servers would seem to be gone.
func (h hostCounts) Collect(metrics chan<- prometheus.Metric) {
	if !h.inventory.Synced() {
		return
	}
	for _, count := range h.inventory.States() {
		metrics <- prometheus.MustNewConstMetric(hostsDescription, prometheus.GaugeValue, float64(count.Hosts),
			count.NodeType, string(count.State), string(count.Reason))
	}
}

// Namespace is the prefix of the names of all metrics of this project.
const Namespace = "karpenter_metal3"

// Labels.
const (
	// NamespaceLabel is the namespace of Machines: their tenant.
	NamespaceLabel = "namespace"
	// NodeTypeLabel is the name of a NodeType; empty for a Machine that has no type yet.
	NodeTypeLabel = "nodetype"
	// StateLabel is the state of a host in the pool.
	StateLabel = "state"
	// ReasonLabel is a reason of a condition, or why a host cannot be claimed.
	ReasonLabel = "reason"
	// PhaseLabel is the phase of a Machine.
	PhaseLabel = "phase"
	// StepLabel is a step on the way from a claim to a node, or back.
	StepLabel = "step"
)

// Steps, in the order of the way.
const (
	// StepInstall: from the claim to the image that Metal3 has installed and booted.
	StepInstall = "install"
	// StepUserData: from the wait for user data until Metal3 has image and user data. It is a part of StepInstall.
	StepUserData = "userdata"
	// StepJoin: from the booted image to the registered Node.
	StepJoin = "join"
	// StepRelease: from the deletion of the Machine to the clean server in the pool.
	StepRelease = "release"
)

// durations are the buckets for steps that take servers seconds at best and hours at worst.
var durations = []float64{1, 5, 15, 30, 60, 120, 300, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 14400}

// NewClaimDuration returns the histogram of the wait for a claim. The Machine controller observes it.
func NewClaimDuration() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: Namespace,
		Name:      "machine_claim_duration_seconds",
		Help:      "Seconds from the creation of a Machine to the claim on its server, including the wait for a free one.",
		// From 10 ms, which is a few writes, to a day and a half of waiting for a server.
		Buckets: prometheus.ExponentialBuckets(0.01, 4, 13),
	})
}

// NewClaimSLIDuration returns the histogram of the manager's part of the wait for a claim.
func NewClaimSLIDuration() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: Namespace,
		Name:      "machine_claim_sli_duration_seconds",
		Help: "Seconds from when a Machine could have a server, because it was created or because one, its quota or an address became free, " +
			"to the claim on it.",
		Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
	})
}

// NewUsageWritten returns the counter of the bytes that the records of use have cost.
func NewUsageWritten() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: Namespace,
		Name:      "host_usage_written_bytes_total",
		Help:      "Bytes of HostUsages that were written, each time the whole record.",
	})
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(Namespace+"_"+name, help, labels, nil)
}

// watcher counts and times the changes of Machines with a watch. It works on the leader only, or every replica would
// count the same changes. Changes without a leader are not counted; the gauges are correct all the same.
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
			"Seconds that a Machine took for a step: install (claim to booted image), of that userdata (until Metal3 has image and user data), "+
				"join (booted image to node), release (deletion to the server's return to the pool).",
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
		&v1alpha1.Machine{}:  w.handler(),
		&v1alpha1.NodeType{}: kube.Handler(nil, w.forget),
	} {
		_, stop, err := kube.Watch(ctx, w.informers, kind, handler)
		if err != nil {
			return err
		}
		defer stop()
	}
	<-ctx.Done()
	return nil
}

// handler returns the handler of Machines. A Machine that is new to it may be old, and already counted.
func (w *watcher) handler() toolscache.ResourceEventHandlerFuncs {
	handler := kube.OnUpdate(w.changed)
	handler.DeleteFunc = w.released
	return handler
}

func (w *watcher) changed(before, after *v1alpha1.Machine) {
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

// released observes the release of a Machine that had a server. No object has the time when the Machine was gone, so
// the watcher uses its own clock. It ignores tombstones, because they come too late.
func (w *watcher) released(object any) {
	machine, ok := object.(*v1alpha1.Machine)
	if !ok || machine.DeletionTimestamp.IsZero() || machine.Status.ProviderID == "" {
		return
	}
	w.steps.WithLabelValues(nodeTypeOf(machine), StepRelease).Observe(max(0, w.clock.Since(machine.DeletionTimestamp.Time).Seconds()))
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
