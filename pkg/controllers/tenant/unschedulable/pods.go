// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unschedulable writes events on Pods and NodePools that no server can serve, with the reason. Karpenter's own
// events name NodePools and offerings; these name NodeTypes, requirements and the number of servers.
package unschedulable

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

const (
	// schedulingPeriod is how soon a pod for which there is a server is checked again: Karpenter is working on it, and the
	// server may go to another pod.
	schedulingPeriod = 15 * time.Second
	// podPeriod is how soon any other pod is checked again. Servers come and go all the time, and reconciling thousands of
	// pods on each change would cost too much.
	podPeriod = time.Minute
	// repeatPeriod is how often an event of the same reason is written on a pod. The counts in its message change all the time.
	repeatPeriod = 5 * time.Minute

	// notLaunchedYet is core's reason of the condition Launched until the first attempt has failed.
	notLaunchedYet = "AwaitingReconciliation"
)

// Planned returns whether Karpenter has a NodeClaim for a pod already.
type Planned func(pod types.NamespacedName) bool

// Check looks for another reason that a pod gets no server, although a NodeType that fits has a free one. It returns the
// zero Explanation if it finds none.
type Check func(ctx context.Context, pod *corev1.Pod) (Explanation, error)

// PodController writes an event on pods for which no server is available.
type PodController struct {
	clusters tenant.Clusters
	settings instancetypes.Settings
	recorder events.Recorder
	planned  Planned
	checks   []Check
}

// NewPodController constructs a controller of pending pods. The settings are those of the instance types.
// The recorder writes to the tenant cluster. Without planned, a
// pod whose server is booting gets an event too if there is no other server. The first check that finds a reason decides.
func NewPodController(clusters tenant.Clusters, settings instancetypes.Settings, recorder events.Recorder, planned Planned,
	checks ...Check) *PodController {
	if planned == nil {
		planned = func(types.NamespacedName) bool { return false }
	}
	return &PodController{clusters: clusters, settings: settings, recorder: recorder, planned: planned, checks: checks}
}

// Reconcile explains why one pod is pending.
func (c *PodController) Reconcile(ctx context.Context, pod *corev1.Pod) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	// 1. A new server would not help the pod.
	if !isPending(pod) {
		return reconcile.Result{}, nil
	}
	// 2. It has a NodeClaim.
	if c.planned(client.ObjectKeyFromObject(pod)) {
		return reconcile.Result{RequeueAfter: podPeriod}, nil
	}
	explanation, err := c.explain(ctx, pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	// 3. There is a server for it, and Karpenter is working on it.
	if explanation == (Explanation{}) {
		return reconcile.Result{RequeueAfter: schedulingPeriod}, nil
	}
	// 4. There is none.
	warning := tenant.Warning(pod, explanation.Reason, explanation.Message)
	warning.DedupeValues, warning.DedupeTimeout = []string{string(pod.UID), explanation.Reason}, repeatPeriod
	c.recorder.Publish(warning)
	return reconcile.Result{RequeueAfter: podPeriod}, nil
}

func (c *PodController) explain(ctx context.Context, pod *corev1.Pod) (Explanation, error) {
	// Free servers do not change this, so it comes first.
	if explanation, err := c.noCapacityType(ctx, pod); err != nil || explanation != (Explanation{}) {
		return explanation, err
	}
	// The items are shared with the cache and must not be changed. Copying them for each pod would be most of the work.
	nodeTypes := &v1alpha1.NodeTypeList{}
	if err := c.clusters.Management.Client.List(ctx, nodeTypes, client.UnsafeDisableDeepCopy); err != nil {
		return Explanation{}, fmt.Errorf("listing NodeTypes, %w", err)
	}
	tenantCluster := &v1alpha1.TenantCluster{}
	if err := c.clusters.Management.Client.Get(ctx, c.clusters.TenantCluster, tenantCluster); err != nil {
		return Explanation{}, fmt.Errorf("reading TenantCluster %s, %w", c.clusters.TenantCluster, err)
	}
	kubelets, err := c.kubelets(ctx)
	if err != nil {
		return Explanation{}, err
	}
	if explanation, found := Explain(pod, nodeTypes.Items, tenantCluster.Allows, kubelets...); found {
		return explanation, nil
	}
	if explanation, err := c.waitingForNodeClaim(ctx); err != nil || explanation != (Explanation{}) {
		return explanation, err
	}
	for _, check := range c.checks {
		if explanation, err := check(ctx, pod); err != nil || explanation != (Explanation{}) {
			return explanation, err
		}
	}
	return Explanation{}, nil
}

// waitingForNodeClaim names a NodeClaim that could not be launched and is tried again. While there is one, Karpenter creates
// no NodeClaim for any pod, and says so in its log only.
func (c *PodController) waitingForNodeClaim(ctx context.Context) (Explanation, error) {
	nodeClaims := &karpenterv1.NodeClaimList{}
	if err := c.clusters.Tenant.Client.List(ctx, nodeClaims, client.UnsafeDisableDeepCopy); err != nil {
		return Explanation{}, fmt.Errorf("listing NodeClaims, %w", err)
	}
	for i := range nodeClaims.Items {
		nodeClaim := &nodeClaims.Items[i]
		launched := conditions.Find(nodeClaim.Status.Conditions, karpenterv1.ConditionTypeLaunched)
		if nodeClaim.Status.ProviderID != "" || !nodeClaim.DeletionTimestamp.IsZero() || launched.Status != metav1.ConditionUnknown ||
			launched.Reason == "" || launched.Reason == notLaunchedYet {
			continue
		}
		return Explanation{Reason: ReasonWaitingForNodeClaim, Message: conditions.Truncate(fmt.Sprintf(
			"Karpenter creates no NodeClaim for any pod while NodeClaim %s has no server: %s: %s", nodeClaim.Name, launched.Reason,
			launched.Message), conditions.MaxEventNote)}, nil
	}
	return Explanation{}, nil
}

// kubelets are those of the tenant's classes.
func (c *PodController) kubelets(ctx context.Context) ([]capacity.Kubelet, error) {
	classes := &v1alpha1.MetalNodeClassList{}
	if err := c.clusters.Tenant.Client.List(ctx, classes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MetalNodeClasses, %w", err)
	}
	var kubelets []capacity.Kubelet
	for i := range classes.Items {
		// Core makes no NodeClaim of a class with wrong arguments, because it is not ready.
		if kubelet, err := capacity.ParseKubelet(classes.Items[i].Spec.KubeletArgs); err == nil {
			kubelets = append(kubelets, kubelet)
		}
	}
	return kubelets, nil
}

// isPending returns whether a pod waits for a node that Karpenter could create. Pods with ResourceClaims are left out: the
// devices that they ask for are not among the resources of NodeTypes.
func isPending(pod *corev1.Pod) bool {
	return podutils.IsProvisionable(pod) && podutils.IsActive(pod) && len(pod.Spec.ResourceClaims) == 0
}

// Name implements Karpenter's controller interface.
func (c *PodController) Name() string { return "pod.pending" }

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *PodController) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(controllers.Of(isPending)))).
		WithOptions(controller.Options{MaxConcurrentReconciles: controllers.Concurrency}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// Reasons of the events on NodePools.
const (
	// ReasonNoCapacityType: the NodePool allows no capacity type that servers can have. On a pod: no NodePool has the one that it
	// selects.
	ReasonNoCapacityType = "NoCapacityType"
	// ReasonNoServerMatches: no server that the tenant may have could ever meet a requirement of the NodePool.
	ReasonNoServerMatches = "NoServerMatches"
)

// nodePoolPeriod is how soon a NodePool is checked again: BareMetalHosts get labels, and NodeTypes are created.
const nodePoolPeriod = 5 * time.Minute

// Meets returns whether servers of some type that a NodePool could have meet each of the requirements. An error means that this is not
// known.
type Meets func(ctx context.Context, nodePool *karpenterv1.NodePool, requirements ...*labels.Requirement) (bool, error)

// NodePoolController writes an event on NodePools with a requirement that no server could meet. Core skips such a
// NodePool without naming the requirement.
type NodePoolController struct {
	provider cloudprovider.CloudProvider
	meets    Meets
	recorder events.Recorder
}

// NewNodePoolController constructs a controller.
func NewNodePoolController(provider cloudprovider.CloudProvider, meets Meets, recorder events.Recorder) *NodePoolController {
	return &NodePoolController{provider: provider, meets: meets, recorder: recorder}
}

// Name implements Karpenter's controller interface.
func (c *NodePoolController) Name() string { return "nodepool.check" }

// Reconcile checks the requirements of one NodePool.
func (c *NodePoolController) Reconcile(ctx context.Context, nodePool *karpenterv1.NodePool) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !nodePool.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	var unmet []events.Event
	for _, from := range nodePool.Spec.Template.Spec.Requirements {
		reason, message, err := c.check(ctx, nodePool, newRequirement(corev1.NodeSelectorRequirement{
			Key: from.Key, Operator: from.Operator, Values: from.Values,
		}))
		if err != nil {
			return reconcile.Result{}, err
		}
		if reason != "" {
			unmet = append(unmet, tenant.Warning(nodePool, reason, message))
		}
	}
	c.recorder.Publish(unmet...)
	return reconcile.Result{RequeueAfter: nodePoolPeriod}, nil
}

// check returns why a requirement keeps a NodePool from ever having a node. The reason is empty if it does not.
func (c *NodePoolController) check(
	ctx context.Context, nodePool *karpenterv1.NodePool, one requirement,
) (reason, message string, err error) {
	if one.Requirement == nil {
		return "", "", nil // core's validation reports it
	}
	if one.key == karpenterv1.CapacityTypeLabelKey {
		for _, possible := range []string{karpenterv1.CapacityTypeReserved, karpenterv1.CapacityTypeOnDemand} {
			if one.Matches(labels.Set{one.key: possible}) {
				return "", "", nil
			}
		}
		return ReasonNoCapacityType, fmt.Sprintf("requirement %s allows neither %s nor %s, and servers are nothing else: allow one of the two",
			one.text, karpenterv1.CapacityTypeReserved, karpenterv1.CapacityTypeOnDemand), nil
	}
	together := []*labels.Requirement{one.Requirement}
	switch {
	case v1alpha1.IsTypeLabel(one.key):
		// Which types have servers that match this one too depends on the type.
		for _, from := range nodePool.Spec.Template.Spec.Requirements {
			other := newRequirement(corev1.NodeSelectorRequirement{Key: from.Key, Operator: from.Operator, Values: from.Values})
			if other.Requirement != nil && (other.key == v1alpha1.NodeTypeLabelKey || other.key == corev1.LabelInstanceTypeStable) {
				together = append(together, other.Requirement)
			}
		}
	case !karpenterv1.WellKnownLabels.Has(one.key):
		return "", "", nil // the NodePool gives its nodes this label
	}
	met, err := c.meets(ctx, nodePool, together...)
	if err != nil || met {
		return "", "", err
	}
	return ReasonNoServerMatches, fmt.Sprintf("requirement %s is met by no server that this tenant may have: "+
		"correct it, or label the BareMetalHosts", one.text), nil
}

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *NodePoolController) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpenterv1.NodePool{},
			builder.WithPredicates(nodepoolutils.IsManagedPredicateFuncs(c.provider), predicate.GenerationChangedPredicate{})).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
