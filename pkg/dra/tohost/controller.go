// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tohost knows how a tenant's ResourceClaims and ResourceClaimTemplates come to be on the host, and go again.
//
// A copy on the host and its origin in the tenant hold each other by a finalizer. The origin's is written before the copy
// is made, and taken away once the copy is gone, so that no copy is without an owner and no claim goes from the tenant
// while a pod on the host still uses it. The copy's is there from its creation, so that nobody takes it away unnoticed.
package tohost

import (
	"context"
	"fmt"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/settings"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/vcluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Finalizer is on the tenant's objects that have a copy on the host, and on the copies.
const Finalizer = v1alpha1.Group + "/dra-sync"

// kind is what differs between claims and templates.
type kind[T client.Object] struct {
	schema.GroupVersionKind
	controllerName string
	object         func() T
	list           func() client.ObjectList
	enabled        func(*v1alpha1.Sync) bool
	spec           func(T) *resourcev1.ResourceClaimSpec
	// forHost returns a copy for the host, without metadata.
	forHost func(object T, tenant string) T
	// back writes into the tenant what flows back. Nil if nothing does.
	back func(ctx context.Context, planes tenant.Planes, s settings.Settings, copied, object T) error
}

// Controller keeps the copies on the host of one kind of a tenant's objects.
type Controller[T client.Object] struct {
	kind     kind[T]
	planes   tenant.Planes
	recorder events.Recorder
	// fresh has the keys of objects whose copy this process has just made and not seen yet.
	fresh sync.Map
}

// Reconcile brings one object of the tenant, and its copy, a step further. What it finds decides, not what an earlier run
// has done, so a crash between any two writes is made good by the next run.
func (c *Controller[T]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	result, err := c.reconcile(ctx, request.NamespacedName)
	if apierrors.IsConflict(err) {
		// Somebody else's write, which the cache does not show yet.
		return reconcile.Result{RequeueAfter: tenant.ConflictRetry}, nil
	}
	return result, err
}

func (c *Controller[T]) reconcile(ctx context.Context, key client.ObjectKey) (reconcile.Result, error) {
	object, found, err := c.get(ctx, c.planes.Tenant.Client, key, "in the tenant")
	if err != nil {
		return reconcile.Result{}, err
	}
	name, invalid := vcluster.HostName(key.Name, key.Namespace, c.planes.TenantCluster.Name)
	var copied T
	var taken bool
	if invalid == nil {
		if copied, taken, err = c.get(ctx, c.planes.Management.Client, c.hostKey(name), "on the host"); err != nil {
			return reconcile.Result{}, err
		}
	}
	// 1. The tenant's object is gone, maybe by force. Its copy must not stay.
	if !found {
		if !taken {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, c.collect(ctx, key, copied)
	}
	// 2. The host makes a claim of its own for this pod.
	if madeForPod(object) && !controllerutil.ContainsFinalizer(object, Finalizer) {
		return reconcile.Result{}, nil
	}
	s, err := settings.Read(ctx, c.planes.Management.Client, c.planes.TenantCluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	ours := taken && c.owns(copied, object)
	switch {
	// 3. The tenant wants it gone.
	case !object.GetDeletionTimestamp().IsZero():
		if !controllerutil.ContainsFinalizer(object, Finalizer) {
			return reconcile.Result{}, nil
		}
		return c.finalize(ctx, s, object, copied, ours, name)
	// 4. Somebody on the host wants it gone.
	case ours && !copied.GetDeletionTimestamp().IsZero():
		return reconcile.Result{}, c.deleteInTenant(ctx, object)
	// 5. What has been synced stays, and what has not does not come.
	case !c.kind.enabled(&s.Sync):
		return reconcile.Result{}, nil
	case invalid != nil:
		c.recorder.Publish(c.refused(object, ReasonInvalidName, invalid.Error()))
		return reconcile.Result{}, nil
	}
	// 6. Only allowed classes are passed on, and while they are not, nothing is.
	if refusal, err := c.refusal(ctx, s, object, ours); err != nil {
		return reconcile.Result{}, err
	} else if refusal != nil {
		c.recorder.Publish(*refusal)
		return reconcile.Result{}, nil
	}
	switch {
	// 7. There is no copy yet.
	case !taken:
		// The cache is behind the last run: making the copy again would fail, and cost a request.
		if _, made := c.fresh.LoadAndDelete(key); made {
			return reconcile.Result{RequeueAfter: tenant.ConflictRetry}, nil
		}
		return reconcile.Result{}, c.create(ctx, object, name)
	// 8. The name is somebody else's, or of an object that had this name before.
	case !ours:
		return reconcile.Result{}, c.contest(ctx, object, copied)
	// 9. There is one.
	default:
		if _, made := c.fresh.LoadAndDelete(key); made && !controllerutil.ContainsFinalizer(object, Finalizer) {
			// The cache of the tenant is behind: what this process has just written would be written again, in vain.
			return reconcile.Result{RequeueAfter: tenant.ConflictRetry}, nil
		}
		if err := c.hold(ctx, object); err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, c.update(ctx, s, object, copied)
	}
}

// owns tells whether a copy is this controller's copy of exactly this object. A copy that is being deleted has lost its
// finalizer, maybe.
func (c *Controller[T]) owns(copied, object T) bool {
	return vcluster.IsCopyOf(copied, object, c.kind.GroupVersionKind, c.planes.TenantCluster.Name) && c.made(copied)
}

func (c *Controller[T]) made(copied T) bool {
	return controllerutil.ContainsFinalizer(copied, Finalizer) || !copied.GetDeletionTimestamp().IsZero()
}

func (c *Controller[T]) hostKey(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: c.planes.TenantCluster.Namespace, Name: name}
}

// get returns an object, and whether there is one.
func (c *Controller[T]) get(ctx context.Context, reader client.Reader, key client.ObjectKey, where string) (T, bool, error) {
	object := c.kind.object()
	err := reader.Get(ctx, key, object)
	if tenant.IsGone(err) {
		return object, false, nil
	}
	if err != nil {
		return object, false, fmt.Errorf("reading %s %s %s, %w", c.kind.Kind, key, where, err)
	}
	return object, true, nil
}
