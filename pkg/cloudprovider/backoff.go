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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// launch is one call of Create, with what was known when it began.
type launch struct {
	nodeClaim *karpenterv1.NodeClaim
	scope     scope
	// types that the NodeClaim may get and that looked free.
	types    []*cloudprovider.InstanceType
	began    time.Time
	released uint64
}

// newLaunch returns a launch for a NodeClaim of that class. types are those that the tenant may get.
func (c *CloudProvider) newLaunch(ctx context.Context, nodeClaim *karpenterv1.NodeClaim, class *v1alpha1.MetalNodeClass,
	tenant *v1alpha1.TenantCluster, types []*cloudprovider.InstanceType) (launch, error) {
	nodePool, err := c.nodePoolOf(ctx, nodeClaim)
	if err != nil {
		return launch{}, createError(reasonNodePoolUnavailable, err)
	}
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...)
	return launch{
		nodeClaim: nodeClaim, scope: scope{nodePool: nodePool, class: class, tenant: tenant},
		began: c.clock.Now(), released: c.management.released.Load(),
		types: slices.DeleteFunc(slices.Clone(types), func(one *cloudprovider.InstanceType) bool {
			return !instancetypes.HasFree(one, wanted)
		}),
	}, nil
}

// backOff keeps core from asking for the same again. A type of which no server looked free is not offered anyway.
func (c *CloudProvider) backOff(ctx context.Context, of launch, result claimResult, condition metav1.Condition) {
	if result == noServer {
		c.refusals.recordNoServer(of.nodeClaim.Labels[karpenterv1.NodePoolLabelKey], c.clock.Now())
	}
	nodePool := of.scope.nodePool
	if nodePool == nil {
		return // The NodeClaim is not made again.
	}
	var until time.Time
	var begun []string
	for _, instanceType := range of.types {
		on := c.dependenciesOf(ctx, of.scope, instanceType.Name)
		on.released = of.released
		b, begins := c.refusals.record(poolType{nodePool.Name, instanceType.Name}, on, of.began, c.clock.Now(), condition)
		if begins && b.until.Sub(b.since) >= firstBackoff {
			until, begun = b.until, append(begun, instanceType.Name)
		}
	}
	if len(begun) == 0 {
		return
	}
	c.recorder.Publish(tenant.Warning(nodePool, reasonServerRefused, fmt.Sprintf("no NodeClaim is made for NodeType %s before %s, unless "+
		"the NodePool, its MetalNodeClass, the NodeType or the TenantCluster changes: %s: %s", strings.Join(begun, ", "),
		until.UTC().Format(time.RFC3339), condition.Reason, condition.Message)))
}

// dependenciesOf are those of a refusal of a type as they are now.
func (c *CloudProvider) dependenciesOf(ctx context.Context, of scope, nodeType string) dependencies {
	current := &v1alpha1.NodeType{}
	// It reads from the cache. A type that does not exist any more has no version.
	if err := c.management.Client.Get(ctx, types.NamespacedName{Name: nodeType}, current); err != nil {
		current = &v1alpha1.NodeType{}
	}
	versions := make([]string, 0, 4)
	for _, object := range []client.Object{of.nodePool, of.class, of.tenant, current} {
		versions = append(versions, fmt.Sprintf("%s %d", object.GetUID(), object.GetGeneration()))
	}
	return dependencies{
		versions: strings.Join(versions, " "), available: current.Status.Capacity.Available, released: c.management.released.Load(),
	}
}

// refused returns the backoffs of a NodePool, by type.
func (c *CloudProvider) refused(ctx context.Context, of scope) map[string]backoff {
	if of.nodePool == nil {
		return nil
	}
	var result map[string]backoff
	now := c.clock.Now()
	for nodeType := range c.refusals.backingOff(of.nodePool.Name, now) {
		if b, found := c.refusals.find(poolType{of.nodePool.Name, nodeType}, c.dependenciesOf(ctx, of, nodeType), now); found {
			if result == nil {
				result = map[string]backoff{}
			}
			result[nodeType] = b
		}
	}
	return result
}

// withoutRefused returns the types with no server available of those that were refused lately.
func withoutRefused(types []*cloudprovider.InstanceType, refused map[string]backoff) []*cloudprovider.InstanceType {
	if len(refused) == 0 {
		return types
	}
	for i, instanceType := range types {
		if _, found := refused[instanceType.Name]; found {
			types[i] = instancetypes.Unavailable(instanceType)
		}
	}
	return types
}

// RetryAfter returns how long no type that was refused to a NodePool lately is tried again, and zero if none was.
func (c *CloudProvider) RetryAfter(nodePool string) time.Duration {
	var soonest time.Duration
	now := c.clock.Now()
	for _, until := range c.refusals.backingOff(nodePool, now) {
		if wait := until.Sub(now); soonest == 0 || wait < soonest {
			soonest = wait
		}
	}
	return soonest
}

// Refusal returns why a NodePool would not even get a server of the type that is given back to it. It is empty if nothing
// is known of that.
func (c *CloudProvider) Refusal(ctx context.Context, nodePool *karpenterv1.NodePool, nodeType string) (string, error) {
	if len(c.refusals.backingOff(nodePool.Name, c.clock.Now())) == 0 {
		return "", nil
	}
	of, err := c.scopeOf(ctx, nodePool)
	if err != nil {
		return "", err
	}
	switch b, found := c.refused(ctx, of)[nodeType]; {
	case !found:
		return "", nil
	case b.reason == reasonInvalidMachine, b.reason == v1alpha1.ReasonInvalidSpec, b.reason == v1alpha1.ReasonNotAllowed:
		return fmt.Sprintf("NodePool %s would get no server of NodeType %s again: %s: %s", nodePool.Name, nodeType, b.reason, b.message), nil
	}
	return "", nil
}

// RefusedFor is a message if every NodePool that could get a server for a pod was refused it lately, and empty otherwise.
func (c *CloudProvider) RefusedFor(ctx context.Context, pod *corev1.Pod) (string, error) {
	if !c.refusals.any(c.clock.Now()) {
		return "", nil
	}
	pools := &karpenterv1.NodePoolList{}
	if err := c.tenant.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing NodePools, %w", err)
	}
	var messages []string
	for i := range pools.Items {
		wanted, fits := wantedBy(pod, &pools.Items[i])
		if !fits {
			continue
		}
		of, err := c.scopeOf(ctx, &pools.Items[i])
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		refused := c.refused(ctx, of)
		for _, instanceType := range of.remaining.LimitTypes(c.management.Catalog.ForNodePool(&pools.Items[i]).InstanceTypes(of.filter())) {
			if !instancetypes.HasFree(instanceType, wanted) || !holds(instanceType, resources.RequestsForPods(pod)) {
				continue
			}
			b, found := refused[instanceType.Name]
			if !found {
				return "", nil // Karpenter is working on it.
			}
			messages = append(messages, fmt.Sprintf("NodePool %s gets no server of NodeType %s before %s: %s: %s", pools.Items[i].Name,
				instanceType.Name, b.until.UTC().Format(time.RFC3339), b.reason, b.message))
		}
	}
	return conditions.Truncate(strings.Join(messages, "; "), conditions.MaxEventNote), nil
}

// wantedBy is what a pod and a NodePool require of a server together, and false if the pod cannot run on nodes of the pool.
func wantedBy(pod *corev1.Pod, nodePool *karpenterv1.NodePool) (scheduling.Requirements, bool) {
	template := &nodePool.Spec.Template
	reference := template.Spec.NodeClassRef
	if reference == nil || reference.Group != v1alpha1.Group || nodePool.Spec.Replicas != nil || !nodePool.DeletionTimestamp.IsZero() ||
		scheduling.Taints(template.Spec.Taints).ToleratesPod(pod) != nil {
		return nil, false
	}
	wanted := instancetypes.OfNodePool(nodePool)
	wanted.Add(scheduling.NewRequirement(karpenterv1.NodePoolLabelKey, corev1.NodeSelectorOpIn, nodePool.Name))
	ofPod := scheduling.NewPodRequirements(pod)
	if wanted.Compatible(ofPod, scheduling.AllowUndefinedWellKnownLabels) != nil {
		return nil, false
	}
	wanted.Add(ofPod.Values()...)
	return wanted, true
}

// holds returns whether a server of a type has room for the requests, and may be used for them.
func holds(instanceType *cloudprovider.InstanceType, requests corev1.ResourceList) bool {
	return resources.Fits(requests, instanceType.Allocatable()) &&
		(len(v1alpha1.Accelerators(instanceType.Capacity)) == 0 || v1alpha1.AsksForAccelerator(requests, instanceType.Capacity))
}

const (
	// refusalMemory is how long a NodePool counts as one that gets no server, unless it gets one. The reason, such as a limit, a
	// quota or another tenant, does not show in the instance types.
	refusalMemory = 5 * time.Minute
	// firstRetry is how long a type is not offered after a server that looked free was not: the catalog is up to date by then.
	firstRetry = time.Second
	// firstBackoff is the same after any other refusal, which a retry alone does not change.
	firstBackoff = time.Minute
	// maxBackoff is the longest time. It is reached by doubling.
	maxBackoff = 10 * time.Minute
)

// refusals stores what the manager or the management cluster refused. A type that was refused to a NodePool is not offered
// to it for a while. Without that, core would make the same NodeClaims again every ten seconds, for ever.
type refusals struct {
	mu sync.Mutex
	// noServer is when a NodePool was refused for lack of a server.
	noServer map[string]time.Time
	backoffs map[poolType]backoff
}

type poolType struct{ nodePool, nodeType string }

// backoff is what is known of the refusals of a type to a NodePool.
type backoff struct {
	// since and until are when it was refused last, and how long it is not offered.
	since, until time.Time
	on           dependencies
	reason       string
	message      string
}

// dependencies are what a refusal may depend on.
type dependencies struct {
	// versions of NodePool, class, NodeType and TenantCluster.
	versions string
	// released is how many servers the tenant has given back, and with them addresses and shares of quotas.
	released uint64
	// available is how many servers of the type are free.
	available int32
}

// outdated returns whether a refusal for the reason may be different by now.
func (d dependencies) outdated(reason string, now dependencies) bool {
	switch reason {
	case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonNotAllowed:
		return false
	case v1alpha1.ReasonNoCapacity, v1alpha1.ReasonTooManyPending:
		return now.available > d.available || now.released != d.released
	}
	return now.released != d.released
}

// record a refusal to a NodeClaim whose launch began at that time, and return whether a backoff begins.
func (r *refusals) record(key poolType, on dependencies, began, now time.Time, condition metav1.Condition) (backoff, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.backoffs, func(_ poolType, b backoff) bool { return now.Sub(b.until) > maxBackoff })
	before, found := r.backoffs[key]
	found = found && before.on.versions == on.versions
	if found && (now.Before(before.until) || began.Before(before.since)) {
		return before, false // Core made the NodeClaim before it knew.
	}
	delay := firstBackoff
	switch condition.Reason {
	case v1alpha1.ReasonNoCapacity, v1alpha1.ReasonNoMatchingType, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonTooManyPending:
		delay = firstRetry
	}
	if found {
		delay = min(max(2*before.until.Sub(before.since), delay), maxBackoff)
	}
	after := backoff{since: now, until: now.Add(delay), on: on, reason: condition.Reason, message: condition.Message}
	if r.backoffs == nil {
		r.backoffs = map[poolType]backoff{}
	}
	r.backoffs[key] = after
	return after, true
}

// find the backoff of a type for a NodePool. It is gone once what it depends on has changed.
func (r *refusals) find(key poolType, current dependencies, now time.Time) (backoff, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, found := r.backoffs[key]
	if !found || !now.Before(b.until) {
		return backoff{}, false
	}
	if b.on.versions != current.versions {
		delete(r.backoffs, key)
		return backoff{}, false
	}
	if b.on.outdated(b.reason, current) {
		b.until = now // the next refusal still makes it longer
		r.backoffs[key] = b
		return backoff{}, false
	}
	if current.available < b.on.available {
		b.on.available = current.available
		r.backoffs[key] = b
	}
	return b, true
}

// backingOff returns the types with a backoff for a NodePool, until any of them may be tried again. Nil if there are none.
func (r *refusals) backingOff(nodePool string, now time.Time) map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	var result map[string]time.Time
	for key, b := range r.backoffs {
		if key.nodePool != nodePool || !now.Before(b.until) {
			continue
		}
		if result == nil {
			result = map[string]time.Time{}
		}
		result[key.nodeType] = b.until
	}
	return result
}

// any returns whether there is any backoff.
func (r *refusals) any(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.backoffs {
		if now.Before(b.until) {
			return true
		}
	}
	return false
}

func (r *refusals) recordNoServer(nodePool string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.noServer == nil {
		r.noServer = map[string]time.Time{}
	}
	r.noServer[nodePool] = now
}

// forget what was refused to a NodePool that has got a server of the type.
func (r *refusals) forget(key poolType) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.noServer, key.nodePool)
	delete(r.backoffs, key)
}

func (r *refusals) lately(nodePool string, clk clock.PassiveClock) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, found := r.noServer[nodePool]
	return found && clk.Since(since) < refusalMemory
}

// RefusedLately returns whether a NodeClaim of the NodePool was refused within the last five minutes for lack of a server, and
// none has got one since.
func (c *CloudProvider) RefusedLately(nodePool string) bool {
	return c.refusals.lately(nodePool, c.clock)
}
