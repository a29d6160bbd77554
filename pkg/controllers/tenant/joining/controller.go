// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package joining makes the tenant's Machines Nodes of the tenant: it issues the join token and the user data for the
// server, watches for the Node, notifies the manager, and revokes the token.
package joining

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// tokenValidity is how long a join token is valid at least, whenever its server uses it.
	tokenValidity = time.Hour
	// tokenRenewal is how often the token of a server that has not joined yet is renewed. Expiry times are multiples of
	// it, so that reconciles in between have nothing to write.
	tokenRenewal = 20 * time.Minute
	// timeValidity is how long the time of the tenant's API server counts without another read. Within it the
	// provider's clock may be set or stand still, so it is far below tokenValidity.
	timeValidity = time.Minute
)

// Controller lets the servers of the tenant's Machines join the tenant cluster.
type Controller struct {
	clock    clock.PassiveClock
	clusters tenant.Clusters
	ca       CASource
	version  VersionSource

	mu sync.Mutex
	// serverTime is the time of the tenant's API server, and readAt is when it was read, by the provider's clock.
	serverTime, readAt time.Time
}

// NewController constructs a joining controller. ca and version are the sources for the tenant cluster.
func NewController(clk clock.PassiveClock, clusters tenant.Clusters, ca CASource, version VersionSource) *Controller {
	return &Controller{clock: clk, clusters: clusters, ca: ca, version: version}
}

// Reconcile brings one Machine a step further. It decides only from what it reads, so the next run completes a run that
// crashed between two writes.
func (c *Controller) Reconcile(ctx context.Context, machine *v1alpha1.Machine) (reconcile.Result, error) {
	if !c.clusters.Owns(machine) {
		return reconcile.Result{}, nil
	}
	// 1. A Machine that is being deleted does not join. 2. It has joined before. The run that has seen it may have
	// failed before it revoked the token.
	if !machine.DeletionTimestamp.IsZero() || machine.ReportedNode().Name != "" {
		return reconcile.Result{}, c.revoke(ctx, machine)
	}
	// 3. It has no server that could join.
	if !meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionClaimed) || machine.Status.ProviderID == "" {
		return reconcile.Result{}, nil
	}
	node, err := c.clusters.NodeOf(ctx, machine.Status.ProviderID)
	if err != nil {
		return reconcile.Result{}, err
	}
	// 4. The Node has just registered. Write its name first: if the Node vanished between the two writes, a Machine
	// without the name would get a token again.
	if node != nil {
		if err := c.markJoined(ctx, machine, node); err != nil {
			return kube.RetryConflict(err)
		}
		return reconcile.Result{}, c.revoke(ctx, machine)
	}
	// 5. It has not joined yet.
	result, err := c.issue(ctx, machine)
	if err != nil {
		return kube.RetryConflict(err)
	}
	return result, nil
}

func (c *Controller) markJoined(ctx context.Context, machine *v1alpha1.Machine, node *corev1.Node) error {
	if err := kube.PatchOwn(ctx, c.clusters.Management.Client, machine, "writing the name of its node into", func() {
		machine.ReportNode(func(reported *v1alpha1.MachineNode) { reported.Name = node.Name })
	}); err != nil {
		return err
	}
	log.FromContext(ctx).Info("machine has joined", "node", node.Name, "providerID", machine.Status.ProviderID)
	return nil
}

func machineRef(machine *v1alpha1.Machine) v1alpha1.MachineReference {
	return v1alpha1.MachineReference{Namespace: machine.Namespace, Name: machine.Name, UID: machine.UID}
}

func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("machine.joining").
		WatchesRawSource(c.clusters.Watch(&v1alpha1.Machine{}, &handler.EnqueueRequestForObject{},
			predicate.NewPredicateFuncs(kube.Of(c.clusters.Owns)), kube.Changed(relevant))).
		// A registration is a Node that appears, or gets its provider ID. Nothing else about Nodes matters.
		Watches(&corev1.Node{}, kube.Enqueue(c.machineOf), builder.WithPredicates(kube.Only(kube.Creations|kube.Updates),
			kube.Changed(func(node *corev1.Node) string { return node.Spec.ProviderID }))).
		WithOptions(controller.Options{MaxConcurrentReconciles: kube.Concurrency}).
		Complete(reconcile.AsReconciler(c.clusters.Management.Client, c))
}

// relevant returns the parts of a Machine that could change its join. Each reconcile costs several live reads, and the
// status changes with each stage of the installation.
func relevant(machine *v1alpha1.Machine) (parts struct {
	Generation  int64
	Annotations map[string]string
	ProviderID  string
	Claimed     bool
}) {
	parts.Generation, parts.Annotations, parts.ProviderID = machine.Generation, machine.Annotations, machine.Status.ProviderID
	parts.Claimed = meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionClaimed)
	return parts
}

// machineOf maps a Node of this provider to its Machine.
func (c *Controller) machineOf(_ context.Context, node *corev1.Node) []reconcile.Request {
	_, _, name, ok := v1alpha1.ParseProviderID(node.Spec.ProviderID)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: c.clusters.MachineKey(name)}}
}
