// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
)

// createWithinLimits creates the Machine unless its NodePool has reached limits.nodes. Then the error is an
// InsufficientCapacityError. Core plans within the limit, but exceeds it with nodes that replace others, and when the limit
// is lowered while it plans.
func (c *CloudProvider) createWithinLimits(ctx context.Context, nodePool *karpenterv1.NodePool,
	wanted *v1alpha1.Machine) (*v1alpha1.Machine, error) {
	if nodePool == nil {
		return c.createMachine(ctx, wanted)
	}
	quantity, limited := nodePool.Spec.Limits[v1alpha1.ResourceNodes]
	if !limited {
		return c.createMachine(ctx, wanted)
	}
	pool, limit := nodePool.Name, quantity.Value()
	count, err := c.limits.assume(ctx, c.machinesOf(pool, wanted), pool, wanted.Name, limit)
	if err != nil {
		return nil, createError(reasonManagementUnavailable, fmt.Errorf("counting the machines of NodePool %s, %w", pool, err))
	}
	if count >= limit {
		c.refusals.recordNoServer(pool, c.clock.Now())
		return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf(
			"NodePool %s has %d nodes and may have %d: raise its limits.nodes, or wait until a node is released", pool, count, limit))
	}
	machine, err := c.createMachine(ctx, wanted)
	notAdmitted := (*notAdmittedError)(nil)
	c.limits.finish(pool, wanted.Name, errors.As(err, &notAdmitted))
	return machine, err
}

// machinesOf lists the names of the Machines of a tenant's NodePool that are not being deleted.
func (c *CloudProvider) machinesOf(pool string, wanted *v1alpha1.Machine) machineLister {
	return func(ctx context.Context, live bool) (map[string]bool, error) {
		reader, options := client.Reader(c.management.Client), []client.ListOption{
			client.InNamespace(wanted.Namespace), client.MatchingLabels{karpenterv1.NodePoolLabelKey: pool}, client.UnsafeDisableDeepCopy,
		}
		if live {
			reader = c.management.Live
		}
		machines := &v1alpha1.MachineList{}
		if err := reader.List(ctx, machines, options...); err != nil {
			return nil, fmt.Errorf("listing machines, %w", err)
		}
		names := map[string]bool{}
		for i := range machines.Items {
			reference := machines.Items[i].Spec.TenantClusterRef
			if reference != nil && *reference == *wanted.Spec.TenantClusterRef && machines.Items[i].DeletionTimestamp.IsZero() {
				names[machines.Items[i].Name] = true
			}
		}
		return names, nil
	}
}

// nodePoolOf returns the NodePool of a NodeClaim, or nil if there is none: core deletes the NodeClaims of one that is gone.
func (c *CloudProvider) nodePoolOf(ctx context.Context, nodeClaim *karpenterv1.NodeClaim) (*karpenterv1.NodePool, error) {
	name, found := nodeClaim.Labels[karpenterv1.NodePoolLabelKey]
	if !found {
		return nil, nil
	}
	nodePool := &karpenterv1.NodePool{}
	if found, err := controllers.Find(ctx, c.tenant, types.NamespacedName{Name: name}, nodePool); err != nil || !found {
		return nil, err
	}
	return nodePool, nil
}

// nodeLimits counts the Machines of the NodePools with a limit on nodes, so that concurrent calls do not exceed it together.
// It counts the Machines in the cache and those that this process has created and that are not in the cache yet: listing
// them live before each new one made a burst of a hundred take a minute. They are listed live once for every NodePool,
// because an earlier leader may have created some that are not in the cache yet, and before anything is refused, because the
// cache may still have some that are gone.
type nodeLimits struct {
	mu    sync.Mutex
	pools map[string]*assumedMachines
}

// assumedMachines are Machines of a NodePool that were not in the cache when it was last read.
type assumedMachines struct {
	// mu is held during live lists, so it is one for each pool: a slow list would hold up the other pools.
	mu sync.Mutex
	// listed is true once the Machines have been listed live.
	listed bool
	// machines has their names. The value is true while the Machine is being created.
	machines map[string]bool
}

// machineLister returns the names of the Machines of a pool: those in the cache, or those on the API server.
type machineLister func(ctx context.Context, live bool) (map[string]bool, error)

// assume counts the Machine of that name if there are fewer than limit others, and returns how many others there are. The
// caller must call finish afterwards.
func (l *nodeLimits) assume(ctx context.Context, list machineLister, pool, name string, limit int64) (others int64, err error) {
	assumed := l.of(pool)
	assumed.mu.Lock()
	defer assumed.mu.Unlock()
	shown, err := list(ctx, false)
	if err != nil {
		return 0, err
	}
	if others = assumed.countCached(shown, name); !assumed.listed || others >= limit {
		if shown, err = list(ctx, true); err != nil {
			return 0, err
		}
		others, assumed.listed = assumed.countLive(shown, name), true
	}
	if others < limit {
		assumed.machines[name] = true
	}
	return others, nil
}

// finish is called after the attempt to create a Machine that was assumed. refused means that it was denied. Otherwise it
// is counted, created or not, until it is in the cache or not on the API server.
func (l *nodeLimits) finish(pool, name string, refused bool) {
	assumed := l.of(pool)
	assumed.mu.Lock()
	defer assumed.mu.Unlock()
	if refused {
		delete(assumed.machines, name)
		return
	}
	if _, kept := assumed.machines[name]; kept {
		assumed.machines[name] = false
	}
}

func (l *nodeLimits) of(pool string) *assumedMachines {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pools == nil {
		l.pools = map[string]*assumedMachines{}
	}
	if l.pools[pool] == nil {
		l.pools[pool] = &assumedMachines{machines: map[string]bool{}}
	}
	return l.pools[pool]
}

// countCached counts the Machines other than that of the name. Those in the cache need not be assumed any more.
func (p *assumedMachines) countCached(cached map[string]bool, name string) int64 {
	for taken, making := range p.machines {
		if cached[taken] && !making {
			delete(p.machines, taken)
		}
	}
	return p.count(cached, name)
}

// countLive counts the same with what is on the API server, and assumes all of that: it may not be in the cache yet.
func (p *assumedMachines) countLive(existing map[string]bool, name string) int64 {
	for taken, making := range p.machines {
		if !existing[taken] && !making {
			delete(p.machines, taken)
		}
	}
	count := p.count(existing, name)
	for one := range existing {
		if _, taken := p.machines[one]; !taken {
			p.machines[one] = false
		}
	}
	return count
}

func (p *assumedMachines) count(machines map[string]bool, name string) (count int64) {
	for one := range machines {
		if one != name {
			count++
		}
	}
	for one := range p.machines {
		if one != name && !machines[one] {
			count++
		}
	}
	return count
}
