// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tohost

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/settings"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/vcluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// finalize deletes the copy of an object that the tenant has deleted, and lets the object go once the copy is gone. The
// host keeps a claim that a pod uses; so does then the tenant.
func (c *Controller[T]) finalize(ctx context.Context, s settings.Settings, object, copied T, ours bool, name string) (reconcile.Result, error) {
	if ours {
		if err := c.release(ctx, copied); err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, c.flowBack(ctx, s, object, copied)
	}
	if name != "" {
		live, found, err := c.get(ctx, c.planes.Management.Live, c.hostKey(name), "on the host")
		if err != nil {
			return reconcile.Result{}, err
		}
		if found && c.owns(live, object) {
			// The cache is behind.
			return reconcile.Result{RequeueAfter: tenant.ConflictRetry}, nil
		}
	}
	stored := object.DeepCopyObject().(T)
	controllerutil.RemoveFinalizer(object, Finalizer)
	if err := c.planes.Tenant.Client.Patch(ctx, object, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("removing the finalizer of %s %s in the tenant, %w", c.kind.Kind, client.ObjectKeyFromObject(object), err))
	}
	return reconcile.Result{}, nil
}

// release deletes a copy, in two steps: what others still need it for stays until they let it go.
func (c *Controller[T]) release(ctx context.Context, copied T) error {
	key := client.ObjectKeyFromObject(copied)
	if copied.GetDeletionTimestamp().IsZero() {
		uid := copied.GetUID()
		if err := c.planes.Management.Client.Delete(ctx, copied, client.Preconditions{UID: &uid}); err != nil {
			return client.IgnoreNotFound(fmt.Errorf("deleting %s %s on the host, %w", c.kind.Kind, key, err))
		}
		log.FromContext(ctx).Info("deleted on the host", "kind", c.kind.Kind, "copy", key)
		return nil
	}
	if !controllerutil.ContainsFinalizer(copied, Finalizer) {
		return nil
	}
	stored := copied.DeepCopyObject().(T)
	controllerutil.RemoveFinalizer(copied, Finalizer)
	if err := c.planes.Management.Client.Patch(ctx, copied, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("removing the finalizer of %s %s on the host, %w", c.kind.Kind, key, err))
	}
	return nil
}

// collect deletes the copy of an object that is gone from the tenant. Only a live answer says so, and only what this
// controller has made is deleted.
func (c *Controller[T]) collect(ctx context.Context, key client.ObjectKey, copied T) error {
	origin, ok := vcluster.OriginOf(copied, c.kind.GroupVersionKind, c.planes.TenantCluster.Name)
	if !ok || origin.NamespacedName != key || !c.made(copied) {
		return nil
	}
	live, found, err := c.get(ctx, c.planes.Tenant.Live, key, "in the tenant")
	if err != nil {
		return err
	}
	if found && live.GetUID() == origin.UID {
		return nil
	}
	return c.release(ctx, copied)
}

// deleteInTenant passes on that the host wants the copy gone. The finalizers bring the rest about.
func (c *Controller[T]) deleteInTenant(ctx context.Context, object T) error {
	key, uid := client.ObjectKeyFromObject(object), object.GetUID()
	if err := c.hold(ctx, object); err != nil {
		return err
	}
	if err := c.planes.Tenant.Client.Delete(ctx, object, client.Preconditions{UID: &uid}); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("deleting %s %s in the tenant, %w", c.kind.Kind, key, err))
	}
	c.recorder.Publish(c.refused(object, ReasonDeletedOnHost, "it has been deleted on the host, and so here"))
	return nil
}
