// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pendingpods knows why a pod has no server: for each NodeType, in words that whoever made the pod understands.
// Karpenter's own events speak of NodePools and offerings; what a finite fleet lacks is said here.
package pendingpods

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// settlePeriod is how soon a pod for which there is a server is looked at again: Karpenter is at work, and the
	// server may go to another pod.
	settlePeriod = 15 * time.Second
	// recheckPeriod is how soon a pod whose case is clear is looked at again. Servers come and go all the time, and
	// there may be thousands of pods: they are not all woken for each.
	recheckPeriod = time.Minute
	// repeatPeriod is how often a pod is told the same.
	repeatPeriod = 5 * time.Minute

	concurrentReconciles = 10
)

// Planned tells whether Karpenter has a NodeClaim in the making for a pod.
type Planned func(pod types.NamespacedName) bool

// Further looks for what keeps a pod from a server although some type that fits has one free. It returns the zero
// Explanation if it finds nothing.
type Further func(ctx context.Context, pod *corev1.Pod) (Explanation, error)

// Controller puts events on pods that no server can be had for.
type Controller struct {
	planes   tenant.Planes
	recorder events.Recorder
	planned  Planned
	further  []Further
}

// NewController constructs a controller of pending pods. The recorder writes to the tenant cluster. Planned may be
// nil, and then pods whose server is booting are told, too, that there is no other. The first of
// further that finds something is what the pod is told.
func NewController(planes tenant.Planes, recorder events.Recorder, planned Planned, further ...Further) *Controller {
	if planned == nil {
		planned = func(types.NamespacedName) bool { return false }
	}
	return &Controller{planes: planes, recorder: recorder, planned: planned, further: further}
}

// Reconcile tells one pod why it waits, if it waits in vain.
func (c *Controller) Reconcile(ctx context.Context, pod *corev1.Pod) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	// 1. Not a pod that a new server could serve.
	if !waits(pod) {
		return reconcile.Result{}, nil
	}
	// 2. Its server is on the way.
	if c.planned(client.ObjectKeyFromObject(pod)) {
		return reconcile.Result{RequeueAfter: recheckPeriod}, nil
	}
	// The items are shared with the cache and must not be changed; copying them for each pod would be most of the work.
	nodeTypes := &v1alpha1.NodeTypeList{}
	if err := c.planes.Management.Client.List(ctx, nodeTypes, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing NodeTypes, %w", err)
	}
	tenantCluster := &v1alpha1.TenantCluster{}
	if err := c.planes.Management.Client.Get(ctx, c.planes.TenantCluster, tenantCluster); err != nil {
		return reconcile.Result{}, fmt.Errorf("reading TenantCluster %s, %w", c.planes.TenantCluster, err)
	}
	explanation, hopeless := Explain(pod, nodeTypes.Items, tenantCluster.Allows)
	// 3. There is one, and still it cannot be had.
	for i := 0; i < len(c.further) && !hopeless; i++ {
		var err error
		if explanation, err = c.further[i](ctx, pod); err != nil {
			return reconcile.Result{}, err
		}
		hopeless = explanation != Explanation{}
	}
	// 4. There is a server for it, and Karpenter is at work.
	if !hopeless {
		return reconcile.Result{RequeueAfter: settlePeriod}, nil
	}
	// 5. There is none.
	c.recorder.Publish(events.Event{
		InvolvedObject: pod,
		Type:           corev1.EventTypeWarning,
		Reason:         explanation.Reason,
		Message:        explanation.Message,
		DedupeValues:   []string{string(pod.UID), explanation.Message},
		DedupeTimeout:  repeatPeriod,
	})
	return reconcile.Result{RequeueAfter: recheckPeriod}, nil
}

// waits tells whether a pod waits for a node that Karpenter could make. Pods with ResourceClaims ask for devices in
// another language than node types answer in.
func waits(pod *corev1.Pod) bool {
	return podutils.IsProvisionable(pod) && podutils.IsActive(pod) && len(pod.Spec.ResourceClaims) == 0
}

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string {
	return "pod.pending"
}

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
			pod, ok := object.(*corev1.Pod)
			return ok && waits(pod)
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentReconciles}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
