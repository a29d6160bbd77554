// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// removalInterval bounds how often old uses are removed from the record of a server.
const removalInterval = time.Hour

// DefaultDelay is the delay between a claim and the record of its start. It outlasts a burst of claims, but few uses.
const DefaultDelay = 5 * time.Minute

// Controller records the claims of each server.
type Controller struct {
	Record
	// Delay is the delay between a claim and the record of its start. Until then only the host has it. So a burst of
	// claims writes no records, and a use that ends within the delay costs one write in all.
	Delay time.Duration
	// delayed are the claims that are not recorded yet, a *v1alpha1.HostUse by types.NamespacedName of the host. If the
	// claim disappears without a release, the controller records it from here.
	delayed sync.Map
}

// Trim is a transform for caches. It keeps the first and the last use, and the folded use that ended first. They decide
// whether there is something to write. The write itself is based on a live read.
func Trim(record *v1alpha1.HostUsage) {
	if uses := record.Spec.Uses; len(uses) > 2 {
		record.Spec.Uses = []v1alpha1.HostUse{uses[0], uses[len(uses)-1]}
	}
	record.Spec.Folded = slices.Clone(record.Spec.Folded[:min(1, len(record.Spec.Folded))])
}

// Reconcile looks at one server.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	record, host := &v1alpha1.HostUsage{}, &bmov1alpha1.BareMetalHost{}
	recorded, err := kube.Find(ctx, c.Client, request.NamespacedName, record)
	if err != nil {
		return ctrl.Result{}, err
	}
	if c.Retention == 0 {
		if recorded {
			err = c.delete(ctx, record)
		}
		return kube.RetryConflict(err)
	}
	found, err := kube.Find(ctx, c.Client, request.NamespacedName, host)
	if err != nil {
		return ctrl.Result{}, err
	}
	now, claim := c.Clock.Now(), usage.ClaimOn(host)
	stored, _ := c.delayed.Load(request.NamespacedName)
	delayed, _ := stored.(*v1alpha1.HostUse)
	if delayed != nil && usage.Has(record.Spec, delayed) {
		c.delayed.Delete(request.NamespacedName)
		delayed = nil
	}
	if wait := c.wait(record, claim, now); wait > 0 && (delayed == nil || usage.Same(delayed, claim)) {
		c.delayed.Store(request.NamespacedName, claim)
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	after := usage.Next(record.Spec, usage.Observation{At: now, Claim: claim}, c.Retention)
	if delayed != nil || !equality.Semantic.DeepEqual(record.Spec, after) || recorded && !found && usage.IsEmpty(after) {
		if err := c.observe(ctx, request.NamespacedName, delayed); err != nil {
			return kube.RetryConflict(err)
		}
		c.delayed.Delete(request.NamespacedName)
	}
	first, ended := usage.FirstEnd(after)
	if !ended {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(removalInterval, first.Add(c.Retention).Sub(now))}, nil
}

// wait returns how long to wait before recording the claim; zero if it is recorded, or has no start time.
func (c *Controller) wait(record *v1alpha1.HostUsage, claim *v1alpha1.HostUse, now time.Time) time.Duration {
	if claim == nil || claim.Start.IsZero() || usage.Has(record.Spec, claim) {
		return 0
	}
	return min(c.Delay-now.Sub(claim.Start.Time), c.Delay) // the clock may have been set back
}

func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	if c.Written != nil {
		if err := ctrlmetrics.Registry.Register(c.Written); err != nil {
			return fmt.Errorf("registering the metric of the record of use, %w", err)
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("host.usage").
		For(&v1alpha1.HostUsage{}).
		Watches(&bmov1alpha1.BareMetalHost{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(claimChanged)).
		WithOptions(controller.Options{MaxConcurrentReconciles: kube.Concurrency}).
		Complete(c)
}

var claimChanged = kube.Changed(usage.ClaimOn)
