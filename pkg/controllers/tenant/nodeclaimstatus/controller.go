// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeclaimstatus writes the conditions of NodeClaims that core does not know: ServerReady, from the Machine,
// and ResourcesAdvertised and NodeAsPlanned, from the Node. It deletes the NodeClaim of a Machine that the manager has
// given up, and sets ServerReady on Nodes whose server fails. Otherwise users could not see why a node is late.
//
// It passes drift on: the properties of a MetalNodeClass into the Machines of the class, so that the manager compares
// them with status.installed, and the manager's result onto the NodeClaim. That change makes core check for drift at
// once instead of within five minutes.
package nodeclaimstatus

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Controller writes the status of NodeClaims from their Machines and Nodes.
type Controller struct {
	clock    clock.PassiveClock
	clusters tenant.Clusters
	recorder events.Recorder
	// grace is how long a node has to advertise all its resources.
	grace time.Duration

	lock sync.Mutex
	// missingSince is when resources were first seen to be missing, by the name of the NodeClaim. It starts again with
	// the process: a device plugin that restarts on an old node has the whole grace, too.
	missingSince map[string]firstSeen
}

// NewController constructs a controller. grace is how long a node may take to advertise all its resources.
func NewController(clk clock.PassiveClock, clusters tenant.Clusters, recorder events.Recorder, grace time.Duration) *Controller {
	return &Controller{clock: clk, clusters: clusters, recorder: recorder, grace: grace, missingSince: map[string]firstSeen{}}
}

// Reconcile writes the status of one NodeClaim, if it has changed. It takes the name and not the object, because it
// must notice when NodeClaims are gone.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	nodeClaim := &karpv1.NodeClaim{}
	if _, err := kube.Find(ctx, c.clusters.Tenant.Client, request.NamespacedName, nodeClaim); err != nil {
		return reconcile.Result{}, err
	}
	// 1. It is gone, is being deleted, or has no provider ID of this provider. Until it has one, core creates the
	// server, and writes the status without comparing versions.
	if _, _, _, ours := v1alpha1.ParseProviderID(nodeClaim.Status.ProviderID); !ours || !nodeClaim.DeletionTimestamp.IsZero() {
		c.forget(request.Name)
		return reconcile.Result{}, nil
	}
	machine, err := c.machineFor(ctx, nodeClaim)
	if err != nil {
		return reconcile.Result{}, err
	}
	node, err := c.nodeFor(ctx, nodeClaim, machine)
	if err != nil {
		return reconcile.Result{}, err
	}
	// 2. Its conditions, in one write.
	stored := nodeClaim.DeepCopy()
	published, untilWritten := c.setServerReady(nodeClaim, machine)
	advertised, wait, err := c.setResourcesAdvertised(ctx, nodeClaim, node)
	if err != nil {
		return reconcile.Result{}, err
	}
	published = append(published, advertised...)
	published = append(published, c.setNodeAsPlanned(nodeClaim, node)...)
	if untilWritten > 0 {
		wait = untilWritten // after it, the next reconcile computes the other
	}
	if !equality.Semantic.DeepEqual(stored.Status, nodeClaim.Status) {
		err := kube.PatchStatus(ctx, c.clusters.Tenant.Client, stored, nodeClaim)
		if apierrors.IsConflict(err) {
			// Core writes a NodeClaim several times in a row at each step. An earlier retry would fail, too.
			return reconcile.Result{RequeueAfter: minStageDuration}, nil
		}
		if err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	c.recorder.Publish(published...)
	if machine == nil {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := c.reportSize(ctx, machine, nodeClaim, node); err != nil {
		return kube.RetryConflict(client.IgnoreNotFound(err))
	}
	// 3. The manager has given up its Machine.
	if meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionGivenUp) {
		return reconcile.Result{}, c.giveUp(ctx, machine, nodeClaim)
	}
	// 4. Its node is up, and its server fails or is well again.
	if node != nil && meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionJoined) {
		if err := c.writeNode(ctx, node, conditions.Find(machine.Status.Conditions, v1alpha1.ConditionReady)); err != nil {
			return kube.RetryConflict(client.IgnoreNotFound(err))
		}
	}
	// 5. What the Machine is installed with, and what a new server would be.
	if nodeClaim.Status.ProviderID == machine.Status.ProviderID {
		err := c.writeProperties(ctx, machine, nodeClaim)
		if err == nil {
			err = c.writeDrift(ctx, machine, nodeClaim)
		}
		if err != nil {
			return kube.RetryConflict(client.IgnoreNotFound(err))
		}
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// machineFor returns the Machine of a NodeClaim, which has the same name. It returns nil if there is none, if the
// Machine is being deleted, or if it has no condition Ready yet.
func (c *Controller) machineFor(ctx context.Context, nodeClaim *karpv1.NodeClaim) (*v1alpha1.Machine, error) {
	machine := &v1alpha1.Machine{}
	if _, err := kube.Find(ctx, c.clusters.Management.Client, c.clusters.MachineKey(nodeClaim.Name), machine); err != nil {
		return nil, err
	}
	if !c.isOfNodeClaim(machine) || machine.Labels[v1alpha1.NodeClaimLabelKey] != nodeClaim.Name || !tenant.MadeFor(machine, nodeClaim) ||
		!machine.DeletionTimestamp.IsZero() || meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionReady) == nil {
		return nil, nil
	}
	return machine, nil
}

// nodeFor returns the Node of a NodeClaim, or nil if there is none. Core writes the name of the Node when it registers.
// The Machine has the name earlier, when the node has joined.
func (c *Controller) nodeFor(ctx context.Context, nodeClaim *karpv1.NodeClaim, machine *v1alpha1.Machine) (*corev1.Node, error) {
	name := nodeClaim.Status.NodeName
	if name == "" && machine != nil {
		name = machine.ReportedNode().Name
	}
	if name == "" {
		return nil, nil
	}
	node := &corev1.Node{}
	if _, err := kube.Find(ctx, c.clusters.Tenant.Client, client.ObjectKey{Name: name}, node); err != nil {
		return nil, err
	}
	if node.Spec.ProviderID != nodeClaim.Status.ProviderID {
		return nil, nil // another node of that name, or none
	}
	return node, nil
}

func (c *Controller) isOfNodeClaim(machine *v1alpha1.Machine) bool {
	return c.clusters.Owns(machine) && machine.Labels[v1alpha1.NodeClaimLabelKey] != ""
}

func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("nodeclaim.status").
		// Core writes all conditions of a NodeClaim at once without comparing versions, and may overwrite ours.
		For(&karpv1.NodeClaim{}, builder.WithPredicates(kube.Changed(relevant))).
		WatchesRawSource(c.clusters.WatchMachines(func(_ context.Context, machine *v1alpha1.Machine) []reconcile.Request {
			return requestFor(machine.Labels[v1alpha1.NodeClaimLabelKey])
		}, predicate.NewPredicateFuncs(kube.Of(c.isOfNodeClaim)))).
		Watches(&corev1.Node{}, kube.Enqueue(nodeClaimOf), builder.WithPredicates(kube.Only(kube.Updates),
			kube.Changed(func(node *corev1.Node) corev1.ResourceList { return node.Status.Allocatable }))).
		Watches(&v1alpha1.MetalNodeClass{}, kube.Enqueue(c.nodeClaimsOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: kube.Concurrency}).
		Complete(c)
}

// relevant returns the parts of a NodeClaim that decide whether it is reconciled again.
func relevant(nodeClaim *karpv1.NodeClaim) (parts struct {
	ProviderID, NodeName             string
	Deleting, Initialized            bool
	ServerReady, Advertised, Planned metav1.Condition
}) {
	parts.ProviderID, parts.NodeName = nodeClaim.Status.ProviderID, nodeClaim.Status.NodeName
	parts.Deleting = !nodeClaim.DeletionTimestamp.IsZero()
	parts.Initialized = isInitialized(nodeClaim)
	parts.ServerReady = conditions.Find(nodeClaim.Status.Conditions, v1alpha1.ConditionServerReady)
	parts.Advertised = conditions.Find(nodeClaim.Status.Conditions, v1alpha1.ConditionResourcesAdvertised)
	parts.Planned = conditions.Find(nodeClaim.Status.Conditions, v1alpha1.ConditionNodeAsPlanned)
	return parts
}

// nodeClaimOf maps a Node to its NodeClaim, which has the name of its Machine.
func nodeClaimOf(_ context.Context, node *corev1.Node) []reconcile.Request {
	_, _, name, ours := v1alpha1.ParseProviderID(node.Spec.ProviderID)
	if !ours {
		return nil
	}
	return requestFor(name)
}

func requestFor(name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// newEvent returns an event with the reason of a condition, and with a message that the API server accepts.
func newEvent(object client.Object, reason, message string, dedupe ...string) events.Event {
	return events.Event{
		InvolvedObject: object, Type: v1alpha1.EventType(reason), Reason: reason,
		Message: conditions.Truncate(message, conditions.MaxEventNote), DedupeValues: dedupe,
	}
}
