// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/breaker"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// severalStuck Machines that wait for Metal3 show that their servers are hardly to blame: as many are given up at once.
const severalStuck = 3

// deadlines knows how long Machines may take, and whether time that has passed says anything about them.
type deadlines struct {
	objects   objects
	live      client.Reader
	inventory *inventory.Inventory
	clock     clock.PassiveClock
	// deadline is the provisioning deadline of the types that set none.
	deadline  time.Duration
	heartbeat heartbeat
	giveUps   giveUps
	stillness stillness
}

// standstill returns why no comparable server makes progress now, or "" if there is no common reason. The tenant's
// provider, which makes the join and reports the node, or Metal3, which installs the server, does not work. Neither
// says anything about the Machine.
func (d *deadlines) standstill(ctx context.Context, machine *v1alpha1.Machine, f *observation, deadline time.Duration) (string, error) {
	stage, underWay := stageOf(machine, f)
	switch {
	case !underWay:
	case machine.Spec.TenantClusterRef != nil && (stage == stageUserData || stage == stageBooting):
		cluster, err := d.objects.ChargedTo(ctx, machine)
		if err != nil || cluster == nil {
			return "", err
		}
		for _, blocked := range cluster.Status.Conditions {
			if (blocked.Type == v1alpha1.ConditionReady && blocked.Reason == v1alpha1.ReasonProviderSilent) ||
				((blocked.Type == v1alpha1.ConditionClusterIdentified || blocked.Type == v1alpha1.ConditionKubeconfigAccepted) &&
					blocked.Status == metav1.ConditionFalse) {
				return fmt.Sprintf("the provider of tenant %s does not work (%s)", cluster.Name, blocked.Reason), nil
			}
		}
	case f.phase == v1alpha1.MachineProvisioning && f.host != nil && machine.Status.Progress != nil:
		namespace, now := f.host.Namespace, d.clock.Now()
		quiet := d.stillness.lasted(namespace, d.inventory.StateChanges(namespace), now)
		if enough := deadline / 2; quiet < enough || now.Sub(machine.Status.Progress.LastProgressTime.Time) < enough {
			return "", nil
		}
		stuck, err := d.stuck(ctx, namespace, now.Add(-deadline/2))
		if err != nil || stuck < severalStuck {
			return "", err
		}
		return fmt.Sprintf("%d servers in namespace %s wait for Metal3, and no BareMetalHost there has changed its state for %s: see that "+
			"baremetal-operator and Ironic work", stuck, namespace, inMinutes(quiet)), nil
	}
	return "", nil
}

// stuck counts the Machines that Metal3 installs on hosts of a namespace and that have made no progress since then.
func (d *deadlines) stuck(ctx context.Context, namespace string, since time.Time) (count int, err error) {
	list := &v1alpha1.MachineList{}
	if err := d.objects.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("counting the Machines that wait for Metal3, %w", err)
	}
	for i := range list.Items {
		status := &list.Items[i].Status
		if status.Phase == v1alpha1.MachineProvisioning && status.HostRef != nil && status.HostRef.Namespace == namespace &&
			status.Progress != nil && d.heartbeat.isOld(status.Progress.LastProgressTime.Time, since) {
			count++
		}
	}
	return count, nil
}

// stillness knows for how long no host of a namespace has changed its state. It uses no time of Metal3's.
type stillness struct {
	lock sync.Mutex
	// seen is, by namespace, the number of changes, and when it was first seen.
	seen map[string]seenChanges
}

type seenChanges struct {
	changes int64
	since   time.Time
}

func (q *stillness) lasted(namespace string, changes int64, now time.Time) time.Duration {
	q.lock.Lock()
	defer q.lock.Unlock()
	seen, known := q.seen[namespace]
	if !known || seen.changes != changes || now.Before(seen.since) {
		seen = seenChanges{changes, now}
		q.seen[namespace] = seen
	}
	return now.Sub(seen.since)
}

// maxPause is the longest time between two beats of a running manager. After a longer time the manager or its machine
// was stopped, or the clock was set.
const maxPause = time.Minute

// heartbeat knows since when the manager has run without a pause. A pause says nothing about a Machine: Metal3 may have
// been stopped, too, and a clock that is set shows hours that have not passed. The zero value is ready to use.
type heartbeat struct {
	lock sync.Mutex
	// since is the first beat, because the process may have waited for long to become the leader, or the first beat after
	// the last pause.
	last, since time.Time
	// ahead is the time that the clock showed before it was set back: notes up to that time are older than they seem.
	ahead time.Time
}

// beat notes that the manager runs. Call it more often than maxPause. It returns the time since the last beat if that
// is too long, or else 0. The clock may have been set, so the time may be negative.
func (h *heartbeat) beat(now time.Time) (pause time.Duration) {
	now = now.Round(0) // the monotonic clock does not show that the wall clock was set
	h.lock.Lock()
	defer h.lock.Unlock()
	last := h.last
	if h.last = now; last.IsZero() {
		h.since = now
		return 0
	}
	if pause = now.Sub(last); pause.Abs() <= maxPause {
		return 0
	}
	h.since = now
	if pause < 0 && last.After(h.ahead) {
		h.ahead = last
	}
	return pause
}

// isOld reports whether a note is from before a given time, or from before the clock was set back. The clock may have
// been set back before this process started: then a note from the future shows it.
func (h *heartbeat) isOld(noted, before time.Time) bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	if noted.After(h.last) && noted.After(h.ahead) {
		h.ahead = noted
	}
	return noted.Before(before) || !noted.After(h.ahead)
}

// due returns when a Machine is given up that has made no progress since last. After a start and after a pause the whole
// deadline begins again. Nobody knows how much has passed: Metal3 may have been stopped as well, and the clock of another
// machine may have noted the last progress.
func (h *heartbeat) due(last time.Time, deadline time.Duration) time.Time {
	h.lock.Lock()
	defer h.lock.Unlock()
	if last.Before(h.since) {
		last = h.since
	}
	return last.Add(deadline)
}

// beat notes that the manager runs.
func (d *deadlines) beat(ctx context.Context) {
	if pause := d.heartbeat.beat(d.clock.Now()); pause != 0 {
		log.FromContext(ctx).Info("the manager was stopped, or its clock was set: the provisioning deadlines of all Machines begin again",
			"pause", pause.String())
	}
}

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
func (d *deadlines) mayGiveUp(ctx context.Context, machine *v1alpha1.Machine) (string, error) {
	g := &d.giveUps
	g.lock.Lock()
	defer g.lock.Unlock()
	now := d.clock.Now()
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
		if err := g.count(ctx, d.objects.cache, now); err != nil {
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

// DefaultProvisioningDeadline is how long a Machine may go without progress if its NodeType sets no deadline.
const DefaultProvisioningDeadline = time.Hour

// provisioningPolicy is the provisioning policy of a NodeType.
type provisioningPolicy struct {
	deadline time.Duration
	onError  v1alpha1.OnErrorPolicy
	// estimate is nil until a Machine of the type has joined.
	estimate *v1alpha1.ProvisioningEstimate
}

// policyOf reads the policy from the type of a Machine. Defaults apply if a live read finds no type.
func (d *deadlines) policyOf(ctx context.Context, machine *v1alpha1.Machine) (provisioningPolicy, error) {
	p := provisioningPolicy{deadline: d.deadline, onError: v1alpha1.OnErrorHold}
	if machine.Status.NodeTypeRef == nil {
		return p, nil
	}
	key, nodeType := types.NamespacedName{Name: machine.Status.NodeTypeRef.Name}, &v1alpha1.NodeType{}
	found, err := kube.Find(ctx, d.objects.cache, key, nodeType, client.UnsafeDisableDeepCopy)
	if err == nil && !found {
		found, err = kube.Find(ctx, d.live, key, nodeType)
	}
	if err != nil || !found {
		return p, err
	}
	if own := nodeType.Spec.ProvisioningDeadline; own != nil && own.Duration > 0 {
		p.deadline = own.Duration
	}
	p.onError = cmp.Or(nodeType.Spec.OnError, v1alpha1.OnErrorHold)
	p.estimate = nodeType.Status.Provisioning
	return p, nil
}
