// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollection deletes objects that the provider can leave behind: Machines whose NodeClaim is gone,
// NodeClaims whose Machine an operator has deleted, Nodes without either, and join tokens and user data whose Machine
// is gone.
//
// A cache without an object, an empty list or an error is never a reason to delete: each deletion follows a read from
// the API server that shows that the owner does not exist.
package garbagecollection

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// machinePeriod is how often each Machine is reconciled without an event, in case an event was lost.
const machinePeriod = 5 * time.Minute

// MachineController deletes Machines whose NodeClaim does not exist any more. Karpenter finalizes a NodeClaim that
// never launched without calling Delete, so its Machine stays behind.
type MachineController struct {
	clusters tenant.Clusters
	breaker  *breaker
}

func NewMachineController(clk clock.PassiveClock, clusters tenant.Clusters) *MachineController {
	return &MachineController{clusters: clusters, breaker: newBreaker(clk, clusters)}
}

// Reconcile deletes the Machine if the NodeClaim that it was made for is gone.
func (c *MachineController) Reconcile(ctx context.Context, machine *v1alpha1.Machine) (reconcile.Result, error) {
	// 1. Only Machines that were created for a NodeClaim.
	if !madeForNodeClaim(c.clusters, machine) || !machine.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	// 2. If the cache has a NodeClaim that is gone already, its deletion event is still to come.
	exists, err := nodeClaimExists(ctx, c.clusters.Tenant.Client, machine)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !exists {
		// 3. The cache may not have the Machine's NodeClaim yet.
		if exists, err = nodeClaimExists(ctx, c.clusters.Tenant.Live, machine); err != nil {
			return reconcile.Result{}, err
		}
	}
	if exists {
		if c.breaker.isOpen() {
			_, err = c.breaker.allows(ctx)
		}
		return reconcile.Result{RequeueAfter: machinePeriod}, err
	}
	// 4. It is gone. If many NodeClaims are gone, the tenant's cluster may be at fault.
	if allowed, err := c.breaker.allows(ctx); err != nil || !allowed {
		return reconcile.Result{RequeueAfter: heldPeriod}, err
	}
	// 5. The preconditions keep a Machine that has changed since.
	err = c.clusters.Management.Client.Delete(ctx, machine,
		client.Preconditions{UID: &machine.UID, ResourceVersion: &machine.ResourceVersion})
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: kube.ConflictRetry}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("deleting machine %s without a nodeclaim, %w", client.ObjectKeyFromObject(machine), err)
	}
	c.breaker.collects(machine)
	log.FromContext(ctx).Info("deleted machine whose nodeclaim is gone", "nodeClaim", machine.Labels[v1alpha1.NodeClaimLabelKey])
	return reconcile.Result{}, nil
}

func madeForNodeClaim(clusters tenant.Clusters, machine *v1alpha1.Machine) bool {
	return clusters.Owns(machine) &&
		machine.Labels[v1alpha1.NodeClaimLabelKey] != "" && machine.Annotations[v1alpha1.NodeClaimUIDAnnotationKey] != ""
}

// nodeClaimExists reports whether the Machine's own NodeClaim exists. A NodeClaim of the same name with another UID is
// another one, unless it has the Machine's provider ID: then it was restored from a backup.
func nodeClaimExists(ctx context.Context, reader client.Reader, machine *v1alpha1.Machine) (bool, error) {
	nodeClaim := &karpv1.NodeClaim{}
	found, err := kube.Find(ctx, reader, client.ObjectKey{Name: machine.Labels[v1alpha1.NodeClaimLabelKey]}, nodeClaim)
	return found && tenant.MadeFor(machine, nodeClaim), err
}

func (c *MachineController) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("machine.garbagecollection").
		// The status of a Machine does not depend on its NodeClaim.
		WatchesRawSource(c.clusters.Watch(&v1alpha1.Machine{}, &handler.EnqueueRequestForObject{}, kube.Only(kube.Creations))).
		Watches(&karpv1.NodeClaim{}, kube.Enqueue(c.clusters.MachineOf), builder.WithPredicates(kube.Only(kube.Deletions))).
		WithOptions(controller.Options{MaxConcurrentReconciles: kube.Concurrency}).
		Complete(reconcile.AsReconciler(c.clusters.Management.Client, c))
}

// reasonMachineDeleted: the NodeClaim is deleted because its Machine was deleted. An event on the NodeClaim.
const reasonMachineDeleted = "MachineDeleted"

// NodeClaimController deletes NodeClaims whose Machine an operator has deleted. Their server is being released, and
// Karpenter would wait for their node, or treat it as not ready.
type NodeClaimController struct {
	clusters tenant.Clusters
	recorder events.Recorder
}

func NewNodeClaimController(clusters tenant.Clusters, recorder events.Recorder) *NodeClaimController {
	return &NodeClaimController{clusters: clusters, recorder: recorder}
}

// Reconcile deletes the NodeClaim if its Machine is being deleted, or is gone before the node has registered.
func (c *NodeClaimController) Reconcile(ctx context.Context, nodeClaim *karpv1.NodeClaim) (reconcile.Result, error) {
	// 1. Only NodeClaims with a server of this provider. Others may still be waiting for their Machine.
	_, _, name, ours := v1alpha1.ParseProviderID(nodeClaim.Status.ProviderID)
	if !ours || !nodeClaim.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	// 2. If the cache does not have the deletion of the Machine yet, its event is still to come.
	why, err := c.whyDelete(ctx, c.clusters.Management.Client, name, nodeClaim)
	if err != nil || why == "" {
		return reconcile.Result{}, err
	}
	if why, err = c.whyDelete(ctx, c.clusters.Management.Live, name, nodeClaim); err != nil || why == "" {
		return reconcile.Result{}, err
	}
	// 3. The API server confirms it.
	if err := c.clusters.Tenant.Client.Delete(ctx, nodeClaim, client.Preconditions{UID: &nodeClaim.UID}); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("deleting nodeclaim %s, %s, %w", nodeClaim.Name, why, err))
	}
	log.FromContext(ctx).Info("deleted nodeclaim with its machine", "machine", name, "why", why)
	c.recorder.Publish(events.Event{
		InvolvedObject: nodeClaim, Type: corev1.EventTypeNormal, Reason: reasonMachineDeleted,
		Message: why + ": the NodeClaim is deleted too", DedupeValues: []string{string(nodeClaim.UID)},
	})
	return reconcile.Result{}, nil
}

// whyDelete returns a reason if the Machine of a NodeClaim is being deleted or does not exist, or "". If the node has
// registered, a missing Machine proves nothing: a management cluster that is being restored has nodes before Machines.
// Core deletes the NodeClaim once its node is not ready any more.
func (c *NodeClaimController) whyDelete(
	ctx context.Context, reader client.Reader, name string, nodeClaim *karpv1.NodeClaim,
) (string, error) {
	machine := &v1alpha1.Machine{}
	found, err := kube.Find(ctx, reader, c.clusters.MachineKey(name), machine)
	switch {
	case err != nil:
		return "", err
	case !found, machine.Status.ProviderID != nodeClaim.Status.ProviderID:
		if tenant.HasRegistered(nodeClaim) {
			return "", nil
		}
		return "its Machine " + name + " does not exist any more", nil
	case !machine.DeletionTimestamp.IsZero():
		return "its Machine " + name + " is being deleted", nil
	}
	return "", nil
}

func (c *NodeClaimController) Register(_ context.Context, m manager.Manager) error {
	nodeClaimOf := func(_ context.Context, machine *v1alpha1.Machine) []reconcile.Request {
		name := machine.Labels[v1alpha1.NodeClaimLabelKey]
		if name == "" || !c.clusters.Owns(machine) {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
	}
	return controllerruntime.NewControllerManagedBy(m).
		Named("nodeclaim.machinegone").
		// At the start, the Machine of any NodeClaim may have been deleted while the provider was down.
		For(&karpv1.NodeClaim{}, builder.WithPredicates(kube.Only(kube.Creations))).
		WatchesRawSource(c.clusters.WatchMachines(nodeClaimOf, kube.Only(kube.Updates|kube.Deletions),
			kube.Changed(func(machine *v1alpha1.Machine) bool { return machine.DeletionTimestamp.IsZero() }))).
		WithOptions(controller.Options{MaxConcurrentReconciles: kube.Concurrency}).
		Complete(reconcile.AsReconciler(c.clusters.Tenant.Client, c))
}
