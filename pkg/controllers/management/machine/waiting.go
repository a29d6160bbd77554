// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
)

// refusedFor is the delay before another look at a Machine of a namespace with too many. The Machine is in no queue:
// there may be thousands, and each server that the namespace gets would move them all.
const refusedFor = time.Minute

// waiting holds, by namespace, the Machines that have a server and the Machines that wait for one. Otherwise each
// decision on one of ten thousand Machines would count the others.
type waiting struct {
	lock       sync.Mutex
	namespaces map[string]*population
}

// population is the names of a namespace's Machines, with a server (have) and without (wait).
type population struct{ have, wait sets.Set[string] }

func newWaiting() *waiting {
	return &waiting{namespaces: map[string]*population{}}
}

// population returns the population of a namespace. The caller must hold the lock.
func (w *waiting) population(namespace string) *population {
	if w.namespaces[namespace] == nil {
		w.namespaces[namespace] = &population{have: sets.New[string](), wait: sets.New[string]()}
	}
	return w.namespaces[namespace]
}

// enter adds a Machine without a server to the waiting ones, and returns false if there is no room for it. allowance
// returns how many servers the namespace may have. enter calls it only if the answer matters.
func (w *waiting) enter(machine types.NamespacedName, allowance func() (int64, error)) (bool, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	all := w.population(machine.Namespace)
	if wait := int64(all.wait.Len()); !all.wait.Has(machine.Name) && !quota.MayWait(0, 0, wait) {
		allowed, err := allowance()
		if err != nil || !quota.MayWait(allowed, int64(all.have.Len()), wait) {
			return false, err
		}
	}
	all.have.Delete(machine.Name)
	all.wait.Insert(machine.Name)
	return true, nil
}

// claimed notes that a Machine has a server.
func (w *waiting) claimed(machine types.NamespacedName) {
	w.lock.Lock()
	defer w.lock.Unlock()
	all := w.population(machine.Namespace)
	all.wait.Delete(machine.Name)
	all.have.Insert(machine.Name)
}

// vanished notes that a Machine does not exist any more.
func (w *waiting) vanished(machine types.NamespacedName) {
	w.lock.Lock()
	defer w.lock.Unlock()
	all := w.population(machine.Namespace)
	all.wait.Delete(machine.Name)
	all.have.Delete(machine.Name)
	if all.wait.Len()+all.have.Len() == 0 {
		delete(w.namespaces, machine.Namespace)
	}
}

// allowance returns a function that counts how many servers a namespace may have.
func (r *Reconciler) allowance(ctx context.Context, namespace string) func() (int64, error) {
	return func() (int64, error) {
		tenants, err := r.objects.tenants(ctx, namespace)
		if err != nil {
			return 0, err
		}
		nodeTypes, _, err := r.objects.Types(ctx)
		return quota.Allowance(tenants, nodeTypes, r.inventory.Total), err
	}
}

// checkRoom returns why a Machine without a server may not wait for one, or nil if it may.
func (r *Reconciler) checkRoom(ctx context.Context, machine *v1alpha1.Machine) (*unschedulable, error) {
	may, err := r.waiting.enter(client.ObjectKeyFromObject(machine), r.allowance(ctx, machine.Namespace))
	if may || err != nil {
		return nil, err
	}
	return &unschedulable{reason: v1alpha1.ReasonTooManyPending, message: quota.TooManyPending(machine.Namespace)}, nil
}
