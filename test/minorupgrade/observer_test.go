// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package minorupgrade

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// observer sees each change of servers, NodeClaims and pods.
type observer struct {
	t     *testing.T
	start time.Time

	lock sync.Mutex
	// installed is how often the installation of each server has begun.
	installed map[string]int
	// disrupted are the NodeClaims that have drifted or are deleted, by what was seen of each first.
	disrupted map[string]string
	// deleting are the NodeClaims that are deleted and not drained yet, which is what budgets count, and mostDeleting how many were at one
	// time.
	deleting     map[string]bool
	mostDeleting int
	// ready are the pods that run and stay, and leastReady is how many there were at one time.
	ready      map[string]bool
	leastReady int
}

func observe(t *testing.T, management, tenant *rest.Config) *observer {
	t.Helper()
	o := &observer{t: t, start: time.Now(), installed: map[string]int{}, disrupted: map[string]string{}, deleting: map[string]bool{},
		ready: map[string]bool{}}
	o.watch(management, &bmov1alpha1.BareMetalHost{}, o.hostChanged)
	o.watch(tenant, &karpv1.NodeClaim{}, o.claimChanged)
	o.watch(tenant, &corev1.Pod{}, o.podChanged)
	return o
}

// watch calls the function with each object before and after a change. The one before is nil if it is new, and the other if it is gone.
func (o *observer) watch(config *rest.Config, object client.Object, changed func(before, after any)) {
	o.t.Helper()
	objects, err := cache.New(config, cache.Options{Scheme: env.Scheme()})
	if err != nil {
		o.t.Fatal(err)
	}
	informer, err := objects.GetInformer(o.t.Context(), object, cache.BlockUntilSynced(false))
	if err != nil {
		o.t.Fatal(err)
	}
	locked := func(before, after any) {
		o.lock.Lock()
		defer o.lock.Unlock()
		changed(before, after)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(after any) { locked(nil, after) }, UpdateFunc: locked,
		DeleteFunc: func(before any) {
			if unknown, is := before.(toolscache.DeletedFinalStateUnknown); is {
				before = unknown.Obj
			}
			locked(before, nil)
		},
	}); err != nil {
		o.t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := objects.Start(o.t.Context()); err != nil {
			o.t.Error(err)
		}
	})
	o.t.Cleanup(ended.Wait) // the context ends before
	if !objects.WaitForCacheSync(o.t.Context()) {
		o.t.Fatalf("watching %T has not begun", object)
	}
}

// say logs with the time since the start.
func (o *observer) say(format string, args ...any) {
	o.t.Logf("%7s  %s", time.Since(o.start).Round(time.Second), fmt.Sprintf(format, args...))
}

func (o *observer) hostChanged(before, after any) {
	was, had := before.(*bmov1alpha1.BareMetalHost)
	is, has := after.(*bmov1alpha1.BareMetalHost)
	if had && has && was.Status.Provisioning.State != is.Status.Provisioning.State &&
		is.Status.Provisioning.State == bmov1alpha1.StateProvisioning {
		o.installed[is.Name]++
		o.say("server %s is installed", is.Name)
	}
}

func (o *observer) claimChanged(before, after any) {
	claim, exists := after.(*karpv1.NodeClaim)
	if !exists {
		claim = before.(*karpv1.NodeClaim)
		delete(o.deleting, claim.Name)
		o.say("NodeClaim %s is gone", claim.Name)
		return
	}
	seen := ""
	switch {
	case before == nil:
		o.say("NodeClaim %s is made", claim.Name)
	case !claim.DeletionTimestamp.IsZero():
		seen = "deleted"
		delete(o.deleting, claim.Name)
		if !claim.StatusConditions().Get(karpv1.ConditionTypeInstanceTerminating).IsTrue() {
			o.deleting[claim.Name] = true
		}
		o.mostDeleting = max(o.mostDeleting, len(o.deleting))
		if was, had := before.(*karpv1.NodeClaim); had && was.DeletionTimestamp.IsZero() {
			o.say("NodeClaim %s is deleted", claim.Name)
		}
	case claim.StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue():
		seen = "drifted: " + claim.StatusConditions().Get(karpv1.ConditionTypeDrifted).Reason
	}
	if seen != "" && o.disrupted[claim.Name] == "" {
		o.disrupted[claim.Name] = seen
		if seen != "deleted" { // that is said already
			o.say("NodeClaim %s is %s", claim.Name, seen)
		}
	}
}

func (o *observer) podChanged(before, after any) {
	pod, exists := after.(*corev1.Pod)
	if !exists {
		pod = before.(*corev1.Pod)
	}
	key := client.ObjectKeyFromObject(pod).String()
	delete(o.ready, key)
	if exists && pod.DeletionTimestamp.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	}) {
		o.ready[key] = true
	}
	o.leastReady = min(o.leastReady, len(o.ready))
}

// countReady begins to count how many pods are ready at least, and returns how often each server was installed before.
func (o *observer) countReady() map[string]int {
	o.lock.Lock()
	o.leastReady = len(o.ready)
	o.lock.Unlock()
	return o.installations()
}

// installations returns how often each server was installed so far.
func (o *observer) installations() map[string]int {
	o.lock.Lock()
	defer o.lock.Unlock()
	return maps.Clone(o.installed)
}

// disruptions returns what was seen of NodeClaims that do not stay.
func (o *observer) disruptions() map[string]string {
	o.lock.Lock()
	defer o.lock.Unlock()
	return maps.Clone(o.disrupted)
}

// extremes returns how many NodeClaims were deleted at one time at most, and how many pods were ready at least.
func (o *observer) extremes() (mostDeleting, leastReady int) {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.mostDeleting, o.leastReady
}
