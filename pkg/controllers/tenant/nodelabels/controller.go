// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodelabels puts the labels that have two keys onto nodes of earlier versions, which have them under the key of the reference
// alone. Otherwise a NodePool that requires such a label by our key would have these nodes replaced, and pods that select by it would not
// be bound to them.
package nodelabels

import (
	"context"
	"errors"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Controller labels the NodeClaims and Nodes of one tenant.
type Controller struct {
	clusters tenant.Clusters
}

func NewController(clusters tenant.Clusters) *Controller { return &Controller{clusters: clusters} }

// Reconcile labels the NodeClaim and the Node of one Machine. Labels that are there stay as they are.
func (c *Controller) Reconcile(ctx context.Context, machine *v1alpha1.Machine) (reconcile.Result, error) {
	missing := v1alpha1.OtherSpellings(machine.Status.NodeLabels)
	if len(missing) == 0 || !c.clusters.Owns(machine) || machine.Status.ProviderID == "" || !machine.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	nodeClaim, node := &karpv1.NodeClaim{}, &corev1.Node{}
	return kube.RetryConflict(errors.Join(
		c.label(ctx, machine.Labels[v1alpha1.NodeClaimLabelKey], nodeClaim, missing,
			func() bool { return nodeClaim.Status.ProviderID == machine.Status.ProviderID }),
		c.label(ctx, machine.ReportedNode().Name, node, missing,
			func() bool { return node.Spec.ProviderID == machine.Status.ProviderID })))
}

// label adds labels to the object of that name, if there is one and it is that of the Machine.
func (c *Controller) label(ctx context.Context, name string, object client.Object, missing map[string]string, isOurs func() bool) error {
	if name == "" {
		return nil
	}
	found, err := kube.Find(ctx, c.clusters.Tenant.Client, client.ObjectKey{Name: name}, object)
	if err != nil || !found || !isOurs() || !object.GetDeletionTimestamp().IsZero() {
		return err
	}
	labels := lo.Assign(missing, object.GetLabels())
	if len(labels) == len(object.GetLabels()) {
		return nil
	}
	return client.IgnoreNotFound(kube.Patch(ctx, c.clusters.Tenant.Client, object, "labelling", func() { object.SetLabels(labels) }))
}

func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("node.labels").
		WatchesRawSource(c.clusters.Watch(&v1alpha1.Machine{}, &handler.EnqueueRequestForObject{},
			kube.Only(kube.Creations|kube.Updates), kube.Changed(func(machine *v1alpha1.Machine) [2]string {
				return [2]string{machine.Status.ProviderID, machine.ReportedNode().Name}
			}))).
		Complete(reconcile.AsReconciler(c.clusters.Management.Client, c))
}
