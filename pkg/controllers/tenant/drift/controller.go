// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drift passes drift between the clusters. It writes the properties of a MetalNodeClass into the Machines of
// that class, so that the manager compares them with status.installed. It writes the manager's result onto the
// NodeClaim, where users see it. That change makes core check for drift at once instead of within five minutes.
package drift

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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

const (
	// reasonDrifted: a new server would be installed differently. An event on the NodeClaim.
	reasonDrifted = "ServerDrifted"
	// reasonDriftUnknown: it is not known how a new server would be installed. An event on the NodeClaim.
	reasonDriftUnknown = "ServerDriftUnknown"
)

// Controller passes drift between the Machines and the NodeClaims of one tenant.
type Controller struct {
	clusters tenant.Clusters
	recorder events.Recorder
}

func NewController(clusters tenant.Clusters, recorder events.Recorder) *Controller {
	return &Controller{clusters: clusters, recorder: recorder}
}

// Reconcile compares one Machine with its class and its NodeClaim.
func (c *Controller) Reconcile(ctx context.Context, machine *v1alpha1.Machine) (reconcile.Result, error) {
	// 1. Only Machines that were created for a NodeClaim that is not being deleted.
	if !c.clusters.Owns(machine) || machine.Labels[v1alpha1.NodeClaimLabelKey] == "" || !machine.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	nodeClaim := &karpv1.NodeClaim{}
	if err := c.clusters.Tenant.Client.Get(ctx, client.ObjectKey{Name: machine.Labels[v1alpha1.NodeClaimLabelKey]}, nodeClaim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !nodeClaim.DeletionTimestamp.IsZero() || nodeClaim.Status.ProviderID == "" || nodeClaim.Status.ProviderID != machine.Status.ProviderID {
		return reconcile.Result{}, nil
	}
	// 2. The spec of the Machine follows its class. The manager does not install it again, but compares it.
	err := c.writeProperties(ctx, machine, nodeClaim)
	if err == nil {
		// 3. The NodeClaim gets the result.
		err = c.writeDrift(ctx, machine, nodeClaim)
	}
	return kube.RetryConflict(client.IgnoreNotFound(err))
}

// writeProperties writes the properties of the class into the Machine. As in any Kubernetes object, the spec is the
// desired state; status.installed is what the Machine was installed with. The manager cannot read classes, so without
// this write it would never learn of a changed class. A pin stays as it was: this Machine already has its server.
func (c *Controller) writeProperties(ctx context.Context, machine *v1alpha1.Machine, nodeClaim *karpv1.NodeClaim) error {
	reference := nodeClaim.Spec.NodeClassRef
	if reference == nil {
		return nil
	}
	class := &v1alpha1.MetalNodeClass{}
	if err := c.clusters.Tenant.Client.Get(ctx, client.ObjectKey{Name: reference.Name}, class); err != nil {
		return client.IgnoreNotFound(err)
	}
	has := v1alpha1.ByCanonicalKey(machine.Spec.Properties)
	wanted := maps.Clone(v1alpha1.ByCanonicalKey(class.Spec.Properties))
	delete(wanted, v1alpha1.PropertyServerName)
	if pin, pinned := has[v1alpha1.PropertyServerName]; pinned {
		if wanted == nil {
			wanted = map[string]string{}
		}
		wanted[v1alpha1.PropertyServerName] = pin
	}
	if !class.DeletionTimestamp.IsZero() || maps.Equal(wanted, has) {
		return nil
	}
	return kube.Patch(ctx, c.clusters.Management.Client, machine, "writing the properties of MetalNodeClass "+class.Name+" into",
		func() { machine.Spec.Properties = wanted })
}

// writeDrift writes the condition Drifted of the Machine onto the NodeClaim. The change makes core check for drift.
func (c *Controller) writeDrift(ctx context.Context, machine *v1alpha1.Machine, nodeClaim *karpv1.NodeClaim) error {
	why := ""
	condition := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionDrifted)
	if condition != nil && condition.Status != metav1.ConditionFalse {
		why = condition.Reason + ": " + condition.Message
	}
	if nodeClaim.Annotations[v1alpha1.DriftAnnotationKey] == why {
		return nil
	}
	before := nodeClaim.DeepCopy()
	if why == "" {
		delete(nodeClaim.Annotations, v1alpha1.DriftAnnotationKey)
	} else {
		metav1.SetMetaDataAnnotation(&nodeClaim.ObjectMeta, v1alpha1.DriftAnnotationKey, why)
	}
	if err := c.clusters.Tenant.Client.Patch(ctx, nodeClaim, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("writing onto nodeclaim %s that its server has drifted, %w", nodeClaim.Name, err)
	}
	if why == "" {
		return nil
	}
	drifted := tenant.Warning(nodeClaim, reasonDriftUnknown, why)
	if condition.Status == metav1.ConditionTrue {
		drifted.Type, drifted.Reason = corev1.EventTypeNormal, reasonDrifted
	}
	c.recorder.Publish(drifted)
	return nil
}

func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("machine.drift").
		WatchesRawSource(c.clusters.Watch(&v1alpha1.Machine{}, &handler.EnqueueRequestForObject{},
			kube.Only(kube.Creations|kube.Updates), kube.Changed(relevant))).
		// A NodeClaim has its Machine from its launch on.
		Watches(&karpv1.NodeClaim{}, kube.Enqueue(c.clusters.MachineOf), builder.WithPredicates(kube.Only(kube.Updates),
			kube.Changed(func(nodeClaim *karpv1.NodeClaim) string { return nodeClaim.Status.ProviderID }))).
		Watches(&v1alpha1.MetalNodeClass{}, kube.Enqueue(c.machinesOf),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: kube.Concurrency}).
		Complete(reconcile.AsReconciler(c.clusters.Management.Client, c))
}

// relevant returns the parts of a Machine that decide whether it is reconciled again.
func relevant(machine *v1alpha1.Machine) (parts struct {
	Properties map[string]string
	Drifted    metav1.Condition
}) {
	drifted := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionDrifted)
	parts.Properties = machine.Spec.Properties
	parts.Drifted = metav1.Condition{Status: drifted.Status, Reason: drifted.Reason, Message: drifted.Message}
	return parts
}

// machinesOf maps a MetalNodeClass to the Machines of that class.
func (c *Controller) machinesOf(ctx context.Context, class client.Object) []reconcile.Request {
	nodeClaims := &karpv1.NodeClaimList{}
	// The read from the cache fails only when the process is stopping.
	if err := c.clusters.Tenant.Client.List(ctx, nodeClaims, client.MatchingFields{tenant.NodeClassNameField: class.GetName()}); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range nodeClaims.Items {
		requests = append(requests, c.clusters.MachineOf(ctx, &nodeClaims.Items[i])...)
	}
	return requests
}
