// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deviceclasses knows which device classes exist in the tenant: those of the host that it is allowed to see, and
// no others.
package deviceclasses

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/settings"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Controller keeps the tenant's DeviceClasses equal to those of the host.
type Controller struct {
	planes   tenant.Planes
	recorder events.Recorder
}

// NewController constructs a device class controller.
func NewController(planes tenant.Planes, recorder events.Recorder) *Controller {
	return &Controller{planes: planes, recorder: recorder}
}

// Reconcile brings the tenant's class of a name in line with the host's.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	s, err := settings.Read(ctx, c.planes.Management.Client, c.planes.TenantCluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	// 1. Nothing is decided, or it is not known what.
	if s.Problem != nil || !s.Policy.Enabled() {
		return reconcile.Result{}, nil
	}
	host, err := read(ctx, c.planes.Management.Client, request.Name, "on the host")
	if err != nil {
		return reconcile.Result{}, err
	}
	present, err := read(ctx, c.planes.Tenant.Client, request.Name, "in the tenant")
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	// 2. The tenant may not see it.
	case !s.Policy.Allows(host):
		if present == nil || !present.DeletionTimestamp.IsZero() {
			return reconcile.Result{}, nil
		}
		return retry(c.remove(ctx, present))
	// 3. It may, and does not yet.
	case present == nil:
		err := c.planes.Tenant.Client.Create(ctx, s.Policy.ForTenant(host))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return reconcile.Result{}, fmt.Errorf("creating DeviceClass %s in the tenant, %w", request.Name, err)
		}
		return reconcile.Result{}, nil
	// 4. It does, and whoever made it, it says what the host's says.
	default:
		return retry(c.update(ctx, present, s.Policy.ForTenant(host)))
	}
}

// update makes the tenant's class equal to what it should be, and writes only if it is not.
func (c *Controller) update(ctx context.Context, present, wanted *resourcev1.DeviceClass) error {
	if equality.Semantic.DeepEqual(present.Spec, wanted.Spec) && equality.Semantic.DeepEqual(present.Labels, wanted.Labels) &&
		equality.Semantic.DeepEqual(present.Annotations, wanted.Annotations) {
		return nil
	}
	updated := present.DeepCopy()
	updated.Spec, updated.Labels, updated.Annotations = wanted.Spec, wanted.Labels, wanted.Annotations
	if err := c.planes.Tenant.Client.Update(ctx, updated); err != nil {
		return fmt.Errorf("updating DeviceClass %s in the tenant, %w", present.Name, err)
	}
	return nil
}

// remove takes a class away from the tenant. What the caches say is not enough for that.
func (c *Controller) remove(ctx context.Context, present *resourcev1.DeviceClass) error {
	s, err := settings.Read(ctx, c.planes.Management.Live, c.planes.TenantCluster)
	if err != nil {
		return err
	}
	host, err := read(ctx, c.planes.Management.Live, present.Name, "on the host")
	if err != nil {
		return err
	}
	if s.Problem != nil || !s.Policy.Enabled() || s.Policy.Allows(host) {
		return nil
	}
	// Were the two clusters one, this would take the class away from everybody.
	if host != nil && host.UID == present.UID {
		return nil
	}
	if err := c.planes.Tenant.Client.Delete(ctx, present, client.Preconditions{UID: &present.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting DeviceClass %s in the tenant, %w", present.Name, err)
	}
	c.recorder.Publish(removed(present, host != nil, s.Policy.String()))
	log.FromContext(ctx).Info("device class has left the tenant", "deviceClass", present.Name)
	return nil
}

// read returns a class, or nil if there is none.
func read(ctx context.Context, reader client.Reader, name, where string) (*resourcev1.DeviceClass, error) {
	class := &resourcev1.DeviceClass{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, class); tenant.IsGone(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading DeviceClass %s %s, %w", name, where, err)
	}
	return class, nil
}

// retry takes a class that is gone for nothing to do.
func retry(err error) (reconcile.Result, error) {
	return tenant.RetryConflict(client.IgnoreNotFound(err))
}
