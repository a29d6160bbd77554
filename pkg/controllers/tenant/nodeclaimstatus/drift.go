// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaimstatus

import (
	"context"
	"fmt"
	"maps"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// reasonDrifted: a new server would be installed differently. An event on the NodeClaim.
	reasonDrifted = "ServerDrifted"
	// reasonDriftUnknown: it is not known how a new server would be installed. An event on the NodeClaim.
	reasonDriftUnknown = "ServerDriftUnknown"
)

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
	has := machine.Spec.Properties
	wanted := lo.OmitByKeys(class.Spec.Properties, []string{v1alpha1.PropertyServerName})
	if pin, pinned := has[v1alpha1.PropertyServerName]; pinned {
		wanted[v1alpha1.PropertyServerName] = pin
	}
	if !class.DeletionTimestamp.IsZero() || maps.Equal(wanted, has) {
		return nil
	}
	machine.Spec.Properties = has.InBothSpellings()
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

// nodeClaimsOf returns requests for the NodeClaims of a MetalNodeClass.
func (c *Controller) nodeClaimsOf(ctx context.Context, class client.Object) (requests []reconcile.Request) {
	nodeClaims := &karpv1.NodeClaimList{}
	// The read from the cache fails only when the process is stopping.
	if err := c.clusters.Tenant.Client.List(ctx, nodeClaims, client.MatchingFields{tenant.NodeClassNameField: class.GetName()}); err != nil {
		return nil
	}
	for i := range nodeClaims.Items {
		requests = append(requests, requestFor(nodeClaims.Items[i].Name)...)
	}
	return requests
}
