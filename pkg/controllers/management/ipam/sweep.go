// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	// sweepName is the name of the controller, in logs and metrics.
	sweepName = "ipam.sweep"
	// uidField indexes the cache of IPAddresses by the UID of their Machine.
	uidField = "spec.machineRef.uid"
	// heldDelay is how long to wait before asking again whether a server that had lost its Machine has been given back.
	heldDelay = time.Minute
)

// InUse tells whether a server may still be using an address of the Machine although the Machine is gone, because it
// has not been cleaned yet. It must not answer from a cache.
type InUse func(ctx context.Context, machine v1alpha1.MachineReference) (bool, error)

// Sweep is the controller that takes addresses back whose Machine does not exist any more, because it was deleted by
// force, or because the address was allocated by a run that had been overtaken.
type Sweep struct {
	allocator Allocator
	inUse     InUse
}

// NewSweep makes a Sweep.
func NewSweep(allocator Allocator, inUse InUse) *Sweep {
	return &Sweep{allocator: allocator, inUse: inUse}
}

// Name of the controller.
func (s *Sweep) Name() string { return sweepName }

// Reconcile looks at one address.
func (s *Sweep) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	address := &v1alpha1.IPAddress{}
	if err := s.allocator.Client.Get(ctx, request.NamespacedName, address); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// A Machine that the cache knows may be gone, but then its deletion is on its way here. One that the cache does not
	// know may well be there.
	for _, reader := range []client.Reader{s.allocator.Client, s.allocator.Live} {
		exists, err := machineExists(ctx, reader, address.Spec.MachineRef)
		if err != nil || exists {
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

func machineExists(ctx context.Context, reader client.Reader, reference v1alpha1.MachineReference) (bool, error) {
	machine := &v1alpha1.Machine{}
	err := reader.Get(ctx, types.NamespacedName{Namespace: reference.Namespace, Name: reference.Name}, machine)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading Machine %s/%s, which has an address, %w", reference.Namespace, reference.Name, err)
	}
	return err == nil && machine.ClaimUID() == reference.UID, nil
}

// Register adds the controller to a manager, whose client and cache must be those of the Allocator.
func (s *Sweep) Register(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.IPAddress{}, uidField, uidOf); err != nil {
		return fmt.Errorf("indexing IPAddresses by %s, %w", uidField, err)
	}
	deletions := predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	return builder.ControllerManagedBy(mgr).
		Named(sweepName).
		For(&v1alpha1.IPAddress{}).
		Watches(&v1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(s.addressesOf), builder.WithPredicates(deletions)).
		Complete(s)
}

func uidOf(object client.Object) []string {
	address, ok := object.(*v1alpha1.IPAddress)
	if !ok {
		return nil
	}
	return []string{string(address.Spec.MachineRef.UID)}
}

// addressesOf are the addresses of a Machine.
func (s *Sweep) addressesOf(ctx context.Context, object client.Object) []reconcile.Request {
	machine, ok := object.(*v1alpha1.Machine)
	if !ok {
		return nil
	}
	list := &v1alpha1.IPAddressList{}
	// It reads from the cache, which fails only when the process is stopping.
	if err := s.allocator.Client.List(ctx, list, client.MatchingFields{uidField: string(machine.ClaimUID())},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}
