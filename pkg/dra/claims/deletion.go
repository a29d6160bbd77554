// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
)

// finalize deletes the copy of an object that is being deleted in the tenant, and removes the object's finalizer once the
// copy is gone. The host keeps a claim that a pod uses; so does then the tenant.
func (c *CopyController[T]) finalize(ctx context.Context, s policy.Settings, p pair[T]) (bool, error) {
	if p.owned {
		if err := c.deleteCopy(ctx, p.copied); err != nil {
			return false, err
		}
		return false, c.mirrorStatus(ctx, s, p.object, p.copied)
	}
	if p.name != "" {
		live, found, err := c.get(ctx, c.clusters.Management.Live, c.hostKey(p.name), "on the host")
		if err != nil {
			return false, err
		}
		if found && c.owns(live, p.object) {
			return true, nil // the cache is behind
		}
	}
	return false, patch(ctx, c.clusters.Tenant.Client, p.object, "removing the finalizer in the tenant of", func() {
		controllerutil.RemoveFinalizer(p.object, v1alpha1.DRASyncFinalizer)
	})
}

// deleteCopy deletes a copy, in two steps: between them it stays until nobody on the host needs it.
func (c *CopyController[T]) deleteCopy(ctx context.Context, copied T) error {
	if !copied.GetDeletionTimestamp().IsZero() {
		if !controllerutil.ContainsFinalizer(copied, v1alpha1.DRASyncFinalizer) {
			return nil
		}
		return patch(ctx, c.clusters.Management.Client, copied, "removing the finalizer on the host of", func() {
			controllerutil.RemoveFinalizer(copied, v1alpha1.DRASyncFinalizer)
		})
	}
	key, uid := client.ObjectKeyFromObject(copied), copied.GetUID()
	if err := c.clusters.Management.Client.Delete(ctx, copied, client.Preconditions{UID: &uid}); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("deleting %s %s on the host, %w", c.kind.Kind, key, err))
	}
	log.FromContext(ctx).Info("deleted on the host", "kind", c.kind.Kind, "copy", key)
	return nil
}

// deleteOrphan deletes the copy of an object that is gone from the tenant, after a live read, and only if this controller
// has created it.
func (c *CopyController[T]) deleteOrphan(ctx context.Context, key client.ObjectKey, copied T) error {
	origin, ok := names.OriginOf(copied, c.kind.GroupVersionKind, c.clusters.TenantCluster.Name)
	if !ok || origin.NamespacedName != key || !c.isCopy(copied) {
		return nil
	}
	live, found, err := c.get(ctx, c.clusters.Tenant.Live, key, "in the tenant")
	if err != nil {
		return err
	}
	if found && live.GetUID() == origin.UID {
		return nil
	}
	return c.deleteCopy(ctx, copied)
}

// deleteInTenant deletes the object of a copy that is being deleted on the host. The finalizers do the rest.
func (c *CopyController[T]) deleteInTenant(ctx context.Context, object T) error {
	key, uid := client.ObjectKeyFromObject(object), object.GetUID()
	if err := c.addFinalizer(ctx, object); err != nil {
		return err
	}
	if err := c.clusters.Tenant.Client.Delete(ctx, object, client.Preconditions{UID: &uid}); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("deleting %s %s in the tenant, %w", c.kind.Kind, key, err))
	}
	c.warn(object, ReasonDeletedOnHost, "it was deleted on the host, and is therefore deleted here")
	return nil
}
