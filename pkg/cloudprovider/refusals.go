// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
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
	// byType has a refusal by poolType. noServer has each poolType that lacked even one server and has got none since.
	byType, noServer *cache.Expiring
	// incomplete has the time since which a NodeClaim, by UID, waits for the others of its gang.
	incomplete *cache.Expiring
}

func newRefusals(clk clock.Clock) refusals {
	return refusals{clock: clk, byType: cache.NewExpiringWithClock(clk), noServer: cache.NewExpiringWithClock(clk),
		incomplete: cache.NewExpiringWithClock(clk)}
}

// waitsTooLong reports whether a NodeClaim has waited for its gang so long that core will not make the others any more.
// Core was killed between two of them, or planned another number of servers than it was asked about.
func (r refusals) waitsTooLong(nodeClaim types.UID) bool {
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

// attempt is a NodeClaim's request for a type.
type attempt struct {
	generation generation
	// place selects some of the type's servers. It is empty for any.
	place string
}

// refusal is the last refusal of a type to a NodePool.
type refusal struct {
	attempt
	// since is when the type was refused, and until is how long it is not offered.
	since, until    time.Time
	reason, message string
}

// generation identifies everything that a refusal depends on. A refusal of another generation no longer counts.
type generation struct {
	nodePool, class, tenant, nodeType objectVersion
	// freed counts how often servers of the type became free. released counts the servers that the tenant has given
	// back; with each, addresses and shares of quotas become free.
	freed, released uint64
}

type objectVersion struct {
	uid        types.UID
	generation int64
}

func versionOf(object client.Object) objectVersion {
	return objectVersion{object.GetUID(), object.GetGeneration()}
}

// generation returns the current state of everything that a refusal depends on.
func (c *CloudProvider) generation(s scope, nodeType string) generation {
	g := generation{nodePool: versionOf(s.nodePool), class: versionOf(s.class), tenant: versionOf(s.tenant),
		released: c.management.released.Load()}
	if current, freed := c.management.Catalog.NodeType(nodeType); current != nil {
		g.nodeType, g.freed = versionOf(current), freed
	}
	return g
}

// after clears the parts of the generation that do not affect a refusal for the reason.
func (g generation) after(reason string) generation {
	switch reason {
	case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonNotAllowed, reasonPodNotPlaced:
		g.freed, g.released = 0, 0
	case v1alpha1.ReasonNoCapacity:
	default:
		g.freed = 0 // a server of another tenant brings neither an address nor a share of the quota
	}
	return g
}

// record records a refusal to a NodeClaim whose launch began at that time. It returns false if core made the NodeClaim
// before it knew of an earlier refusal, or if the same refusal still lasts. Each further refusal doubles the delay.
func (r refusals) record(key poolType, refused attempt, began time.Time, condition metav1.Condition) (refusal, bool) {
	now, delay, longest := r.clock.Now(), firstBackoff, maxBackoff
	switch condition.Reason {
	case v1alpha1.ReasonNoCapacity, v1alpha1.ReasonNoMatchingType, v1alpha1.ReasonQuotaExceeded, reasonMachineDeleted,
		reasonNameTaken: // the next NodeClaim has another name
		delay = firstRetry
	case reasonPodNotPlaced:
		delay, longest = firstHoldback, maxHoldback
	}
	ofPlace := condition.Reason == v1alpha1.ReasonNoCapacity // any other reason is the same in all places
	if ofPlace && refused.place != "" {
		longest = maxPlaceBackoff
	}
	if stored, found := r.byType.Get(key); found {
		previous, _ := stored.(refusal)
		same := previous.generation == refused.generation.after(previous.reason)
		if began.Before(previous.since) || same && now.Before(previous.until) {
			return previous, false
		}
		if same && (!ofPlace || previous.place == refused.place) {
			delay = min(max(2*previous.until.Sub(previous.since), delay), longest)
		}
	}
	refused.generation = refused.generation.after(condition.Reason)
	recorded := refusal{attempt: refused, since: now, until: now.Add(delay), reason: condition.Reason, message: condition.Message}
	r.byType.Set(key, recorded, delay+longest)
	return recorded, true
}

// find returns the refusal that keeps a type from being offered to a NodePool now.
func (r refusals) find(key poolType, current generation) (refusal, bool) {
	stored, _ := r.byType.Get(key)
	found, _ := stored.(refusal)
	if !r.clock.Now().Before(found.until) || found.generation != current.after(found.reason) {
		return refusal{}, false
	}
	return found, true
}

// launch is one call of Create, and the state that it saw when it began.
type launch struct {
	nodeClaim *karpv1.NodeClaim
	// nodePool is nil if it is gone: core does not make the NodeClaim again then.
	nodePool *karpv1.NodePool
	began    time.Time
	// types are the types that looked free, with the request for each. Other types are not offered anyway.
	types map[string]attempt
}

// newLaunch returns a launch for a NodeClaim of that class. types are the types that the tenant may get.
func (c *CloudProvider) newLaunch(ctx context.Context, nodeClaim *karpv1.NodeClaim, class *v1alpha1.MetalNodeClass,
	tenant *v1alpha1.TenantCluster, types []*cloudprovider.InstanceType) (launch, error) {
	nodePool, err := c.nodePoolOf(ctx, nodeClaim)
	if err != nil {
		return launch{}, createError(reasonNodePoolUnavailable, err)
	}
	l := launch{nodeClaim: nodeClaim, nodePool: nodePool, began: c.clock.Now(), types: map[string]attempt{}}
	if nodePool == nil {
		return l, nil
	}
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...)
	for _, instanceType := range types {
		if instancetypes.HasFree(instanceType, wanted) {
			depends := c.generation(scope{nodePool: nodePool, class: class, tenant: tenant}, instanceType.Name)
			l.types[instanceType.Name] = attempt{depends, placeOf(instanceType.Requirements, wanted)}
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
	for _, nodeType := range slices.Sorted(maps.Keys(l.types)) {
		if l.lacksServer(condition.Reason) {
			c.refusals.noServer.Set(poolType{nodePool: l.nodePool.Name, nodeType: nodeType}, true, noServerMemory)
		}
		recorded, begins := c.refusals.record(poolType{nodePool: l.nodePool.Name, nodeType: nodeType}, l.types[nodeType], l.began, condition)
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
	if s.nodePool == nil || c.refusals.byType.Len() == 0 {
		return refusal{}, false
	}
	return c.refusals.find(poolType{nodePool: s.nodePool.Name, nodeType: nodeType}, c.generation(s, nodeType))
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
