// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// severalStuck Machines that wait for Metal3 show that their servers are hardly to blame: as many are given up at once.
const severalStuck = 3

// standstill returns why no comparable server makes progress now, or "" if there is no common reason. The tenant's
// provider, which makes the join and reports the node, or Metal3, which installs the server, does not work. Neither
// says anything about the Machine.
func (r *Reconciler) standstill(ctx context.Context, machine *v1alpha1.Machine, f *facts, deadline time.Duration) (string, error) {
	stage, underWay := stageOf(machine, f)
	switch {
	case !underWay:
	case machine.Spec.TenantClusterRef != nil && (stage == stageUserData || stage == stageBooting):
		cluster, err := r.objects.ChargedTo(ctx, machine)
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
		namespace, now := f.host.Namespace, r.clock.Now()
		quiet := r.stillness.lasted(namespace, r.inventory.StateChanges(namespace), now)
		if enough := deadline / 2; quiet < enough || now.Sub(machine.Status.Progress.LastProgressTime.Time) < enough {
			return "", nil
		}
		stuck, err := r.stuck(ctx, namespace, now.Add(-deadline/2))
		if err != nil || stuck < severalStuck {
			return "", err
		}
		return fmt.Sprintf("%d servers in namespace %s wait for Metal3, and no BareMetalHost there has changed its state for %s: see that "+
			"baremetal-operator and Ironic work", stuck, namespace, inMinutes(quiet)), nil
	}
	return "", nil
}

// stuck counts the Machines that Metal3 installs on hosts of a namespace and that have made no progress since then.
func (r *Reconciler) stuck(ctx context.Context, namespace string, since time.Time) (count int, err error) {
	list := &v1alpha1.MachineList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("counting the Machines that wait for Metal3, %w", err)
	}
	for i := range list.Items {
		status := &list.Items[i].Status
		if status.Phase == v1alpha1.MachineProvisioning && status.HostRef != nil && status.HostRef.Namespace == namespace &&
			status.Progress != nil && r.heartbeat.isOld(status.Progress.LastProgressTime.Time, since) {
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
		if q.seen == nil {
			q.seen = map[string]seenChanges{}
		}
		seen = seenChanges{changes, now}
		q.seen[namespace] = seen
	}
	return now.Sub(seen.since)
}
