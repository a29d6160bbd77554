// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package estimate measures how long servers of a type take from the claim to the node, and writes it into the status of the
// NodeType.
//
// Each Machine that joins is a sample, and is counted at most once: the estimate carries the time up to which it counts,
// in the same write, and no process counts a Machine again that joined until then. A sample that arrives late is left
// out, which an estimate can bear.
package estimate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// weight is how much of the estimate a new sample replaces: an eighth. The first eight are averaged.
const weight = 8

// sample is how long one Machine took.
type sample struct {
	machine types.UID
	took    time.Duration
	joined  metav1.Time
}

// sampleOf returns the sample of a Machine. It returns false for one that has not joined, that never will, or that was
// interrupted on its way.
func sampleOf(machine *v1alpha1.Machine) (sample, bool) {
	progress := machine.Status.Progress
	if machine.Spec.TenantClusterRef == nil || machine.Status.NodeTypeRef == nil || progress == nil || progress.Step < progress.Steps ||
		progress.Interrupted {
		return sample{}, false
	}
	took := progress.LastProgressTime.Sub(progress.StartTime.Time)
	return sample{machine: machine.UID, took: took, joined: progress.LastProgressTime}, took >= 0
}

// next is the estimate after more samples, of which those that it counts already are left out. It is nil as long as
// there is none at all.
func next(before *v1alpha1.ProvisioningEstimate, samples []sample) *v1alpha1.ProvisioningEstimate {
	var after v1alpha1.ProvisioningEstimate
	if before != nil {
		after = *before
	}
	counted := after.CountedUntil
	slices.SortFunc(samples, func(a, b sample) int {
		return cmp.Or(a.joined.Compare(b.joined.Time), strings.Compare(string(a.machine), string(b.machine)))
	})
	for _, s := range samples {
		if !s.joined.After(counted.Time) {
			continue
		}
		after.Samples++
		seconds := int64(s.took.Round(time.Second) / time.Second)
		after.TypicalSeconds += (seconds - after.TypicalSeconds) / min(after.Samples, weight)
		after.CountedUntil = s.joined
	}
	if after.Samples == 0 {
		return nil
	}
	return &after
}

// settlePeriod is how long after a Machine has joined it is counted. Machines that join in the same second must be counted in
// one write, because the estimate has the time of the last one; and many that join at once need few writes.
const settlePeriod = 2 * time.Second

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Controller writes the estimates of NodeTypes.
type Controller struct {
	client client.Client
	clock  clock.PassiveClock

	lock sync.Mutex
	// waiting are the samples that have not been counted, by NodeType.
	waiting map[string]map[types.UID]sample
}

// NewController returns a controller. The client may read from a cache.
func NewController(client client.Client, clock clock.PassiveClock) *Controller {
	return &Controller{client: client, clock: clock, waiting: map[string]map[types.UID]sample{}}
}

// Name of the controller.
func (c *Controller) Name() string { return "nodetype.estimate" }

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		Watches(&v1alpha1.Machine{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, queue queue) { c.observe(e.Object, nil, queue) },
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue queue) { c.observe(e.ObjectNew, e.ObjectOld, queue) },
		}).
		Complete(c)
}

// observe stores the sample of a Machine that has just joined, or that is seen for the first time.
func (c *Controller) observe(object, before client.Object, queue queue) {
	machine, ok := object.(*v1alpha1.Machine)
	if !ok {
		return
	}
	took, joined := sampleOf(machine)
	if !joined {
		return
	}
	if old, ok := before.(*v1alpha1.Machine); ok {
		if _, joined := sampleOf(old); joined {
			return
		}
	}
	name := machine.Status.NodeTypeRef.Name
	c.lock.Lock()
	if c.waiting[name] == nil {
		c.waiting[name] = map[types.UID]sample{}
	}
	c.waiting[name][machine.UID] = took
	c.lock.Unlock()
	queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, settlePeriod)
}

// Reconcile counts the Machines of a NodeType that have joined since it was written last.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	samples, more := c.due(request.Name)
	var wait time.Duration
	if more {
		wait = settlePeriod
	}
	if len(samples) == 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	nodeType := &v1alpha1.NodeType{}
	if err := c.client.Get(ctx, request.NamespacedName, nodeType); err != nil {
		if apierrors.IsNotFound(err) {
			c.forget(request.Name, samples)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting NodeType %s, %w", request.Name, err)
	}
	before := nodeType.DeepCopy()
	nodeType.Status.Provisioning = next(before.Status.Provisioning, samples)
	if nodeType.Status.Provisioning == nil || (before.Status.Provisioning != nil &&
		*before.Status.Provisioning == *nodeType.Status.Provisioning) {
		c.forget(request.Name, samples)
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	// The resource version in the object makes the update fail if it is stale, so nothing is counted twice.
	if err := c.client.Status().Update(ctx, nodeType); err != nil {
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: settlePeriod}, nil // the cache has not caught up yet
		}
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("writing the estimate of NodeType %s, %w", request.Name, err))
	}
	c.forget(request.Name, samples)
	return reconcile.Result{RequeueAfter: wait}, nil
}

// due returns the samples of a type that are old enough to be counted, and whether there are younger ones.
func (c *Controller) due(name string) (due []sample, more bool) {
	limit := c.clock.Now().Add(-settlePeriod)
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, sample := range c.waiting[name] {
		if sample.joined.After(limit) {
			more = true
		} else {
			due = append(due, sample)
		}
	}
	return due, more
}

func (c *Controller) forget(name string, samples []sample) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, sample := range samples {
		delete(c.waiting[name], sample.machine)
	}
	if len(c.waiting[name]) == 0 {
		delete(c.waiting, name)
	}
}
