// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Fleet is the metrics of hosts and Machines of one manager.
type Fleet struct {
	inventory Inventory
	clock     clock.PassiveClock
	registry  prometheus.Registerer
}

// NewFleet returns the metrics of the hosts in the inventory, and of all Machines.
func NewFleet(inventory Inventory, clock clock.PassiveClock) *Fleet {
	return &Fleet{inventory: inventory, clock: clock, registry: ctrlmetrics.Registry}
}

// Register adds the metrics to those that the manager serves.
func (f *Fleet) Register(_ context.Context, mgr manager.Manager) error {
	watcher := newWatcher(mgr.GetCache(), f.clock)
	if err := mgr.Add(watcher); err != nil {
		return fmt.Errorf("adding the watch for metrics, %w", err)
	}
	collectors := append(watcher.collectors(), hostCounts{inventory: f.inventory}, machineCounts{machines: mgr.GetClient(), clock: f.clock})
	for _, collector := range collectors {
		if err := f.registry.Register(collector); err != nil {
			return fmt.Errorf("registering the metrics of the fleet, %w", err)
		}
	}
	return nil
}
