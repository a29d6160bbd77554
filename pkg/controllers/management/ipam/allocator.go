// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ipam allocates addresses to Machines, and frees the addresses of deleted Machines. An allocated address is an
// IPAddress whose name is the network and the address. So the API server rejects a second allocation, even with several
// managers or stale caches.
package ipam

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// Allocator allocates and releases addresses. It keeps no state.
type Allocator struct {
	// Client writes, and may read from a cache: a stale cache costs only an attempt.
	Client client.Client
	// Live reads from the API server, past every cache.
	Live client.Reader
}

// Ensure gives the owner an address of the pool. An owner with an address keeps it, even if the pool has changed: call
// Release first to move the owner to another pool. The owner must exist until its address is released, or the sweep
// takes the address back. The error is an *ipam.ExhaustedError if all addresses are taken.
//
// Ensure writes at most once, unless others take addresses of the pool at the same moment.
func (a Allocator) Ensure(ctx context.Context, owner v1alpha1.MachineReference, pool ipam.Pool) (ipam.Allocation, error) {
	found, had, err := a.find(ctx, owner)
	if err != nil || had {
		return found, err
	}
	if err := a.take(ctx, owner, pool); err != nil {
		return ipam.Allocation{}, err
	}
	// Another manager may have done the same meanwhile. Both managers keep the older of the two addresses.
	if found, had, err = a.find(ctx, owner); err == nil && !had {
		err = fmt.Errorf("allocating an address for Machine %s/%s, the address was taken back at once", owner.Namespace, owner.Name)
	}
	return found, err
}

// find returns the owner's oldest address and whether there is one, and releases the others.
func (a Allocator) find(ctx context.Context, owner v1alpha1.MachineReference) (ipam.Allocation, bool, error) {
	objects, err := a.addressesOf(ctx, owner)
	if err != nil || len(objects) == 0 {
		return ipam.Allocation{}, false, err
	}
	// The objects never change, so their versions are in the order of their creation.
	slices.SortFunc(objects, func(x, y v1alpha1.IPAddress) int {
		order, err := resourceversion.CompareResourceVersion(x.ResourceVersion, y.ResourceVersion)
		if err != nil {
			return x.CreationTimestamp.Compare(y.CreationTimestamp.Time)
		}
		return order
	})
	for i := range objects[1:] {
		if err := a.free(ctx, &objects[1+i]); err != nil {
			return ipam.Allocation{}, false, err
		}
	}
	found, err := ipam.AllocationOf(&objects[0])
	return found, err == nil, err
}

// Release deletes every address of the owner. Having none is no error.
func (a Allocator) Release(ctx context.Context, owner v1alpha1.MachineReference) error {
	objects, err := a.addressesOf(ctx, owner)
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

// addressesOf lists the addresses of an owner by a live read: an overlooked address would leak, or be doubled.
func (a Allocator) addressesOf(ctx context.Context, owner v1alpha1.MachineReference) ([]v1alpha1.IPAddress, error) {
	list := &v1alpha1.IPAddressList{}
	if err := a.Live.List(ctx, list, client.MatchingLabels{v1alpha1.MachineUIDLabelKey: string(owner.UID)}); err != nil {
		return nil, fmt.Errorf("looking for addresses of Machine %s/%s, %w", owner.Namespace, owner.Name, err)
	}
	return slices.DeleteFunc(list.Items, func(object v1alpha1.IPAddress) bool { return object.Spec.MachineRef != owner }), nil
}

// free deletes an address, but no newer object of the same name.
func (a Allocator) free(ctx context.Context, object *v1alpha1.IPAddress) error {
	owner := object.Spec.MachineRef
	return kube.Delete(ctx, a.Client, object, fmt.Sprintf("releasing the address of Machine %s/%s,", owner.Namespace, owner.Name))
}

// take creates an address of the pool for the owner. It looks up taken addresses in the cache, and once more in the API
// server before it reports that the pool is exhausted.
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

const (
	// sweepName is the name of the controller, in logs and metrics.
	sweepName = "ipam.sweep"
	// uidField indexes the cache of IPAddresses by the UID of their Machine.
	uidField = "spec.machineRef.uid"
	// heldDelay is the time until the next check whether a server without its Machine was released.
	heldDelay = time.Minute
)

// InUse reports whether a server may still use an address of the Machine although the Machine is gone, because the
// server has not been cleaned yet. It must not read from a cache.
type InUse func(ctx context.Context, machine v1alpha1.MachineReference) (bool, error)

// Sweep is the controller that frees addresses of Machines that do not exist any more. Either the Machine was deleted
// by force, or an outdated run allocated the address.
type Sweep struct {
	allocator Allocator
	inUse     InUse
}

// NewSweep makes a Sweep.
func NewSweep(allocator Allocator, inUse InUse) *Sweep {
	return &Sweep{allocator: allocator, inUse: inUse}
}

// Reconcile looks at one address.
func (s *Sweep) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	address := &v1alpha1.IPAddress{}
	if err := s.allocator.Client.Get(ctx, request.NamespacedName, address); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// A Machine in the cache may be deleted already; then the deletion event follows. A Machine that is not in the
	// cache may exist.
	for _, reader := range []client.Reader{s.allocator.Client, s.allocator.Live} {
		machine, err := kube.FindMachine(ctx, reader, address.Spec.MachineRef)
		if err != nil || machine != nil {
			return ctrl.Result{}, err
		}
	}
	held, err := s.inUse(ctx, address.Spec.MachineRef)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("finding out whether address %s is in use, %w", address.Spec.Address, err)
	}
	if held {
		return ctrl.Result{RequeueAfter: heldDelay}, nil
	}
	if err := s.allocator.free(ctx, address); err != nil {
		return ctrl.Result{}, err
	}
	log.FromContext(ctx).Info("Released an address whose Machine does not exist", "address", address.Spec.Address,
		"Machine", address.Spec.MachineRef.Namespace+"/"+address.Spec.MachineRef.Name, "UID", address.Spec.MachineRef.UID)
	return ctrl.Result{}, nil
}

// Register adds the controller to a manager. The manager must have the client and cache of the Allocator.
func (s *Sweep) Register(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.IPAddress{}, uidField, kube.Of(uidOf)); err != nil {
		return fmt.Errorf("indexing IPAddresses by %s, %w", uidField, err)
	}
	return builder.ControllerManagedBy(mgr).
		Named(sweepName).
		For(&v1alpha1.IPAddress{}).
		Watches(&v1alpha1.Machine{}, kube.Enqueue(s.addressesOf), builder.WithPredicates(kube.Only(kube.Deletions))).
		Complete(s)
}

func uidOf(address *v1alpha1.IPAddress) []string {
	return []string{string(address.Spec.MachineRef.UID)}
}

// addressesOf returns requests for the addresses of a Machine.
func (s *Sweep) addressesOf(ctx context.Context, machine *v1alpha1.Machine) []reconcile.Request {
	return kube.Requests(ctx, s.allocator.Client, &v1alpha1.IPAddressList{},
		client.MatchingFields{uidField: string(machine.ClaimUID())})
}
