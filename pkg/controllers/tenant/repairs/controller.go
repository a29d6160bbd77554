// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package repairs has servers replaced and rebooted on request from the tenant cluster: a user sets an annotation on
// the NodeClaim, or NVSentinel's label provider sets labels on the Node. Karpenter's core does both, as in node repair.
package repairs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/breaker"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Labels are the Node labels, as key=value, that NVSentinel's label provider sets to request a reboot or another
// server. An empty label requests nothing.
type Labels struct {
	Reboot, Terminate string
}

// DefaultLabels returns the defaults of NVSentinel.
func DefaultLabels() Labels {
	return Labels{Reboot: "nke.nvidia.com/reboot=requested-by-nvsentinel", Terminate: "nke.nvidia.com/terminate=requested-by-nvsentinel"}
}

// Check returns an error if the value of a flag is neither empty nor a label as key=value.
func Check(flag, label string) error {
	key, value, found := strings.Cut(label, "=")
	wrong := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
	if label == "" || (found && value != "" && len(wrong) == 0) {
		return nil
	}
	return fmt.Errorf("--%s is %q: it must be empty or a label as key=value, such as %s %s", flag, label, DefaultLabels().Reboot,
		strings.Join(wrong, ", "))
}

// asks reports whether a Node has the label.
func asks(node *corev1.Node, label string) bool {
	key, value, _ := strings.Cut(label, "=")
	return label != "" && node.Labels[key] == value
}

// Controller serves the requests.
type Controller struct {
	clock    clock.PassiveClock
	clusters tenant.Clusters
	recorder events.Recorder
	labels   Labels
	// replaced are the NodeClaims that were deleted for an issue. The controller has one worker.
	replaced breaker.Recent
}

// NewController constructs a controller.
func NewController(clk clock.PassiveClock, clusters tenant.Clusters, recorder events.Recorder, labels Labels) *Controller {
	return &Controller{clock: clk, clusters: clusters, recorder: recorder, labels: labels}
}

// Reconcile looks at one NodeClaim and its Node.
func (c *Controller) Reconcile(ctx context.Context, nodeClaim *karpv1.NodeClaim) (reconcile.Result, error) {
	if !nodeClaim.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	// 1. A user has reported an issue. The provider records it on the Machine before the server is released.
	if _, reported := nodeClaim.Annotations[v1alpha1.ReportIssueAnnotationKey]; reported {
		held, err := c.replace(ctx, nodeClaim)
		if err == nil && held {
			return reconcile.Result{RequeueAfter: heldPeriod}, nil
		}
		return kube.RetryConflict(err)
	}
	if nodeClaim.Status.NodeName == "" {
		return reconcile.Result{}, nil
	}
	node := &corev1.Node{}
	if found, err := kube.Find(ctx, c.clusters.Tenant.Client, client.ObjectKey{Name: nodeClaim.Status.NodeName}, node); err != nil || !found {
		return reconcile.Result{}, err
	}
	_, begun := node.Annotations[v1alpha1.RebootBootIDAnnotationKey]
	var err error
	switch {
	// 2. NVSentinel requests another server.
	case asks(node, c.labels.Terminate):
		err = kube.Patch(ctx, c.clusters.Tenant.Client, nodeClaim, "reporting the issue of", func() {
			nodeClaim.Annotations = lo.Assign(nodeClaim.Annotations, map[string]string{
				v1alpha1.ReportIssueAnnotationKey: "node " + node.Name + " has the label " + c.labels.Terminate})
		})
	// 3. NVSentinel requests a reboot, or its last reboot is not over. Core goes on by itself.
	case (begun || asks(node, c.labels.Reboot)) && !rebooting(nodeClaim):
		err = c.reboot(ctx, nodeClaim)
	}
	return kube.RetryConflict(client.IgnoreNotFound(err))
}

func rebooting(nodeClaim *karpv1.NodeClaim) bool {
	return nodeClaim.StatusConditions(status.WithObservedOnly()).Get(karpv1.ConditionTypeRebooting).IsTrue()
}

const (
	// reasonReplacementHeld: issues of many servers are reported, and the NodeClaim is deleted later. An event on it.
	reasonReplacementHeld = "ReplacementHeld"
	// heldPeriod is how often a NodeClaim with a held replacement is checked.
	heldPeriod = time.Minute
)

// replace deletes a NodeClaim if the API server confirms that an issue is reported, unless too many NodeClaims have
// issues. Karpenter drains the node.
func (c *Controller) replace(ctx context.Context, nodeClaim *karpv1.NodeClaim) (held bool, err error) {
	found, err := kube.Find(ctx, c.clusters.Tenant.Live, client.ObjectKeyFromObject(nodeClaim), nodeClaim)
	if err != nil || !found {
		return false, err
	}
	if _, reported := nodeClaim.Annotations[v1alpha1.ReportIssueAnnotationKey]; !reported || !nodeClaim.DeletionTimestamp.IsZero() {
		return false, nil
	}
	all := &karpv1.NodeClaimList{}
	if err := c.clusters.Tenant.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("counting NodeClaims that are replaced, %w", err)
	}
	now, exist := c.clock.Now(), len(all.Items)
	if c.replaced == nil {
		c.replaced = breaker.Recent{}
		for i := range all.Items {
			other := &all.Items[i]
			if _, reported := other.Annotations[v1alpha1.ReportIssueAnnotationKey]; reported && !other.DeletionTimestamp.IsZero() {
				c.replaced[other.UID] = now // an earlier process deleted it
			}
		}
	}
	_, again := c.replaced[nodeClaim.UID] // a write has failed
	if gone, limit := c.replaced.Count(now), breaker.Limit(exist); gone >= limit && !again {
		c.recorder.Publish(tenant.Warning(nodeClaim, reasonReplacementHeld, fmt.Sprintf("an issue is reported, as of %d other nodes within %v. "+
			"More than %d of %d at once look like a mistake or a fault that they share, so it is replaced later. Remove the annotation %s if "+
			"nothing is wrong with it, or delete the NodeClaim to replace it now", gone, breaker.Window, limit, exist,
			v1alpha1.ReportIssueAnnotationKey)))
		return true, nil
	}
	c.replaced[nodeClaim.UID] = now
	return false, kube.Delete(ctx, c.clusters.Tenant.Client, nodeClaim, "replacing")
}

// reboot has core reboot a node that is not being rebooted, once for each request, in three writes: the boot ID at the
// request, the commitment on the NodeClaim, which core serves and ends, and the removal of the request with the boot
// ID. If the NodeClaim has changed since the cache saw it, that is a conflict: its reboot may have begun, or ended.
func (c *Controller) reboot(ctx context.Context, nodeClaim *karpv1.NodeClaim) error {
	// Core has seen the new boot when it ends a reboot, but the cache may not have.
	node := &corev1.Node{}
	if err := c.clusters.Tenant.Live.Get(ctx, client.ObjectKey{Name: nodeClaim.Status.NodeName}, node); err != nil {
		return fmt.Errorf("reading node %s to reboot it, %w", nodeClaim.Status.NodeName, err)
	}
	asked, boot := asks(node, c.labels.Reboot), node.Status.NodeInfo.BootID
	before, begun := node.Annotations[v1alpha1.RebootBootIDAnnotationKey]
	switch {
	case begun && (before != boot || !asked):
		key, _, _ := strings.Cut(c.labels.Reboot, "=")
		return kube.Patch(ctx, c.clusters.Tenant.Client, node, "removing the request to reboot from", func() {
			delete(node.Annotations, v1alpha1.RebootBootIDAnnotationKey)
			if asked {
				delete(node.Labels, key)
			}
		})
	case begun:
		return c.commit(ctx, nodeClaim)
	case asked && boot != "":
		return kube.Patch(ctx, c.clusters.Tenant.Client, node, "noting the boot of", func() {
			node.Annotations = lo.Assign(node.Annotations, map[string]string{v1alpha1.RebootBootIDAnnotationKey: boot})
		})
	}
	return nil
}

// commit requests a reboot from core's reboot controller, as core's node repair does. NVSentinel has drained the node.
func (c *Controller) commit(ctx context.Context, nodeClaim *karpv1.NodeClaim) error {
	if err := kube.Patch(ctx, c.clusters.Tenant.Client, nodeClaim, "setting how long a reboot waits for pods on", func() {
		nodeClaim.Annotations = lo.Assign(nodeClaim.Annotations, map[string]string{karpv1.RebootTerminationGracePeriodAnnotationKey: "0s"})
	}); err != nil {
		return err
	}
	unchanged := nodeClaim.DeepCopy()
	nodeClaim.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeRebooting, karpv1.RebootReasonRequested,
		"rebooting for the label "+c.labels.Reboot)
	return kube.PatchStatus(ctx, c.clusters.Tenant.Client, unchanged, nodeClaim)
}

// Name returns the name of the controller.
func (*Controller) Name() string { return "nodeclaim.repairs" }

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	requests := func(_ context.Context, node *corev1.Node) []reconcile.Request {
		_, _, name, ours := v1alpha1.ParseProviderID(node.Spec.ProviderID)
		_, begun := node.Annotations[v1alpha1.RebootBootIDAnnotationKey]
		if !ours || (!begun && !asks(node, c.labels.Reboot) && !asks(node, c.labels.Terminate)) {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
	}
	return controllerruntime.NewControllerManagedBy(m).Named(c.Name()).
		For(&karpv1.NodeClaim{}, builder.WithPredicates(kube.Only(kube.Creations|kube.Updates),
			predicate.Or[client.Object](predicate.AnnotationChangedPredicate{}, kube.Changed(rebooting)))).
		Watches(&corev1.Node{}, kube.Enqueue(requests), builder.WithPredicates(kube.Only(kube.Creations|kube.Updates))).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
