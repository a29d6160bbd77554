// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// noServerMemory is how long a NodePool counts as one that gets no server of a type, unless it gets one. Instance
	// types do not show the reason, for example a quota or another tenant.
	noServerMemory = 5 * time.Minute
	// firstRetry is how long a type is not offered after the manager found no server although the catalog showed a free
	// one, or after a Machine of that name could not be created.
	firstRetry = time.Second
	// firstBackoff is the delay after any other refusal. A stale cache is up to date by then.
	firstBackoff = 10 * time.Second
	// maxPlaceBackoff is the longest delay if one requested place had no free server: the type is offered nowhere then.
	maxPlaceBackoff = 20 * time.Second
	// gangPeriod is how long a NodeClaim waits for the others of its gang. Core makes all of them at one time.
	gangPeriod = 30 * time.Second
	// maxBackoff is the longest delay, reached by doubling. A refusal is remembered that much longer.
	maxBackoff = 10 * time.Minute
)

// refusals remembers recent refusals. A type that was refused to a NodePool is not offered to it for a while. Otherwise
// core would make the same NodeClaims again every ten seconds, for ever.
type refusals struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	// byType has the last refusal of each poolType. mu guards it.
	byType map[poolType]refusal
	// noServer has each poolType that lacked even one server and has got none since.
	noServer *cache.Expiring
	// incomplete has the time since which a NodeClaim, by UID, waits for the others of its gang.
	incomplete *cache.Expiring
}

func newRefusals(clk clock.Clock) *refusals {
	return &refusals{clock: clk, byType: map[poolType]refusal{}, noServer: cache.NewExpiringWithClock(clk),
		incomplete: cache.NewExpiringWithClock(clk)}
}

// waitsTooLong reports whether a NodeClaim has waited for its gang so long that core will not make the others any more.
// Core was killed between two of them, or planned another number of servers than it was asked about.
func (r *refusals) waitsTooLong(nodeClaim types.UID) bool {
	now := r.clock.Now()
	since, found := r.incomplete.Get(nodeClaim)
	if !found {
		since = now
		r.incomplete.Set(nodeClaim, since, maxBackoff)
	}
	return now.Sub(since.(time.Time)) >= gangPeriod
}

// poolType is the NodePool and the type of a refusal. pods is empty, or the only size of pods that is refused.
type poolType struct{ nodePool, nodeType, pods string }

// dependsOn reports whether an edit of the object may end a refusal. A NodePool may have any class.
func (p poolType) dependsOn(object client.Object) bool {
	switch object.(type) {
	case *karpv1.NodePool:
		return p.nodePool == object.GetName()
	case *v1alpha1.NodeType:
		return p.nodeType == object.GetName()
	}
	return true
}

// refusal is the last refusal of a type to a NodePool.
type refusal struct {
	// place selects some of the type's servers. It is empty for any.
	place string
	// since is when the type was refused, until is how long it is not offered, and forgotten how long the delay doubles.
	since, until, forgotten time.Time
	reason, message         string
}

// record records a refusal to a NodeClaim whose launch began at that time. It returns false if core made the NodeClaim
// before it knew of an earlier refusal, or if the same refusal still lasts. Each further refusal doubles the delay.
func (r *refusals) record(key poolType, place string, began time.Time, condition metav1.Condition) (refusal, bool) {
	now, delay, longest := r.clock.Now(), firstBackoff, maxBackoff
	switch condition.Reason {
	case v1alpha1.ReasonNoCapacity, v1alpha1.ReasonNoMatchingType, v1alpha1.ReasonQuotaExceeded, reasonMachineDeleted,
		reasonNameTaken: // the next NodeClaim has another name
		delay = firstRetry
	case reasonPodNotPlaced:
		delay, longest = firstHoldback, maxHoldback
	}
	ofPlace := condition.Reason == v1alpha1.ReasonNoCapacity // any other reason is the same in all places
	if ofPlace && place != "" {
		longest = maxPlaceBackoff
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byType, func(_ poolType, old refusal) bool { return !now.Before(old.forgotten) })
	if previous, found := r.byType[key]; found {
		if began.Before(previous.since) || now.Before(previous.until) {
			return previous, false
		}
		if !ofPlace || previous.place == place {
			delay = min(max(2*previous.until.Sub(previous.since), delay), longest)
		}
	}
	recorded := refusal{place: place, since: now, until: now.Add(delay), forgotten: now.Add(delay + longest),
		reason: condition.Reason, message: condition.Message}
	r.byType[key] = recorded
	return recorded, true
}

// find returns the refusal that keeps a type from being offered to a NodePool now.
func (r *refusals) find(key poolType) (refusal, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.byType[key]; r.clock.Now().Before(found.until) {
		return found, true
	}
	return refusal{}, false
}

// forget ends the refusals that meet the condition.
func (r *refusals) forget(ends func(poolType, refusal) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byType, ends)
}

// Watch ends refusals when something that they depend on changes.
func (c *CloudProvider) Watch(ctx context.Context, inTenant, inManagement ctrlcache.Informers) error {
	for kind, informers := range map[client.Object]ctrlcache.Informers{
		&karpv1.NodePool{}: inTenant, &v1alpha1.MetalNodeClass{}: inTenant,
		&v1alpha1.NodeType{}: inManagement, &v1alpha1.TenantCluster{}: inManagement, &v1alpha1.Machine{}: inManagement,
	} {
		_, _, err := kube.Watch(ctx, informers, kind, toolscache.ResourceEventHandlerFuncs{
			UpdateFunc: func(before, after any) { c.changed(before.(client.Object), after.(client.Object)) },
			DeleteFunc: func(gone any) {
				if gone, ok := gone.(client.Object); ok { // a deletion that is noticed late ends none
					c.changed(gone, nil)
				}
			},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// incurable are the reasons of refusals that no server ends. A server that the tenant gives back ends all others,
// because an address and a share of its quotas become free with it.
var incurable = []string{v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonNotAllowed, reasonPodNotPlaced}

// changed ends the refusals that may be wrong after a change. after is nil if the object is gone. A change of a status
// ends none, except that servers become free: heartbeats would end refusals all the time.
func (c *CloudProvider) changed(before, after client.Object) {
	edited := after == nil || after.GetUID() != before.GetUID() || after.GetGeneration() != before.GetGeneration()
	freed, released := false, false
	switch before := before.(type) {
	case *v1alpha1.NodeType:
		after, exists := after.(*v1alpha1.NodeType)
		freed = exists && after.Status.Capacity.Available > before.Status.Capacity.Available
	case *v1alpha1.Machine:
		edited, released = false, after == nil && before.Status.HostRef != nil
	}
	if !edited && !freed && !released {
		return
	}
	c.holdbacks.mu.Lock()
	for _, seen := range c.holdbacks.notPlaced {
		seen.outdated = seen.outdated || edited && seen.key.dependsOn(before)
	}
	c.holdbacks.mu.Unlock()
	c.refusals.forget(func(key poolType, old refusal) bool {
		return key.dependsOn(before) && (edited || freed && old.reason == v1alpha1.ReasonNoCapacity ||
			released && !slices.Contains(incurable, old.reason))
	})
	c.management.Catalog.Notify()
}

// launch is one call of Create, and the state that it saw when it began.
type launch struct {
	nodeClaim *karpv1.NodeClaim
	// nodePool is nil if it is gone: core does not make the NodeClaim again then.
	nodePool *karpv1.NodePool
	began    time.Time
	// places has the wanted place of each type that looked free. Other types are not offered anyway.
	places map[string]string
}

// newLaunch returns a launch for a NodeClaim. types are the types that the tenant may get.
func (c *CloudProvider) newLaunch(ctx context.Context, nodeClaim *karpv1.NodeClaim,
	types []*cloudprovider.InstanceType) (launch, error) {
	nodePool, err := c.nodePoolOf(ctx, nodeClaim)
	if err != nil {
		return launch{}, createError(reasonNodePoolUnavailable, err)
	}
	l := launch{nodeClaim: nodeClaim, nodePool: nodePool, began: c.clock.Now(), places: map[string]string{}}
	if nodePool == nil {
		return l, nil
	}
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...)
	for _, instanceType := range types {
		if instancetypes.HasFree(instanceType, wanted) {
			l.places[instanceType.Name] = placeOf(instanceType.Requirements, wanted)
		}
	}
	return l, nil
}

// placeOf returns which servers of a type are wanted, by their differing labels. It is empty if all are wanted.
func placeOf(offered, wanted scheduling.Requirements) string {
	var parts []string
	for key, all := range offered {
		if all.Operator() != corev1.NodeSelectorOpIn || all.Len() < 2 || !wanted.Has(key) {
			continue
		}
		if some := all.Intersection(wanted.Get(key)); some.Len() < all.Len() {
			parts = append(parts, key+"="+strings.Join(slices.Sorted(slices.Values(some.Values())), ","))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ";")
}

const untilChanged = "unless the NodePool, its MetalNodeClass, the NodeType or the TenantCluster changes"

// lacksServer reports whether a refusal for the reason means that not even one more server is available for the
// NodePool. A gang lacks the last of several servers, and a rate limit ends by itself.
func (l launch) lacksServer(reason string) bool {
	switch reason {
	case v1alpha1.ReasonNoCapacity, v1alpha1.ReasonNoMatchingType, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonNoAddress:
		return len(v1alpha1.GangsOf(l.nodeClaim)) == 0
	}
	return false
}

// backOff keeps core from asking for the same again. It publishes an event if the delay is long.
func (c *CloudProvider) backOff(l launch, condition metav1.Condition) {
	var until time.Time
	var begun []string
	for _, nodeType := range slices.Sorted(maps.Keys(l.places)) {
		key := poolType{nodePool: l.nodePool.Name, nodeType: nodeType}
		if l.lacksServer(condition.Reason) {
			c.refusals.noServer.Set(key, true, noServerMemory)
		}
		recorded, begins := c.refusals.record(key, l.places[nodeType], l.began, condition)
		if begins && recorded.until.Sub(recorded.since) >= firstBackoff {
			until, begun = recorded.until, append(begun, nodeType)
		}
	}
	if len(begun) == 0 {
		return
	}
	c.recorder.Publish(tenant.Warning(l.nodePool, reasonServerRefused, fmt.Sprintf("no NodeClaim is made for NodeType "+
		"%s before %s, %s: %s: %s",
		strings.Join(begun, ", "), until.UTC().Format(time.RFC3339), untilChanged, condition.Reason, condition.Message)))
}

// refused returns the refusal that keeps a type from being offered to the NodePool of a scope.
func (c *CloudProvider) refused(s scope, nodeType string) (refusal, bool) {
	if s.nodePool == nil {
		return refusal{}, false
	}
	return c.refusals.find(poolType{nodePool: s.nodePool.Name, nodeType: nodeType})
}

// Refusal returns why a NodePool that gives back a server of a type would not even get it again, or "".
func (c *CloudProvider) Refusal(ctx context.Context, nodePool *karpv1.NodePool, nodeType string) (string, error) {
	s, err := c.scopeOf(ctx, nodePool)
	if err != nil {
		return "", err
	}
	found, _ := c.refused(s, nodeType)
	switch found.reason {
	case reasonInvalidMachine, v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonNotAllowed:
		return fmt.Sprintf("NodePool %s would get no server of NodeType %s again: %s: %s", nodePool.Name, nodeType,
			found.reason, found.message), nil
	}
	return "", nil
}

// RefusedLately reports whether a NodePool was refused a server of a type within the last five minutes because none was
// available, and has got none since.
func (c *CloudProvider) RefusedLately(nodePool, nodeType string) bool {
	_, found := c.refusals.noServer.Get(poolType{nodePool: nodePool, nodeType: nodeType})
	return found
}
