// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/breaker"
)

// countPeriod is the shortest time between two counts of Machines under way, and between two checks of an overdue one.
const countPeriod = time.Minute

// giveUps bounds how many Machines are given up because their deadline has passed. If many deadlines pass together, the
// servers are hardly to blame: a registry, a network or Metal3 is. Unlike the collection of Machines, it needs no
// confirmation, because a Machine that is given up holds no data. So time ends it: the next ones go when the window is
// over.
//
// There is one bound for each namespace, and one for all namespaces except the one with the most give-ups: the Machines
// of one tenant must not keep the bad servers of others.
type giveUps struct {
	lock    sync.Mutex
	recent  map[string]breaker.Recent // by namespace
	counted time.Time
	// underWay counts, by namespace, the Machines that were under way or recent at the last count. "" is the sum.
	underWay map[string]int
}

// mayGiveUp returns why an overdue Machine is not given up yet, or "" if it may be.
func (r *Reconciler) mayGiveUp(ctx context.Context, machine *v1alpha1.Machine) (string, error) {
	g := &r.giveUps
	g.lock.Lock()
	defer g.lock.Unlock()
	now := r.clock.Now()
	gone, most := map[string]int{}, 0
	for namespace, recent := range g.recent {
		if gone[namespace] = recent.Count(now); gone[namespace] == 0 {
			delete(g.recent, namespace)
		}
		gone[""] += gone[namespace]
		most = max(most, gone[namespace])
	}
	gone[""] -= most
	if _, before := g.recent[machine.Namespace][machine.UID]; before {
		return "", nil // a write has failed
	}
	if g.counted.IsZero() || now.Sub(g.counted).Abs() >= countPeriod {
		if err := g.count(ctx, r.client, now); err != nil {
			return "", err
		}
	}
	for _, namespace := range []string{machine.Namespace, ""} {
		if limit := breaker.Limit(g.underWay[namespace]); gone[namespace] >= limit {
			return fmt.Sprintf("its deadline has passed, and %d of %d Machines that were under way were given up within %v: more than %d at once "+
				"look like a fault that they share (image, network, Metal3), so it is given up later", gone[namespace], g.underWay[namespace],
				breaker.Window, limit), nil
		}
	}
	if g.recent == nil {
		g.recent = map[string]breaker.Recent{}
	}
	if g.recent[machine.Namespace] == nil {
		g.recent[machine.Namespace] = breaker.Recent{}
	}
	g.recent[machine.Namespace][machine.UID] = now
	return "", nil
}

func (g *giveUps) count(ctx context.Context, machines client.Reader, now time.Time) error {
	list := &v1alpha1.MachineList{}
	if err := machines.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("counting the Machines under way, %w", err)
	}
	g.counted, g.underWay = now, map[string]int{}
	for namespace, recent := range g.recent {
		g.underWay[namespace] += len(recent)
		g.underWay[""] += len(recent)
	}
	for i := range list.Items {
		machine := &list.Items[i]
		if _, counted := g.recent[machine.Namespace][machine.UID]; !counted && machine.IsOnItsWay() {
			g.underWay[machine.Namespace]++
			g.underWay[""]++
		}
	}
	return nil
}
