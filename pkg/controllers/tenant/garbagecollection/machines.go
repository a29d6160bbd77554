// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollection deletes what the provider can leave behind: Machines whose NodeClaim is gone, NodeClaims whose
// Machine an operator has deleted, Nodes without either, and join tokens and user data whose Machine is gone.
//
// Nothing is deleted because a cache does not show it, because a list is empty, or because of an error: each deletion
// follows a read from the API server that the one owner does not exist.
package garbagecollection

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant"
)

// machinePeriod is how often each Machine is reconciled without an event, in case one was lost.
const machinePeriod = 5 * time.Minute

// MachineController deletes Machines whose NodeClaim does not exist any more. Karpenter finalizes a NodeClaim that
// never launched without asking for a deletion, so its Machine is left behind.
type MachineController struct {
	clusters tenant.Clusters
}

// NewMachineController constructs a garbage collector of Machines.
func NewMachineController(clusters tenant.Clusters) *MachineController {
	return &MachineController{clusters: clusters}
}

// Reconcile deletes the Machine if the NodeClaim that it was made for is gone.
func (c *MachineController) Reconcile(ctx context.Context, machine *v1alpha1.Machine) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	// 1. Only Machines that were created for a NodeClaim.
	if !c.madeForNodeClaim(machine) || !machine.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	// 2. If the cache has a NodeClaim that is gone already, its deletion is an event that is still to come.
	exists, err := nodeClaimExists(ctx, c.clusters.Tenant.Client, machine)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !exists {
		// 3. The cache may not have the NodeClaim yet that this Machine was created for.
		if exists, err = nodeClaimExists(ctx, c.clusters.Tenant.Live, machine); err != nil {
			return reconcile.Result{}, err
		}
	}
	if exists {
		return reconcile.Result{RequeueAfter: machinePeriod}, nil
	}
	// 4. It is gone. The preconditions keep a Machine that has changed since.
	err = c.clusters.Management.Client.Delete(ctx, machine,
		client.Preconditions{UID: &machine.UID, ResourceVersion: &machine.ResourceVersion})
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: controllers.ConflictRetry}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("deleting machine %s without a nodeclaim, %w", client.ObjectKeyFromObject(machine), err)
	}
	log.FromContext(ctx).Info("deleted machine whose nodeclaim is gone", "nodeClaim", machine.Labels[v1alpha1.NodeClaimLabelKey])
	return reconcile.Result{}, nil
}

func (c *MachineController) madeForNodeClaim(machine *v1alpha1.Machine) bool {
	return c.clusters.Owns(machine) &&
		machine.Labels[v1alpha1.NodeClaimLabelKey] != "" && machine.Annotations[v1alpha1.NodeClaimUIDAnnotationKey] != ""
}

// nodeClaimExists returns whether the NodeClaim exists that the Machine was created for. One of the same name with another
// UID is another, unless it has the Machine's provider ID: then it was restored from a backup.
func nodeClaimExists(ctx context.Context, reader client.Reader, machine *v1alpha1.Machine) (bool, error) {
	nodeClaim := &karpv1.NodeClaim{}
	found, err := controllers.Find(ctx, reader, client.ObjectKey{Name: machine.Labels[v1alpha1.NodeClaimLabelKey]}, nodeClaim)
	return found && tenant.MadeFor(machine, nodeClaim), err
}

// Name implements Karpenter's controller interface.
func (c *MachineController) Name() string { return "machine.garbagecollection" }

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *MachineController) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(source.Kind(c.clusters.Management.Cache, &v1alpha1.Machine{},
			&handler.TypedEnqueueRequestForObject[*v1alpha1.Machine]{},
			// The status of a Machine says nothing about its NodeClaim.
			predicate.TypedFuncs[*v1alpha1.Machine]{
				CreateFunc: func(e event.TypedCreateEvent[*v1alpha1.Machine]) bool { return c.madeForNodeClaim(e.Object) },
				UpdateFunc: func(event.TypedUpdateEvent[*v1alpha1.Machine]) bool { return false },
				DeleteFunc: func(event.TypedDeleteEvent[*v1alpha1.Machine]) bool { return false },
			})).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(c.clusters.MachineOf),
			builder.WithPredicates(controllers.OnlyDeletions())).
		WithOptions(controller.Options{MaxConcurrentReconciles: controllers.Concurrency}).
		Complete(reconcile.AsReconciler(c.clusters.Management.Client, c))
}
