// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unschedulable writes events on Pods and NodePools that no server can serve, with the reason. Karpenter's own
// events name NodePools and offerings; these events name NodeTypes, requirements and the number of servers.
package unschedulable

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// schedulingPeriod is how soon a pod is checked again if a server matches it: Karpenter is working on it, and the
	// server may go to another pod.
	schedulingPeriod = 15 * time.Second
	// podPeriod is how soon any other pod is checked again. Servers come and go all the time, and reconciling thousands
	// of pods on each change would cost too much.
	podPeriod = time.Minute
	// repeatPeriod is how often an event of the same reason is written on a pod. The counts in it change all the time.
	repeatPeriod = 5 * time.Minute
)

// Planned reports whether Karpenter already has a NodeClaim for a pod, or plans it with devices of drivers. Then
// Karpenter knows why the pod waits: devices are not among the resources of NodeTypes. The explanation contains what
// Karpenter cannot know.
type Planned func(ctx context.Context, pod *corev1.Pod) (bool, explain.Explanation, error)

// PodController writes an event on pods that no available server fits.
type PodController struct {
	clusters tenant.Clusters
	recorder events.Recorder
	planned  Planned
	checks   []explain.Check
}

// NewPodController constructs a controller of pending pods. The recorder writes to the tenant cluster. If planned is
// nil, a pod whose server is booting may get an event, too. The first check that finds a reason decides.
func NewPodController(clusters tenant.Clusters, recorder events.Recorder, planned Planned,
	checks ...explain.Check) *PodController {
	if planned == nil {
		planned = func(context.Context, *corev1.Pod) (planned bool, why explain.Explanation, err error) { return }
	}
	return &PodController{clusters: clusters, recorder: recorder, planned: planned, checks: checks}
}

// Reconcile explains why one pod is pending.
func (c *PodController) Reconcile(ctx context.Context, pod *corev1.Pod) (reconcile.Result, error) {
	// 1. A new server would not help the pod.
	if !explain.Pending(pod) {
		return reconcile.Result{}, nil
	}
	// 2. It has a NodeClaim, or Karpenter itself reports why it has none.
	planned, explanation, err := c.planned(ctx, pod)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case planned && explanation == (explain.Explanation{}):
		return reconcile.Result{RequeueAfter: podPeriod}, nil
	case !planned:
		if explanation, err = c.explain(ctx, pod); err != nil {
			return reconcile.Result{}, err
		}
	}
	// 3. There is a server for it, and Karpenter is working on it.
	if explanation == (explain.Explanation{}) {
		return reconcile.Result{RequeueAfter: schedulingPeriod}, nil
	}
	// 4. There is none.
	warning := tenant.Warning(pod, explanation.Reason, explanation.Message)
	warning.DedupeValues, warning.DedupeTimeout = []string{string(pod.UID), explanation.Reason}, repeatPeriod
	c.recorder.Publish(warning)
	return reconcile.Result{RequeueAfter: podPeriod}, nil
}

// maxClosed is how many domains of other tenants a message names.
const maxClosed = 5

func (c *PodController) explain(ctx context.Context, pod *corev1.Pod) (explain.Explanation, error) {
	// The cache shares the items: do not change them. Copying them for each pod would be most of the work.
	nodeTypes, nodePools, classes := &v1alpha1.NodeTypeList{}, &karpv1.NodePoolList{}, &v1alpha1.MetalNodeClassList{}
	nodeClaims, machines := &karpv1.NodeClaimList{}, &v1alpha1.MachineList{}
	for _, each := range []struct {
		what   string
		list   client.ObjectList
		reader client.Reader
	}{
		{"NodeTypes", nodeTypes, c.clusters.Management.Client},
		{"NodePools", nodePools, c.clusters.Tenant.Client},
		{"MetalNodeClasses", classes, c.clusters.Tenant.Client},
		{"NodeClaims", nodeClaims, c.clusters.Tenant.Client},
	} {
		if err := each.reader.List(ctx, each.list, client.UnsafeDisableDeepCopy); err != nil {
			return explain.Explanation{}, fmt.Errorf("listing %s, %w", each.what, err)
		}
	}
	namespace := client.InNamespace(c.clusters.TenantCluster.Namespace)
	if err := c.clusters.Management.Client.List(ctx, machines, namespace, client.UnsafeDisableDeepCopy); err != nil {
		return explain.Explanation{}, fmt.Errorf("listing Machines, %w", err)
	}
	tenantCluster := &v1alpha1.TenantCluster{}
	if err := c.clusters.Management.Client.Get(ctx, c.clusters.TenantCluster, tenantCluster); err != nil {
		return explain.Explanation{}, fmt.Errorf("reading TenantCluster %s, %w", c.clusters.TenantCluster, err)
	}
	open, closed := instancetypes.OpenTo(machines.Items, nodeTypes.Items)
	fleet := explain.Fleet{
		Tenant: tenantCluster, NodeTypes: open, NodePools: nodePools.Items, NodeClasses: classes.Items,
		NodeClaims: nodeClaims.Items,
	}
	explanation, err := fleet.Pod(ctx, pod, c.checks...)
	if explanation.Reason == explain.ReasonNoServerAvailable && len(closed) > 0 {
		explanation.Message = conditions.Truncate(explanation.Message+"; counted as claimed is what is free in "+
			conditions.List(closed, maxClosed)+": other tenants have servers there", conditions.MaxEventNote)
	}
	return explanation, err
}

func (c *PodController) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("pod.pending").
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(kube.Of(explain.Pending)))).
		WithOptions(controller.Options{MaxConcurrentReconciles: kube.Concurrency}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// ReasonNoServerMatches: no server that the tenant may have could ever meet a requirement. An event on the NodePool.
const ReasonNoServerMatches = "NoServerMatches"

// nodePoolPeriod is how soon a NodePool is checked again: BareMetalHosts get labels, and NodeTypes are created.
const nodePoolPeriod = 5 * time.Minute

// Meets reports whether servers of one type that the NodePool could get meet each of the requirements. It returns an
// error if that is not known.
type Meets func(ctx context.Context, nodePool *karpv1.NodePool, requirements ...*labels.Requirement) (bool, error)

// NodePoolController writes an event on NodePools with a requirement that no server could meet. Core skips these
// NodePools without naming the requirement.
type NodePoolController struct {
	provider cloudprovider.CloudProvider
	meets    Meets
	recorder events.Recorder
}

func NewNodePoolController(provider cloudprovider.CloudProvider, meets Meets, recorder events.Recorder) *NodePoolController {
	return &NodePoolController{provider: provider, meets: meets, recorder: recorder}
}

// Reconcile checks the requirements of one NodePool.
func (c *NodePoolController) Reconcile(ctx context.Context, nodePool *karpv1.NodePool) (reconcile.Result, error) {
	if !nodePool.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	var unmet []events.Event
	for _, from := range nodePool.Spec.Template.Spec.Requirements {
		reason, message, err := c.check(ctx, nodePool, explain.NewRequirement(corev1.NodeSelectorRequirement{
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
	ctx context.Context, nodePool *karpv1.NodePool, requirement explain.Requirement,
) (reason, message string, err error) {
	if requirement.Requirement == nil {
		return "", "", nil // core's validation reports it
	}
	if requirement.Name == karpv1.CapacityTypeLabelKey {
		if instancetypes.CapacityTypeFor(instancetypes.OfNodePool(nodePool)) != "" {
			return "", "", nil
		}
		return explain.ReasonNoCapacityType, fmt.Sprintf("requirement %s allows neither %s nor %s, and servers are "+
			"nothing else: allow one of the two", requirement.Text, karpv1.CapacityTypeReserved, karpv1.CapacityTypeOnDemand), nil
	}
	together := []*labels.Requirement{requirement.Requirement}
	switch {
	case v1alpha1.IsTypeLabel(requirement.Name):
		// Whether a server of a type also matches this type depends on the type.
		for _, from := range nodePool.Spec.Template.Spec.Requirements {
			other := explain.NewRequirement(corev1.NodeSelectorRequirement{
				Key: from.Key, Operator: from.Operator, Values: from.Values,
			})
			if other.Requirement != nil && matching.NamesTypes(other.Name) {
				together = append(together, other.Requirement)
			}
		}
	case !karpv1.WellKnownLabels.Has(requirement.Name):
		return "", "", nil // the NodePool gives its nodes this label
	}
	met, err := c.meets(ctx, nodePool, together...)
	if err != nil || met {
		return "", "", err
	}
	return ReasonNoServerMatches, fmt.Sprintf("requirement %s is met by no server that this tenant may have: "+
		"correct it, or label the BareMetalHosts", requirement.Text), nil
}

func (c *NodePoolController) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("nodepool.check").
		For(&karpv1.NodePool{},
			builder.WithPredicates(nodepoolutils.IsManagedPredicateFuncs(c.provider), predicate.GenerationChangedPredicate{})).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
