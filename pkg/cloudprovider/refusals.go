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
	// noServerMemory is how long a NodePool counts as one that gets no server of a type, unless it gets one. The reason, such as a
	// quota or another tenant, does not show in the instance types.
	noServerMemory = 5 * time.Minute
	// firstRetry is how long a type is not offered after a server that looked free was not, when the catalog is up to date, or after a
	// Machine of that name could not be had.
	firstRetry = time.Second
	// firstBackoff is the same after any other refusal. A cache that was behind is up to date by then.
	firstBackoff = 10 * time.Second
	// maxPlaceBackoff is the longest time if no server was free in the one place that was asked for: the type is not offered in other
	// places meanwhile.
	maxPlaceBackoff = 20 * time.Second
	// gangPeriod is how long NodeClaims wait for the others of their gang, which core makes at one time.
	gangPeriod = 30 * time.Second
	// maxBackoff is the longest time, which is reached by doubling, and how much longer a refusal is remembered for that.
	maxBackoff = 10 * time.Minute
)

// refusals has what was refused lately. A type that was refused to a NodePool is not offered to it for a while.
// Without that, core would make the same NodeClaims again every ten seconds, for ever.
type refusals struct {
	clock clock.PassiveClock
	// byType has a refusal for a poolType, and noServer each poolType that was refused for lack of one server, and has got none since.
	byType, noServer *cache.Expiring
	// incomplete has since when a NodeClaim, by UID, waits for the others of its gang.
	incomplete *cache.Expiring
}

func newRefusals(clk clock.Clock) refusals {
	return refusals{clock: clk, byType: cache.NewExpiringWithClock(clk), noServer: cache.NewExpiringWithClock(clk),
		incomplete: cache.NewExpiringWithClock(clk)}
}

// waitsTooLong returns whether a NodeClaim has waited for the others of its gang for so long that core makes none of them any more: it was
// killed between two of them, or has planned another number of servers than it was asked about.
func (r refusals) waitsTooLong(nodeClaim types.UID) bool {
	now := r.clock.Now()
	since, found := r.incomplete.Get(nodeClaim)
	if !found {
		since = now
		r.incomplete.Set(nodeClaim, since, maxBackoff)
	}
	return now.Sub(since.(time.Time)) >= gangPeriod
}

// poolType is what was refused to whom. pods is empty, or the size of the pods that alone get none.
type poolType struct{ nodePool, nodeType, pods string }

// attempt is what a NodeClaim asked for of a type.
type attempt struct {
	generation generation
	// place is which of the type's servers, empty for any.
	place string
}

// refusal is the last one of a type to a NodePool.
type refusal struct {
	attempt
	// since and until are when it was refused, and how long it is not offered.
	since, until    time.Time
	reason, message string
}

// generation is that of everything on which a refusal depends. Once it is another, the refusal says nothing any more.
type generation struct {
	nodePool, class, tenant, nodeType objectVersion
	// freed is how often servers of the type became free. released is how many servers the tenant has given back, and
	// with them addresses and shares of quotas.
	freed, released uint64
}

type objectVersion struct {
	uid        types.UID
	generation int64
}

func versionOf(object client.Object) objectVersion {
	return objectVersion{object.GetUID(), object.GetGeneration()}
}

// generation returns what a refusal of a type to the NodePool of a scope depends on now.
func (c *CloudProvider) generation(s scope, nodeType string) generation {
	g := generation{nodePool: versionOf(s.nodePool), class: versionOf(s.class), tenant: versionOf(s.tenant),
		released: c.management.released.Load()}
	if current, freed := c.management.Catalog.NodeType(nodeType); current != nil {
		g.nodeType, g.freed = versionOf(current), freed
	}
	return g
}

// after leaves out what changes nothing about a refusal for the reason.
func (g generation) after(reason string) generation {
	switch reason {
	case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonNotAllowed, reasonPodNotPlaced:
		g.freed, g.released = 0, 0
	case v1alpha1.ReasonNoCapacity, v1alpha1.ReasonTooManyPending:
	default:
		g.freed = 0 // a server of another tenant brings neither an address nor a share of the quota
	}
	return g
}

// record a refusal to a NodeClaim whose launch began at that time. It returns false if core made the
// NodeClaim before it knew of an earlier refusal. What is refused again, although nothing has changed, is tried ever
// more seldom.
func (r refusals) record(key poolType, refused attempt, began time.Time, condition metav1.Condition) (refusal, bool) {
	now, delay, longest := r.clock.Now(), firstBackoff, maxBackoff
	switch condition.Reason {
	case v1alpha1.ReasonNoCapacity, v1alpha1.ReasonNoMatchingType, v1alpha1.ReasonQuotaExceeded,
		v1alpha1.ReasonTooManyPending, reasonMachineDeleted, reasonNameTaken: // the next NodeClaim has another name
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

// find returns the refusal because of which a type is not offered to a NodePool now.
func (r refusals) find(key poolType, current generation) (refusal, bool) {
	stored, _ := r.byType.Get(key)
	found, _ := stored.(refusal)
	if !r.clock.Now().Before(found.until) || found.generation != current.after(found.reason) {
		return refusal{}, false
	}
	return found, true
}

// launch is one call of Create, with what was known when it began.
type launch struct {
	nodeClaim *karpv1.NodeClaim
	// nodePool is nil if it is gone: then the NodeClaim is not made again.
	nodePool *karpv1.NodePool
	began    time.Time
	// types that looked free, with what is asked of each. The others are not offered anyway.
	types map[string]attempt
}

// newLaunch returns a launch for a NodeClaim of that class. types are those that the tenant may get.
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

// placeOf returns which of the servers of a type are wanted, by the labels in which they differ. It is empty if all are.
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

// lacksServer returns whether a refusal for the reason says that there is not even one more server for the NodePool. A gang lacks the last
// of several, and a rate ends by itself.
func (l launch) lacksServer(reason string) bool {
	switch reason {
	case v1alpha1.ReasonNoCapacity, v1alpha1.ReasonNoMatchingType, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonNoAddress:
		return len(v1alpha1.GangsOf(l.nodeClaim)) == 0
	}
	return false
}

// backOff keeps core from asking for the same again, and publishes an event if that is for long.
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

// refused returns the refusal because of which a type is not offered to the NodePool of a scope.
func (c *CloudProvider) refused(s scope, nodeType string) (refusal, bool) {
	if s.nodePool == nil || c.refusals.byType.Len() == 0 {
		return refusal{}, false
	}
	return c.refusals.find(poolType{nodePool: s.nodePool.Name, nodeType: nodeType}, c.generation(s, nodeType))
}

// Refusal returns why a NodePool would not even get a server of the type that is given back to it. It is empty if
// nothing is known of that.
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

// RefusedLately returns whether a server of a type was refused to the NodePool within the last five minutes because there was none, and it
// has got none since.
func (c *CloudProvider) RefusedLately(nodePool, nodeType string) bool {
	_, found := c.refusals.noServer.Get(poolType{nodePool: nodePool, nodeType: nodeType})
	return found
}
