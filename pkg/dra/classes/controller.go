// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package classes syncs device classes: a tenant has the host's classes that it may see, and no others.
package classes

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Controller keeps the tenant's DeviceClasses equal to the host's.
type Controller struct {
	clusters tenant.Clusters
	recorder events.Recorder
}

// NewController constructs a device class controller.
func NewController(clusters tenant.Clusters, recorder events.Recorder) *Controller {
	return &Controller{clusters: clusters, recorder: recorder}
}

// Reconcile brings the tenant's class with the name in line with the host's.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	s, err := policy.Read(ctx, c.clusters.Management.Client, c.clusters.TenantCluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	// 1. The sync is off, or the allowed classes are unknown.
	if s.SelectorError != nil || !s.Policy.Enabled() {
		return reconcile.Result{}, nil
	}
	host, err := read(ctx, c.clusters.Management.Client, request.Name, "on the host")
	if err != nil {
		return reconcile.Result{}, err
	}
	present, err := read(ctx, c.clusters.Tenant.Client, request.Name, "in the tenant")
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	// 2. The tenant may not see the class.
	case !s.Policy.Allows(host):
		if present == nil || !present.DeletionTimestamp.IsZero() {
			return reconcile.Result{}, nil
		}
		return retry(c.remove(ctx, present))
	// 3. The tenant may see the class, and does not have it.
	case present == nil:
		err := c.clusters.Tenant.Client.Create(ctx, s.Policy.ForTenant(host))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return reconcile.Result{}, fmt.Errorf("creating DeviceClass %s in the tenant, %w", request.Name, err)
		}
		return reconcile.Result{}, nil
	// 4. The DeviceClass exists: set its spec to the host's, even if another client created it.
	default:
		return retry(c.update(ctx, present, s.Policy.ForTenant(host)))
	}
}

// update makes the tenant's class equal to the wanted one, and writes only if they differ.
func (c *Controller) update(ctx context.Context, present, wanted *resourcev1.DeviceClass) error {
	if equality.Semantic.DeepEqual(present.Spec, wanted.Spec) && equality.Semantic.DeepEqual(present.Labels, wanted.Labels) &&
		equality.Semantic.DeepEqual(present.Annotations, wanted.Annotations) {
		return nil
	}
	updated := present.DeepCopy()
	updated.Spec, updated.Labels, updated.Annotations = wanted.Spec, wanted.Labels, wanted.Annotations
	if err := c.clusters.Tenant.Client.Update(ctx, updated); err != nil {
		return fmt.Errorf("updating DeviceClass %s in the tenant, %w", present.Name, err)
	}
	return nil
}

// remove deletes a class in the tenant. It checks by live reads.
func (c *Controller) remove(ctx context.Context, present *resourcev1.DeviceClass) error {
	s, err := policy.Read(ctx, c.clusters.Management.Live, c.clusters.TenantCluster)
	if err != nil {
		return err
	}
	host, err := read(ctx, c.clusters.Management.Live, present.Name, "on the host")
	if err != nil {
		return err
	}
	if s.SelectorError != nil || !s.Policy.Enabled() || s.Policy.Allows(host) {
		return nil
	}
	// If the two clusters were one, this would delete the class itself.
	if host != nil && host.UID == present.UID {
		return nil
	}
	if err := kube.Delete(ctx, c.clusters.Tenant.Client, present, "deleting in the tenant"); err != nil {
		return err
	}
	c.recorder.Publish(removed(present, host != nil, s.Policy))
	log.FromContext(ctx).Info("removed from the tenant", "deviceClass", present.Name)
	return nil
}

// read returns a class, or nil if there is none.
func read(ctx context.Context, reader client.Reader, name, where string) (*resourcev1.DeviceClass, error) {
	class := &resourcev1.DeviceClass{}
	if found, err := kube.Find(ctx, reader, client.ObjectKey{Name: name}, class); err != nil {
		return nil, fmt.Errorf("%s, %w", where, err)
	} else if !found {
		return nil, nil
	}
	return class, nil
}

// retry ignores that a class is gone, and retries after a conflict.
func retry(err error) (reconcile.Result, error) {
	return kube.RetryConflict(client.IgnoreNotFound(err))
}

// ReasonRemoved: the class is removed from the tenant. An event on the class.
const ReasonRemoved = "DeviceClassRemoved"

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string { return "dra.deviceclasses" }

// Register implements Karpenter's controller interface, with the manager of the tenant cluster.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	each := &handler.TypedEnqueueRequestForObject[*resourcev1.DeviceClass]{}
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(source.Kind(c.clusters.Management.Cache, &resourcev1.DeviceClass{}, each)).
		WatchesRawSource(source.Kind(c.clusters.Tenant.Cache, &resourcev1.DeviceClass{}, each)).
		WatchesRawSource(policy.Changes(c.clusters, c.all)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, CacheSyncTimeout: kube.CacheSyncTimeout}).
		Complete(c)
}

// all returns requests for the classes of both clusters.
func (c *Controller) all(ctx context.Context) []reconcile.Request {
	return append(kube.Requests(ctx, c.clusters.Management.Client, &resourcev1.DeviceClassList{}),
		kube.Requests(ctx, c.clusters.Tenant.Client, &resourcev1.DeviceClassList{})...)
}

func removed(class *resourcev1.DeviceClass, onHost bool, p policy.Policy) events.Event {
	why := "the host has no such DeviceClass"
	if onHost {
		why = p.WhyNot(class.Name)
	}
	return tenant.Warning(class, ReasonRemoved,
		fmt.Sprintf("DeviceClass %s has been removed: %s. Claims that use it stay, and are no longer in sync", class.Name, why))
}
