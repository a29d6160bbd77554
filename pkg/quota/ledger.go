// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quota knows how many servers and accelerators tenants have, and whether one more is within their quota.
package quota

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Ledger answers one Machine at a time, so that workers that choose servers side by side do not exceed a quota
// together. What it has granted counts at once, although the cache does not show it yet. It is safe for concurrent use.
type Ledger struct {
	reader client.Reader

	mu sync.Mutex
	// granted are the Machines that may take a server of a type and of which the cache does not show that they did.
	granted map[types.UID]grant
}

type grant struct {
	tenant   types.NamespacedName
	nodeType string
}

// NewLedger returns a Ledger. reader reads Machines and NodeTypes from a cache.
func NewLedger(reader client.Reader) *Ledger {
	return &Ledger{reader: reader, granted: map[types.UID]grant{}}
}

// ExceededError says that a tenant has all that it may have.
type ExceededError struct {
	// Message says what the tenant has, what it may have and what to do, in one sentence.
	Message string
}

// Error implements error.
func (e *ExceededError) Error() string { return e.Message }

// Take lets a Machine of the tenant have a server of a type. The error is an *ExceededError if that would be more than
// the tenant's quota. Taking again replaces what the Machine took before.
func (l *Ledger) Take(ctx context.Context, tenant *v1alpha1.TenantCluster, machine *v1alpha1.Machine, nodeType string) error {
	if tenant == nil || tenant.Spec.Quota == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.within(ctx, tenant, machine.UID, nodeType); err != nil {
		return err
	}
	l.granted[machine.UID] = grant{tenant: client.ObjectKeyFromObject(tenant), nodeType: nodeType}
	return nil
}

// Check tells whether the tenant could have another server of a type now, and grants nothing. The name of the type may be
// empty if it is not known yet. The error is that of Take.
func (l *Ledger) Check(ctx context.Context, tenant *v1alpha1.TenantCluster, machine *v1alpha1.Machine, nodeType string) error {
	if tenant == nil || tenant.Spec.Quota == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.within(ctx, tenant, machine.UID, nodeType)
}

// within compares what the tenant's other Machines have, and one server more, with its quota.
func (l *Ledger) within(ctx context.Context, tenant *v1alpha1.TenantCluster, machine types.UID, nodeType string) error {
	quota, key := tenant.Spec.Quota, client.ObjectKeyFromObject(tenant)
	held, err := l.held(ctx, key, machine)
	if err != nil {
		return err
	}
	if quota.Servers != nil && int64(len(held)) >= *quota.Servers {
		return &ExceededError{Message: fmt.Sprintf("TenantCluster %s has %d servers and its spec.quota.servers is %d: raise the quota, or give a server back",
			key, len(held), *quota.Servers)}
	}
	if quota.GPUs == nil {
		return nil
	}
	return l.fitsGPUs(ctx, key, *quota.GPUs, held, nodeType)
}

// Forget takes a grant back that came to nothing.
func (l *Ledger) Forget(machine types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.granted, machine)
}

// fitsGPUs compares the accelerators of what the tenant has and of one more server with its quota.
func (l *Ledger) fitsGPUs(ctx context.Context, tenant types.NamespacedName, allowed int64, held []string, nodeType string) error {
	more, err := l.accelerators(ctx, nodeType)
	if err != nil || more == 0 {
		return err
	}
	has := int64(0)
	for _, one := range held {
		count, err := l.accelerators(ctx, one)
		if err != nil {
			return err
		}
		has += count
	}
	if has+more > allowed {
		return &ExceededError{Message: fmt.Sprintf("TenantCluster %s has %d GPUs, a server of NodeType %s has %d more, and its spec.quota.gpus is %d: raise the quota, or give a server back",
			tenant, has, nodeType, more, allowed)}
	}
	return nil
}

// held are the types of the servers of the tenant's other Machines, one for each. Grants that the cache shows by now,
// and those of Machines that are gone, are forgotten.
func (l *Ledger) held(ctx context.Context, tenant types.NamespacedName, machine types.UID) ([]string, error) {
	machines := &v1alpha1.MachineList{}
	if err := l.reader.List(ctx, machines, client.InNamespace(tenant.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("counting the servers of TenantCluster %s, %w", tenant, err)
	}
	var held []string
	here := map[types.UID]bool{}
	for i := range machines.Items {
		one := &machines.Items[i]
		reference := one.Spec.TenantClusterRef
		if reference == nil || reference.Name != tenant.Name {
			continue
		}
		here[one.UID] = true
		if one.Status.HostRef == nil {
			continue
		}
		delete(l.granted, one.UID)
		if one.UID == machine {
			continue
		}
		nodeType := ""
		if one.Status.NodeTypeRef != nil {
			nodeType = one.Status.NodeTypeRef.Name
		}
		held = append(held, nodeType)
	}
	for uid, one := range l.granted {
		switch {
		case one.tenant != tenant || uid == machine:
		case !here[uid]:
			delete(l.granted, uid)
		default:
			held = append(held, one.nodeType)
		}
	}
	return held, nil
}

// accelerators counts those of one server of a type. A type that does not exist any more is counted as having none: what
// its servers have is not known, and a tenant must not be kept from all others by it.
func (l *Ledger) accelerators(ctx context.Context, name string) (int64, error) {
	if name == "" {
		return 0, nil
	}
	nodeType := &v1alpha1.NodeType{}
	if err := l.reader.Get(ctx, types.NamespacedName{Name: name}, nodeType); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return 0, nil
		}
		return 0, fmt.Errorf("counting the accelerators of NodeType %s, %w", name, err)
	}
	return nodeType.Spec.CountAccelerators(), nil
}
