// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package joining knows how a Machine of the tenant gets to be a Node of it: it hands the server the user data and
// the join token, sees the Node register, tells the manager, and takes the token away again.
package joining

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// tokenValidity is how long a join token is valid at least, whenever its server comes to use it.
	tokenValidity = time.Hour
	// tokenRenewal is how often the token of a server that has not joined yet is renewed. Expiry times are multiples
	// of it, so that the reconciles in between find nothing to write.
	tokenRenewal = 20 * time.Minute

	concurrentReconciles = 10
)

// Controller brings the tenant's Machines into the tenant.
type Controller struct {
	clock   clock.PassiveClock
	planes  tenant.Planes
	ca      CASource
	version VersionSource
}

// NewController constructs a joining controller. CA and version are those of the tenant cluster.
func NewController(clk clock.PassiveClock, planes tenant.Planes, ca CASource, version VersionSource) *Controller {
	return &Controller{clock: clk, planes: planes, ca: ca, version: version}
}

// Reconcile brings one Machine a step further. What it finds decides, not what an earlier run has done, so a crash
// between any two writes is made good by the next run.
func (c *Controller) Reconcile(ctx context.Context, machine *v1alpha1.Machine) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !c.planes.Owns(machine) {
		return reconcile.Result{}, nil
	}
	// 1. A Machine on its way out joins nothing any more.
	if !machine.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, c.withdraw(ctx, machine)
	}
	// 2. It has joined before; maybe the run that saw it did not get to the end.
	if machine.Annotations[v1alpha1.NodeNameAnnotationKey] != "" {
		return reconcile.Result{}, c.retireToken(ctx, machine)
	}
	// 3. Without a server there is nothing to join with yet.
	if !meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionClaimed) || machine.Status.ProviderID == "" {
		return reconcile.Result{}, nil
	}
	node, err := c.registeredNode(ctx, machine)
	if err != nil {
		return reconcile.Result{}, err
	}
	// 4. The Node has just registered. The annotation goes first, because it lasts: were the Node to vanish between
	// two writes, a Machine without it would be given a token again.
	if node != nil {
		if err := c.markJoined(ctx, machine, node); err != nil {
			return tenant.RetryConflict(err)
		}
		return reconcile.Result{}, c.retireToken(ctx, machine)
	}
	// 5. It has yet to join.
	result, err := c.invite(ctx, machine)
	if err != nil {
		return tenant.RetryConflict(err)
	}
	return result, nil
}

// registeredNode returns the Node that the Machine has become, or nil. A Node's name proves nothing; its provider ID,
// which the manager gave to this claim alone, does.
func (c *Controller) registeredNode(ctx context.Context, machine *v1alpha1.Machine) (*corev1.Node, error) {
	nodes := &corev1.NodeList{}
	if err := c.planes.Tenant.Client.List(ctx, nodes,
		client.MatchingFields{tenant.NodeProviderIDField: machine.Status.ProviderID}); err != nil {
		return nil, fmt.Errorf("listing the nodes with provider ID %s, %w", machine.Status.ProviderID, err)
	}
	for i := range nodes.Items {
		if node := &nodes.Items[i]; node.Spec.ProviderID == machine.Status.ProviderID && node.DeletionTimestamp.IsZero() {
			return node, nil
		}
	}
	return nil, nil
}

func (c *Controller) markJoined(ctx context.Context, machine *v1alpha1.Machine, node *corev1.Node) error {
	stored := machine.DeepCopy()
	if machine.Annotations == nil {
		machine.Annotations = map[string]string{}
	}
	machine.Annotations[v1alpha1.NodeNameAnnotationKey] = node.Name
	if err := c.planes.Management.Client.Patch(ctx, machine,
		client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("annotating machine %s with its node, %w", client.ObjectKeyFromObject(machine), err)
	}
	log.FromContext(ctx).Info("machine has joined", "node", node.Name, "providerID", machine.Status.ProviderID)
	return nil
}

func machineRef(machine *v1alpha1.Machine) bootstrap.MachineRef {
	return bootstrap.MachineRef{Namespace: machine.Namespace, Name: machine.Name, UID: machine.UID}
}

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string {
	return "machine.joining"
}

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(source.Kind(c.planes.Management.Cache, &v1alpha1.Machine{},
			&handler.TypedEnqueueRequestForObject[*v1alpha1.Machine]{},
			predicate.NewTypedPredicateFuncs(c.planes.Owns))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.machineOf), builder.WithPredicates(nodeEvents())).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentReconciles}).
		Complete(reconcile.AsReconciler(c.planes.Management.Client, c))
}

// machineOf maps a Node of ours to its Machine.
func (c *Controller) machineOf(_ context.Context, node client.Object) []reconcile.Request {
	_, _, name, ok := v1alpha1.ParseProviderID(node.(*corev1.Node).Spec.ProviderID)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: c.planes.TenantCluster.Namespace, Name: name}}}
}
