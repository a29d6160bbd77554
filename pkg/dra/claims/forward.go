// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
)

// allowed returns whether the tenant may ask for all classes of an object, and publishes an event if not.
func (c *CopyController[T]) allowed(ctx context.Context, s policy.Settings, object T, synced bool) (bool, error) {
	if s.SelectorError != nil {
		c.notInSync(object, ReasonInvalidSelector, "the selector for device classes does not parse, ask the platform's administrator")
		return false, nil
	}
	class, err := s.NotAllowed(ctx, c.clusters.Management.Client, c.kind.spec(object))
	if class != "" {
		c.notAllowed(object, class, s.Policy.String(), synced)
	}
	return err == nil && class == "", err
}

// addFinalizer adds the finalizer to the tenant's object, if it is not there.
func (c *CopyController[T]) addFinalizer(ctx context.Context, object T) error {
	if controllerutil.ContainsFinalizer(object, v1alpha1.DRASyncFinalizer) {
		return nil
	}
	return patch(ctx, c.clusters.Tenant.Client, object, "adding the finalizer in the tenant to", func() {
		controllerutil.AddFinalizer(object, v1alpha1.DRASyncFinalizer)
	})
}

// create creates the copy. The finalizer goes first: if the process died after creating the copy, the tenant's object
// could otherwise be deleted without it.
func (c *CopyController[T]) create(ctx context.Context, object T, name string) error {
	if err := c.addFinalizer(ctx, object); err != nil {
		return err
	}
	key := c.hostKey(name)
	copied := c.kind.forHost(object, c.clusters.TenantCluster.Name)
	metadata := names.HostMetadata(object, c.kind.GroupVersionKind, key, c.clusters.TenantCluster.Name, names.Metadata{})
	copied.SetNamespace(key.Namespace)
	copied.SetName(key.Name)
	copied.SetLabels(metadata.Labels)
	copied.SetAnnotations(metadata.Annotations)
	copied.SetFinalizers([]string{v1alpha1.DRASyncFinalizer})
	err := c.clusters.Management.Client.Create(ctx, copied)
	if apierrors.IsAlreadyExists(err) {
		return nil // an earlier run has created it, and the cache does not show it yet
	}
	// The tenant's user can only learn of it here: the host's API server knows fewer fields than the tenant's, or an
	// admission policy or a quota rejects the copy.
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		c.notInSync(object, ReasonRefusedByHost, "the host rejects it: "+err.Error())
	}
	if err != nil {
		return fmt.Errorf("creating %s %s on the host, %w", c.kind.Kind, key, err)
	}
	c.created.Store(client.ObjectKeyFromObject(object), struct{}{})
	if policy.WantsAdminAccess(c.kind.spec(object)) {
		c.warn(object, ReasonNoAdminAccess, "admin access has been left out: it is not available on the host")
	}
	log.FromContext(ctx).Info("copied to the host", "kind", c.kind.Kind, "object", client.ObjectKeyFromObject(object), "copy", key)
	return nil
}

// update syncs what can change: labels and annotations to the host, the status to the tenant. Specs cannot change.
func (c *CopyController[T]) update(ctx context.Context, s policy.Settings, object, copied T) error {
	metadata := names.HostMetadata(object, c.kind.GroupVersionKind, client.ObjectKeyFromObject(copied), c.clusters.TenantCluster.Name,
		names.Metadata{Labels: copied.GetLabels(), Annotations: copied.GetAnnotations()})
	if !maps.Equal(metadata.Labels, copied.GetLabels()) || !maps.Equal(metadata.Annotations, copied.GetAnnotations()) {
		if err := patch(ctx, c.clusters.Management.Client, copied, "updating on the host", func() {
			copied.SetLabels(metadata.Labels)
			copied.SetAnnotations(metadata.Annotations)
		}); err != nil {
			return err
		}
	}
	return c.mirrorStatus(ctx, s, object, copied)
}

func (c *CopyController[T]) mirrorStatus(ctx context.Context, s policy.Settings, object, copied T) error {
	if c.kind.mirrorStatus == nil {
		return nil
	}
	return client.IgnoreNotFound(c.kind.mirrorStatus(ctx, c.clusters, s, copied, object))
}

// resolveConflict looks at an object that has the name of the copy. Objects of others are left alone. The copy of an
// object that had this name before, and is gone from the tenant, is deleted.
func (c *CopyController[T]) resolveConflict(ctx context.Context, object, copied T) error {
	if origin, ok := names.OriginOf(copied, c.kind.GroupVersionKind, c.clusters.TenantCluster.Name); ok && c.isCopy(copied) {
		return c.deleteOrphan(ctx, origin.NamespacedName, copied)
	}
	c.notInSync(object, ReasonNameTaken, fmt.Sprintf(
		"%s %s on the host is not its copy: have it removed there, or choose another name", c.kind.Kind, client.ObjectKeyFromObject(copied)))
	return nil
}

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

// deleteCopy deletes a copy, in two steps: between them it stays until no pod on the host needs it.
func (c *CopyController[T]) deleteCopy(ctx context.Context, copied T) error {
	if !copied.GetDeletionTimestamp().IsZero() {
		if !controllerutil.ContainsFinalizer(copied, v1alpha1.DRASyncFinalizer) {
			return nil
		}
		return patch(ctx, c.clusters.Management.Client, copied, "removing the finalizer on the host of", func() {
			controllerutil.RemoveFinalizer(copied, v1alpha1.DRASyncFinalizer)
		})
	}
	if err := controllers.Delete(ctx, c.clusters.Management.Client, copied, "deleting on the host"); err != nil {
		return err
	}
	log.FromContext(ctx).Info("deleted on the host", "kind", c.kind.Kind, "copy", client.ObjectKeyFromObject(copied))
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
	if err := c.addFinalizer(ctx, object); err != nil {
		return err
	}
	if err := controllers.Delete(ctx, c.clusters.Tenant.Client, object, "deleting in the tenant"); err != nil {
		return err
	}
	c.warn(object, ReasonDeletedOnHost, "it was deleted on the host, and is therefore deleted here")
	return nil
}
