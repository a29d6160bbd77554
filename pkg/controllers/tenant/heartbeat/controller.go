// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package heartbeat renews a time in the TenantCluster while the leading provider can reach both clusters.
package heartbeat

import (
	"context"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Controller renews status.providerRenewTime.
type Controller struct {
	clock    clock.PassiveClock
	clusters tenant.Clusters
}

// NewController constructs a controller.
func NewController(clk clock.PassiveClock, clusters tenant.Clusters) *Controller {
	return &Controller{clock: clk, clusters: clusters}
}

// Reconcile renews the time. Its client writes only while the provider is connected to its tenant's cluster.
func (c *Controller) Reconcile(ctx context.Context) (reconciler.Result, error) {
	cluster := &v1alpha1.TenantCluster{}
	found, err := kube.Find(ctx, c.clusters.Management.Client, c.clusters.TenantCluster, cluster)
	if err != nil {
		return reconciler.Result{}, err
	}
	if found {
		before := cluster.DeepCopy()
		cluster.Status.ProviderRenewTime = ptr.To(metav1.NewTime(c.clock.Now()))
		err = kube.PatchStatus(ctx, c.clusters.Management.Client, before, cluster)
	}
	switch {
	case apierrors.IsConflict(err): // another client's write
		return reconciler.Result{RequeueAfter: kube.ConflictRetry}, nil
	case err != nil && !apierrors.IsNotFound(err):
		return reconciler.Result{}, err
	}
	return reconciler.Result{RequeueAfter: v1alpha1.ProviderRenewPeriod}, nil
}

func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("tenant.heartbeat").
		WatchesRawSource(singleton.Source()).
		Complete(singleton.AsReconciler(c))
}
