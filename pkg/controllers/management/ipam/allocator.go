// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
)

// Allocator gives out addresses and takes them back. It has no memory of its own.
type Allocator struct {
	// Client writes, and may read from a cache: that the cache is old costs an attempt and no more.
	Client client.Client
	// Live reads from the API server, past every cache.
	Live client.Reader
}

// Ensure gives the owner an address of the pool. An owner that has one keeps it, whatever the pool is now: to have it
// moved to another pool, Release it first. The owner must exist, and must be kept until it is released, or the sweep
// takes the address back. The error is an *ipam.ExhaustedError if all addresses are taken.
//
// It writes at most once, unless others take addresses of the pool at the same moment.
func (a Allocator) Ensure(ctx context.Context, owner v1alpha1.MachineReference, pool ipam.Pool) (ipam.Allocation, error) {
	found, had, err := a.find(ctx, owner, true)
	if err != nil || had {
		return found, err
	}
	if err := a.take(ctx, owner, pool); err != nil {
		return ipam.Allocation{}, err
	}
	// Another manager may have done the same meanwhile. Of two addresses, both keep the one that was taken first.
	if found, had, err = a.find(ctx, owner, true); err == nil && !had {
		err = fmt.Errorf("allocating an address for Machine %s/%s, the address was taken back at once", owner.Namespace, owner.Name)
	}
	return found, err
}

// Find returns the address that the owner has, and whether it has one.
func (a Allocator) Find(ctx context.Context, owner v1alpha1.MachineReference) (ipam.Allocation, bool, error) {
	return a.find(ctx, owner, false)
}

// find looks for the owner's address and, if asked to, gives back what it has beside the oldest.
func (a Allocator) find(ctx context.Context, owner v1alpha1.MachineReference, tidy bool) (ipam.Allocation, bool, error) {
	objects, err := a.of(ctx, owner)
	if err != nil || len(objects) == 0 {
		return ipam.Allocation{}, false, err
	}
	// The objects never change, so that their version is that of their creation.
	slices.SortFunc(objects, func(x, y v1alpha1.IPAddress) int {
		order, err := resourceversion.CompareResourceVersion(x.ResourceVersion, y.ResourceVersion)
		if err != nil {
			return x.CreationTimestamp.Compare(y.CreationTimestamp.Time)
		}
		return order
	})
	if tidy {
		for i := range objects[1:] {
			if err := a.free(ctx, &objects[1+i]); err != nil {
				return ipam.Allocation{}, false, err
			}
		}
	}
	found, err := ipam.AllocationOf(&objects[0])
	return found, err == nil, err
}

// Release takes back every address of the owner. It is no error if there is none.
func (a Allocator) Release(ctx context.Context, owner v1alpha1.MachineReference) error {
	objects, err := a.of(ctx, owner)
	if err != nil {
		return err
	}
	for i := range objects {
		if err := a.free(ctx, &objects[i]); err != nil {
			return err
		}
	}
	return nil
}

// of lists the addresses of an owner. It is a live read: an address that is overlooked is leaked, or had twice.
func (a Allocator) of(ctx context.Context, owner v1alpha1.MachineReference) ([]v1alpha1.IPAddress, error) {
	list := &v1alpha1.IPAddressList{}
	if err := a.Live.List(ctx, list, client.MatchingLabels{v1alpha1.MachineUIDLabelKey: string(owner.UID)}); err != nil {
		return nil, fmt.Errorf("looking for addresses of Machine %s/%s, %w", owner.Namespace, owner.Name, err)
	}
	return slices.DeleteFunc(list.Items, func(object v1alpha1.IPAddress) bool { return object.Spec.MachineRef != owner }), nil
}

// free deletes an address, and no other that has been made under the same name since.
func (a Allocator) free(ctx context.Context, object *v1alpha1.IPAddress) error {
	uid := object.UID
	err := a.Client.Delete(ctx, object, client.Preconditions{UID: &uid})
	if err == nil || apierrors.IsNotFound(err) || isOther(err) {
		return nil
	}
	return fmt.Errorf("releasing address %s of Machine %s/%s, %w", object.Spec.Address, object.Spec.MachineRef.Namespace,
		object.Spec.MachineRef.Name, err)
}

// isOther tells whether a delete found an object with another UID, so that the one that was meant is gone.
func isOther(err error) bool { return apierrors.IsConflict(err) }

// take creates an address of the pool for the owner. What is taken is looked up in the cache, and once more past it
// before the pool is said to be exhausted.
func (a Allocator) take(ctx context.Context, owner v1alpha1.MachineReference, pool ipam.Pool) error {
	if pool.Size() == 0 {
		return fmt.Errorf("allocating an address for Machine %s/%s, the pool is empty", owner.Namespace, owner.Name)
	}
	taken := &v1alpha1.IPAddressList{}
	for _, reader := range []client.Reader{a.Client, a.Live} {
		if err := reader.List(ctx, taken, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("reading which addresses of pool %s are taken, %w", pool, err)
		}
		for address := range pool.Free(owner, taken.Items) {
			err := a.Client.Create(ctx, ipam.NewObject(owner, pool, address))
			if err == nil {
				return nil
			}
			if !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("allocating address %s for Machine %s/%s, %w", address, owner.Namespace, owner.Name, err)
			}
		}
	}
	return pool.Exhausted(taken.Items, 0)
}
