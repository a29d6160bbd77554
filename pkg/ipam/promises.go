// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Promises are addresses of pools that Machines are going to take: one of the pool, not yet known which. A Machine that
// cannot be promised one need not be given a server. A promise is no lock: it is not written anywhere, it goes by what a
// cache shows, and of pools that overlap, one knows nothing of the promises of the other. Who is given a server and finds
// no address all the same has to wait for one. It is safe for concurrent use.
type Promises struct {
	reader client.Reader

	lock sync.Mutex
	made map[types.NamespacedName]promise
}

type promise struct {
	to   types.UID
	pool Pool
}

// NewPromises returns Promises that reads which addresses are taken from a cache.
func NewPromises(reader client.Reader) *Promises {
	return &Promises{reader: reader, made: map[types.NamespacedName]promise{}}
}

// Make promises the owner an address of the pool, in the place of what it was promised before. An owner that has an
// address keeps that. The error is an *ExhaustedError if all addresses of the pool are taken or promised.
func (p *Promises) Make(ctx context.Context, owner v1alpha1.MachineReference, pool Pool) error {
	taken := &v1alpha1.IPAddressList{}
	if err := p.reader.List(ctx, taken, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("reading which addresses of pool %s are taken, %w", pool.title(), err)
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	delete(p.made, keyOf(owner))
	used := uint64(0)
	for i := range taken.Items {
		has := taken.Items[i].Spec.MachineRef
		if has == owner {
			return nil
		}
		if made, found := p.made[keyOf(has)]; found && made.to == has.UID {
			delete(p.made, keyOf(has)) // it is kept
		}
		if _, ours := pool.has(&taken.Items[i]); ours {
			used++
		}
	}
	promised := 0
	for _, made := range p.made {
		if made.pool.of == pool.of && made.pool.text == pool.text {
			promised++
		}
	}
	if used+uint64(promised) >= pool.Size() {
		return pool.exhausted(taken.Items, promised)
	}
	p.made[keyOf(owner)] = promise{to: owner.UID, pool: pool}
	return nil
}

// Keep counts an address as promised, whether there is one or not: the owner has its server already, and takes one as
// soon as it can.
func (p *Promises) Keep(owner v1alpha1.MachineReference, pool Pool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.made[keyOf(owner)] = promise{to: owner.UID, pool: pool}
}

// Forget takes a promise back, and tells of which pool it was, if there was one.
func (p *Promises) Forget(machine types.NamespacedName) (Pool, bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	made, found := p.made[machine]
	delete(p.made, machine)
	return made.pool, found
}

// Leave takes back what the owner was promised of any pool but this one, or what a Machine of its name was that is gone.
// It tells of which pool that was, if there was one. With the zero Pool the owner needs no address.
func (p *Promises) Leave(owner v1alpha1.MachineReference, pool Pool) (Pool, bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	made, found := p.made[keyOf(owner)]
	if !found || made.to == owner.UID && made.pool.of == pool.of && made.pool.text == pool.text {
		return Pool{}, false
	}
	delete(p.made, keyOf(owner))
	return made.pool, true
}

// Overlaps names the other pools that give out addresses of this one, or have been promised some, in its network. Two
// that are the same are one pool.
func (p *Promises) Overlaps(ctx context.Context, pool Pool) ([]string, error) {
	taken := &v1alpha1.IPAddressList{}
	if err := p.reader.List(ctx, taken, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("looking for pools that overlap pool %s, %w", pool.title(), err)
	}
	others := map[string]bool{}
	for i := range taken.Items {
		spec := taken.Items[i].Spec
		if _, known := others[spec.Pool]; known || spec.Network != pool.of || spec.Pool == pool.text {
			continue
		}
		_, ours := pool.has(&taken.Items[i])
		others[spec.Pool] = ours || len(pool.Overlap(read(spec.Pool).In(pool.of))) > 0
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, made := range p.made {
		if made.pool.text != pool.text && len(pool.Overlap(made.pool)) > 0 {
			others[made.pool.text] = true
		}
	}
	maps.DeleteFunc(others, func(_ string, overlaps bool) bool { return !overlaps })
	return slices.Sorted(maps.Keys(others)), nil
}

func keyOf(owner v1alpha1.MachineReference) types.NamespacedName {
	return types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}
}
