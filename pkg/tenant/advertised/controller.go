// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package advertised

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Controller says of NodeClaims whose node advertises less than its type promises, what is missing.
type Controller struct {
	clock    clock.PassiveClock
	planes   tenant.Planes
	recorder events.Recorder
	grace    time.Duration

	lock sync.Mutex
	// since is when resources were first seen to be missing, by NodeClaim. A provider that starts anew begins anew: a
	// device plugin that starts again on a node that has long been up gets its time as well.
	since map[types.UID]time.Time
}

// NewController constructs a controller. A node has the grace to advertise everything.
func NewController(clk clock.PassiveClock, planes tenant.Planes, recorder events.Recorder, grace time.Duration) *Controller {
	return &Controller{clock: clk, planes: planes, recorder: recorder, grace: grace, since: map[types.UID]time.Time{}}
}

// Reconcile compares what the node of a NodeClaim advertises with what it is to advertise. It takes the name and not the
// object, because it has to see NodeClaims go.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	nodeClaim := &karpv1.NodeClaim{}
	if err := c.planes.Tenant.Client.Get(ctx, request.NamespacedName, nodeClaim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	// 1. Only NodeClaims of ours whose node has registered, and is to stay.
	_, _, _, ours := v1alpha1.ParseProviderID(nodeClaim.Status.ProviderID)
	if !ours || nodeClaim.Status.NodeName == "" || !nodeClaim.DeletionTimestamp.IsZero() {
		c.forget(nodeClaim.UID)
		return reconcile.Result{}, nil
	}
	node := &corev1.Node{}
	if err := c.planes.Tenant.Client.Get(ctx, client.ObjectKey{Name: nodeClaim.Status.NodeName}, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	// 2. Everything is there.
	lacks := missing(nodeClaim.Status.Capacity, node.Status.Allocatable)
	if len(lacks) == 0 {
		c.forget(nodeClaim.UID)
		if conditionOf(nodeClaim).Status != metav1.ConditionFalse {
			return reconcile.Result{}, nil
		}
		return c.tell(ctx, nodeClaim, node, metav1.ConditionTrue, v1alpha1.ReasonResourcesAdvertised, "node "+node.Name+" advertises all that its NodeType promises")
	}
	// 3. Something is missing, but not for long.
	if wait := c.missingSince(nodeClaim.UID).Add(c.grace).Sub(c.clock.Now()); wait > 0 && conditionOf(nodeClaim).Status != metav1.ConditionFalse {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	// 4. It is still missing.
	return c.tell(ctx, nodeClaim, node, metav1.ConditionFalse, v1alpha1.ReasonResourcesMissing,
		explain(node.Name, nodeClaim.Labels[corev1.LabelInstanceTypeStable], lacks, c.grace))
}

func (c *Controller) missingSince(nodeClaim types.UID) time.Time {
	c.lock.Lock()
	defer c.lock.Unlock()
	if _, known := c.since[nodeClaim]; !known {
		c.since[nodeClaim] = c.clock.Now()
	}
	return c.since[nodeClaim]
}

func (c *Controller) forget(nodeClaim types.UID) {
	c.lock.Lock()
	defer c.lock.Unlock()
	delete(c.since, nodeClaim)
}

// tell writes the condition and makes events of it, on the NodeClaim and on its node.
func (c *Controller) tell(ctx context.Context, nodeClaim *karpv1.NodeClaim, node *corev1.Node, is metav1.ConditionStatus, reason, message string) (reconcile.Result, error) {
	before := conditionOf(nodeClaim)
	if before.Status == is && before.Reason == reason && before.Message == message {
		return reconcile.Result{}, nil
	}
	stored := nodeClaim.DeepCopy()
	after := metav1.Condition{
		Type: v1alpha1.ConditionResourcesAdvertised, Status: is, Reason: reason, Message: message,
		LastTransitionTime: before.LastTransitionTime, ObservedGeneration: nodeClaim.Generation,
	}
	if before.Status != is {
		after.LastTransitionTime = metav1.NewTime(c.clock.Now())
	}
	setCondition(nodeClaim, after)
	if err := c.planes.Tenant.Client.Status().Patch(ctx, nodeClaim, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return tenant.RetryConflict(client.IgnoreNotFound(fmt.Errorf("writing the condition %s of nodeclaim %s, %w", after.Type, nodeClaim.Name, err)))
	}
	kind := corev1.EventTypeNormal
	if is == metav1.ConditionFalse {
		kind = corev1.EventTypeWarning
	}
	for _, object := range []client.Object{nodeClaim, node} {
		c.recorder.Publish(events.Event{
			InvolvedObject: object, Type: kind, Reason: reason, Message: message, DedupeValues: []string{object.GetName(), message},
		})
	}
	return reconcile.Result{}, nil
}

func conditionOf(nodeClaim *karpv1.NodeClaim) metav1.Condition {
	at := indexOf(nodeClaim)
	if at < 0 {
		return metav1.Condition{}
	}
	return metav1.Condition(nodeClaim.Status.Conditions[at])
}

func setCondition(nodeClaim *karpv1.NodeClaim, condition metav1.Condition) {
	if at := indexOf(nodeClaim); at >= 0 {
		nodeClaim.Status.Conditions[at] = status.Condition(condition)
		return
	}
	nodeClaim.Status.Conditions = append(nodeClaim.Status.Conditions, status.Condition(condition))
}

func indexOf(nodeClaim *karpv1.NodeClaim) int {
	return slices.IndexFunc(nodeClaim.Status.Conditions, func(condition status.Condition) bool {
		return condition.Type == v1alpha1.ConditionResourcesAdvertised
	})
}

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string {
	return "nodeclaim.advertised"
}

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpv1.NodeClaim{}, builder.WithPredicates(predicate.Funcs{
			// What core and others write into a NodeClaim does not bear on it, but that the node has registered does.
			UpdateFunc: func(e event.UpdateEvent) bool { return nodeOf(e.ObjectOld) != nodeOf(e.ObjectNew) },
		})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(claimOf), builder.WithPredicates(predicate.Funcs{
			CreateFunc:  func(event.CreateEvent) bool { return false },
			DeleteFunc:  func(event.DeleteEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return !equality.Semantic.DeepEqual(allocatable(e.ObjectOld), allocatable(e.ObjectNew))
			},
		})).
		Complete(c)
}

func nodeOf(object client.Object) string {
	if nodeClaim, ok := object.(*karpv1.NodeClaim); ok {
		return nodeClaim.Status.NodeName + "/" + string(conditionOf(nodeClaim).Status)
	}
	return ""
}

func allocatable(object client.Object) corev1.ResourceList {
	if node, ok := object.(*corev1.Node); ok {
		return node.Status.Allocatable
	}
	return nil
}

// claimOf maps a Node of ours to its NodeClaim, which has the name of its Machine.
func claimOf(_ context.Context, object client.Object) []reconcile.Request {
	node, ok := object.(*corev1.Node)
	if !ok {
		return nil
	}
	_, _, name, ours := v1alpha1.ParseProviderID(node.Spec.ProviderID)
	if !ours {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}
