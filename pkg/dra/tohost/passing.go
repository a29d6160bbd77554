// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tohost

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/devices"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/settings"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/vcluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// refusal says why the tenant's object is not passed on, or nil if it is.
func (c *Controller[T]) refusal(ctx context.Context, s settings.Settings, object T, synced bool) (*events.Event, error) {
	if s.Problem != nil {
		event := c.refused(object, ReasonInvalidSelector, "the selector for device classes does not parse, ask the platform's administrator")
		return &event, nil
	}
	for _, name := range devices.Classes(c.kind.spec(object)) {
		class := &resourcev1.DeviceClass{}
		err := c.planes.Management.Client.Get(ctx, client.ObjectKey{Name: name}, class)
		if tenant.IsGone(err) {
			class = nil
		} else if err != nil {
			return nil, fmt.Errorf("reading DeviceClass %s on the host, %w", name, err)
		}
		if s.Policy.Allows(class) {
			continue
		}
		event := c.notAllowed(object, name, s.Policy.String(), synced)
		return &event, nil
	}
	return nil, nil
}

// hold adds the finalizer to the tenant's object, if it is not there.
func (c *Controller[T]) hold(ctx context.Context, object T) error {
	if controllerutil.ContainsFinalizer(object, Finalizer) {
		return nil
	}
	stored := object.DeepCopyObject().(T)
	controllerutil.AddFinalizer(object, Finalizer)
	// A merge patch replaces the whole list of finalizers, so nobody may have written it meanwhile.
	if err := c.planes.Tenant.Client.Patch(ctx, object, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("adding the finalizer to %s %s in the tenant, %w", c.kind.Kind, client.ObjectKeyFromObject(object), err))
	}
	return nil
}

// create makes the copy. The finalizer goes first: were the process to die after the copy, the tenant's object could
// otherwise go without it.
func (c *Controller[T]) create(ctx context.Context, object T, name string) error {
	if err := c.hold(ctx, object); err != nil {
		return err
	}
	key := c.hostKey(name)
	copied := c.kind.forHost(object, c.planes.TenantCluster.Name)
	metadata := vcluster.HostMetadata(object, c.kind.GroupVersionKind, key, c.planes.TenantCluster.Name, vcluster.Metadata{})
	copied.SetNamespace(key.Namespace)
	copied.SetName(key.Name)
	copied.SetLabels(metadata.Labels)
	copied.SetAnnotations(metadata.Annotations)
	copied.SetFinalizers([]string{Finalizer})
	err := c.planes.Management.Client.Create(ctx, copied)
	switch {
	// An earlier run has made it, and the cache does not show it yet. It will.
	case apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
		// The tenant must hear of it: the host's API server takes less than the tenant's, or an admission policy or a
		// quota is in the way.
		c.recorder.Publish(c.refused(object, ReasonRefusedByHost, "the host does not take it: "+err.Error()))
		return fmt.Errorf("creating %s %s on the host, %w", c.kind.Kind, key, err)
	case err != nil:
		return fmt.Errorf("creating %s %s on the host, %w", c.kind.Kind, key, err)
	}
	c.fresh.Store(client.ObjectKeyFromObject(object), struct{}{})
	if devices.WantsAdminAccess(c.kind.spec(object)) {
		c.recorder.Publish(c.refused(object, ReasonNoAdminAccess, "admin access has been left out: on the host nobody has it"))
	}
	log.FromContext(ctx).Info("copied to the host", "kind", c.kind.Kind, "object", client.ObjectKeyFromObject(object), "copy", key)
	return nil
}

// update passes on what can change: labels and annotations one way, the status the other. Specs cannot.
func (c *Controller[T]) update(ctx context.Context, s settings.Settings, object, copied T) error {
	metadata := vcluster.HostMetadata(object, c.kind.GroupVersionKind, client.ObjectKeyFromObject(copied), c.planes.TenantCluster.Name,
		vcluster.Metadata{Labels: copied.GetLabels(), Annotations: copied.GetAnnotations()})
	if !equality.Semantic.DeepEqual(metadata.Labels, copied.GetLabels()) || !equality.Semantic.DeepEqual(metadata.Annotations, copied.GetAnnotations()) {
		stored := copied.DeepCopyObject().(T)
		copied.SetLabels(metadata.Labels)
		copied.SetAnnotations(metadata.Annotations)
		if err := c.planes.Management.Client.Patch(ctx, copied, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
			return client.IgnoreNotFound(fmt.Errorf("updating %s %s on the host, %w", c.kind.Kind, client.ObjectKeyFromObject(copied), err))
		}
	}
	return c.flowBack(ctx, s, object, copied)
}

func (c *Controller[T]) flowBack(ctx context.Context, s settings.Settings, object, copied T) error {
	if c.kind.back == nil {
		return nil
	}
	return client.IgnoreNotFound(c.kind.back(ctx, c.planes, s, copied, object))
}

// contest looks at who has the name on the host. Objects of others are let alone. The copy of an object that had this
// name before, and has gone from the tenant without its copy, goes.
func (c *Controller[T]) contest(ctx context.Context, object, copied T) error {
	if origin, ok := vcluster.OriginOf(copied, c.kind.GroupVersionKind, c.planes.TenantCluster.Name); ok && c.made(copied) {
		return c.collect(ctx, origin.NamespacedName, copied)
	}
	c.recorder.Publish(c.refused(object, ReasonNameTaken, fmt.Sprintf(
		"%s %s on the host was not made for it: have it removed there, or choose another name", c.kind.Kind, client.ObjectKeyFromObject(copied))))
	return nil
}
