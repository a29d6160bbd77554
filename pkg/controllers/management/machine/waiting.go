// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
)

// refusedFor is how long a Machine of a namespace with too many is not looked at. It is in no queue: there may be thousands, and each
// server that the namespace gets would move them all.
const refusedFor = time.Minute

// waiting counts the Machines of each namespace that have a server and that wait for one. Without it each decision on one of ten
// thousand Machines would count the others.
type waiting struct {
	lock    sync.Mutex
	servers map[types.NamespacedName]bool
	counts  map[string]*counts
}

// counts of the Machines of a namespace.
type counts struct{ have, wait int64 }

func newWaiting() *waiting {
	return &waiting{servers: map[types.NamespacedName]bool{}, counts: map[string]*counts{}}
}

// enter adds a Machine without a server to those that wait, and reports false if there is no room for it. Allowance is how many servers
// the namespace may have; it is asked only if that matters.
func (w *waiting) enter(machine types.NamespacedName, allowance func() (int64, error)) (bool, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if hasServer, known := w.servers[machine]; known && !hasServer {
		return true, nil
	}
	count := counts{}
	if known := w.counts[machine.Namespace]; known != nil {
		count = *known
	}
	if !quota.MayWait(0, 0, count.wait) {
		allowed, err := allowance()
		if err != nil || !quota.MayWait(allowed, count.have, count.wait) {
			return false, err
		}
	}
	w.set(machine, false)
	return true, nil
}

// claimed notes that a Machine has a server.
func (w *waiting) claimed(machine types.NamespacedName) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if hasServer, known := w.servers[machine]; !known || !hasServer {
		w.set(machine, true)
	}
}

// vanished notes that a Machine does not exist any more.
func (w *waiting) vanished(machine types.NamespacedName) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.remove(machine)
	if count := w.counts[machine.Namespace]; count != nil && *count == (counts{}) {
		delete(w.counts, machine.Namespace)
	}
}

func (w *waiting) set(machine types.NamespacedName, hasServer bool) {
	w.remove(machine)
	if w.counts[machine.Namespace] == nil {
		w.counts[machine.Namespace] = &counts{}
	}
	w.servers[machine] = hasServer
	*w.counts[machine.Namespace].of(hasServer)++
}

func (w *waiting) remove(machine types.NamespacedName) {
	if hasServer, known := w.servers[machine]; known {
		delete(w.servers, machine)
		*w.counts[machine.Namespace].of(hasServer)--
	}
}

func (c *counts) of(hasServer bool) *int64 {
	if hasServer {
		return &c.have
	}
	return &c.wait
}

// checkRoom returns why a Machine without a server may not wait for one, nil if it may.
func (r *Reconciler) checkRoom(ctx context.Context, machine *v1alpha1.Machine) (*unschedulable, error) {
	may, err := r.waiting.enter(client.ObjectKeyFromObject(machine), func() (int64, error) {
		tenants, nodeTypes := &v1alpha1.TenantClusterList{}, &v1alpha1.NodeTypeList{}
		if err := r.client.List(ctx, tenants, client.InNamespace(machine.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return 0, fmt.Errorf("listing the TenantClusters of namespace %s, %w", machine.Namespace, err)
		}
		if err := r.client.List(ctx, nodeTypes, client.UnsafeDisableDeepCopy); err != nil {
			return 0, fmt.Errorf("listing NodeTypes, %w", err)
		}
		return quota.Allowance(tenants.Items, lo.ToSlicePtr(nodeTypes.Items), r.inventory.Total), nil
	})
	if may || err != nil {
		return nil, err
	}
	return &unschedulable{reason: v1alpha1.ReasonTooManyPending, message: quota.TooManyPending(machine.Namespace)}, nil
}
