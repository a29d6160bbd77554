// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy reads the settings for Dynamic Resource Allocation from the TenantCluster: which objects are synced,
// and which device classes a tenant may see and ask for.
package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Policy decides which device classes of the host one tenant may see and request.
type Policy struct {
	enabled  bool
	selector labels.Selector
	hidden   []v1alpha1.DeviceClassPart
}

// NewPolicy returns the policy from a tenant's settings, or an error if the selector does not parse.
func NewPolicy(sync *v1alpha1.DeviceClassSync) (Policy, error) {
	selector, err := sync.LabelSelector()
	if err != nil {
		return Policy{}, fmt.Errorf("the selector in spec.sync.fromHost.deviceClasses.selector does not parse, correct it: %w", err)
	}
	return Policy{enabled: sync.Enabled, selector: selector, hidden: sync.Hidden}, nil
}

// Enabled reports whether the classes are synced. If not, no class is allowed, and none is deleted.
func (p Policy) Enabled() bool { return p.enabled }

// Allows reports whether the tenant may see and request a class of the host. It allows neither nil, for a class that
// does not exist, nor a class that is being deleted.
func (p Policy) Allows(class *resourcev1.DeviceClass) bool {
	return p.enabled && class != nil && class.DeletionTimestamp.IsZero() && p.selector.Matches(labels.Set(class.Labels))
}

// Hides reports whether a part of the classes is hidden from the tenant.
func (p Policy) Hides(part v1alpha1.DeviceClassPart) bool {
	return slices.Contains(p.hidden, part)
}

// WhyNot tells the tenant why it may not ask for a class, in the words of vCluster's events. To a tenant with a
// selector it does not reveal whether the host has a hidden class.
func (p Policy) WhyNot(class string) string {
	switch {
	case !p.enabled:
		return fmt.Sprintf("Device class %s is not available: 'sync.fromHost.deviceClasses' is not enabled", class)
	case p.selector.Empty():
		return fmt.Sprintf("Device class %s does not exist in the host", class)
	default:
		return fmt.Sprintf("Device class %s does not match the selector under 'sync.fromHost.deviceClasses.selector' (%s)", class, p.selector)
	}
}

// Resources are the container resources for which kube-scheduler makes a claim, because a device class serves them.
type Resources struct {
	policy Policy
	// allowed and denied are the resource names that the classes of the host serve. kube-scheduler takes the newest
	// class that serves a name, so one class that the tenant may not ask for is enough to deny the name.
	allowed, denied sets.Set[corev1.ResourceName]
}

// ResourcesOf returns the resources that the classes of the host serve, each by its name and by its
// spec.extendedResourceName.
func (p Policy) ResourcesOf(classes []resourcev1.DeviceClass) Resources {
	r := Resources{policy: p, allowed: sets.New[corev1.ResourceName](), denied: sets.New[corev1.ResourceName]()}
	for i := range classes {
		class, resources := &classes[i], r.denied
		if p.Allows(class) {
			resources = r.allowed
		}
		resources.Insert(corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + class.Name))
		if name := class.Spec.ExtendedResourceName; name != nil {
			resources.Insert(corev1.ResourceName(*name))
		}
	}
	return r
}

// Judge reports whether a class serves a resource of a container. whyNot says why the tenant may not ask for it, "" if
// it may. A class that does not exist may exist later, so Judge denies its name, too.
func (r Resources) Judge(resource corev1.ResourceName) (served bool, whyNot string) {
	class, byClass := strings.CutPrefix(string(resource), resourcev1.ResourceDeviceClassPrefix)
	switch {
	case byClass && !r.allowed.Has(resource):
		return true, r.policy.WhyNot(class)
	case r.denied.Has(resource):
		// The class is not named: the tenant is not told which classes the host has.
		return true, fmt.Sprintf("A device class of the host serves %s, and 'sync.fromHost.deviceClasses' does not give it to this cluster",
			resource)
	default:
		return r.allowed.Has(resource), ""
	}
}

// ForTenant returns a class of the host as the tenant sees it.
func (p Policy) ForTenant(class *resourcev1.DeviceClass) *resourcev1.DeviceClass {
	visible := &resourcev1.DeviceClass{Spec: *class.Spec.DeepCopy()}
	visible.Name = class.Name
	if !p.Hides(v1alpha1.DeviceClassLabels) {
		visible.Labels = maps.Clone(class.Labels)
	}
	if !p.Hides(v1alpha1.DeviceClassAnnotations) {
		visible.Annotations = maps.Clone(class.Annotations)
		// It repeats the whole object, including the hidden parts.
		delete(visible.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	if p.Hides(v1alpha1.DeviceClassConfig) {
		visible.Spec.Config = nil
	}
	if p.Hides(v1alpha1.DeviceClassSelectors) {
		visible.Spec.Selectors = nil
	}
	return visible
}

// Classes returns the names of all device classes that a claim asks for, exactly or as an alternative, sorted.
func Classes(spec *resourcev1.ResourceClaimSpec) []string {
	var names []string
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		if request.Exactly != nil {
			names = append(names, request.Exactly.DeviceClassName)
		}
		for j := range request.FirstAvailable {
			names = append(names, request.FirstAvailable[j].DeviceClassName)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ForHost returns the spec of a tenant's claim for the host, without admin access, which gives devices that others use.
// Even if the namespace of the tenant's copies is labelled for admin access, the tenant must not have it.
func ForHost(spec *resourcev1.ResourceClaimSpec) resourcev1.ResourceClaimSpec {
	result := *spec.DeepCopy()
	for i := range result.Devices.Requests {
		if exactly := result.Devices.Requests[i].Exactly; exactly != nil {
			exactly.AdminAccess = nil
		}
	}
	return result
}

// WantsAdminAccess reports whether a claim asks for the admin access that ForHost removes.
func WantsAdminAccess(spec *resourcev1.ResourceClaimSpec) bool {
	return slices.ContainsFunc(spec.Devices.Requests, func(request resourcev1.DeviceRequest) bool {
		return request.Exactly != nil && request.Exactly.AdminAccess != nil && *request.Exactly.AdminAccess
	})
}

// Settings are the settings in a tenant's TenantCluster. Without a TenantCluster nothing is enabled.
type Settings struct {
	// Sync is spec.sync of the TenantCluster.
	Sync v1alpha1.Sync
	// Policy decides about device classes. It allows nothing if SelectorError is not nil.
	Policy Policy
	// SelectorError: the selector does not parse. What is allowed is unknown, so nothing may be created or deleted.
	SelectorError error
	// UID is the UID of the TenantCluster.
	UID types.UID
	// Servers is spec.quota.servers of the TenantCluster, 0 without one.
	Servers int64
}

// Default limits for the copies of a kind that a tenant may have on the host. A server has 8 accelerators. Each of them
// has up to 7 slices and, for its pods that come and go, one more claim.
const (
	leastCopies     = 1000
	copiesPerServer = 64
)

// MaxCopies returns how many copies of a kind the tenant may have on the host.
func (s Settings) MaxCopies(sync v1alpha1.ClaimSync) int {
	return int(ptr.Deref(sync.Max, max(leastCopies, copiesPerServer*s.Servers)))
}

// OpaqueNotAllowed returns the first driver for which a claim has opaque configuration that the TenantCluster does not
// allow, or "".
func (s Settings) OpaqueNotAllowed(spec *resourcev1.ResourceClaimSpec) string {
	allowed := s.Sync.ToHost.OpaqueConfigDrivers
	for _, config := range spec.Devices.Config {
		if opaque := config.Opaque; opaque != nil && !slices.Contains(allowed, opaque.Driver) && !slices.Contains(allowed, "*") {
			return opaque.Driver
		}
	}
	return ""
}

// Read returns a tenant's settings, from a cache or live.
func Read(ctx context.Context, reader client.Reader, key types.NamespacedName) (Settings, error) {
	cluster := &v1alpha1.TenantCluster{}
	if found, err := kube.Find(ctx, reader, key, cluster); err != nil || !found {
		return Settings{}, err
	}
	return Of(cluster), nil
}

// Of returns the settings of a TenantCluster.
func Of(cluster *v1alpha1.TenantCluster) Settings {
	result := Settings{Sync: cluster.Spec.Sync, UID: cluster.UID}
	if quota := cluster.Spec.Quota; quota != nil {
		result.Servers = ptr.Deref(quota.Servers, 0)
	}
	result.Policy, result.SelectorError = NewPolicy(&cluster.Spec.Sync.FromHost.DeviceClasses)
	return result
}

// NotAllowed returns the first class of a claim that the tenant may not ask for, or "". The reader reads the host.
func (s Settings) NotAllowed(ctx context.Context, reader client.Reader, spec *resourcev1.ResourceClaimSpec) (string, error) {
	for _, name := range Classes(spec) {
		class := &resourcev1.DeviceClass{}
		found, err := kube.Find(ctx, reader, client.ObjectKey{Name: name}, class)
		if err != nil {
			return "", fmt.Errorf("on the host, %w", err)
		}
		if !found || !s.Policy.Allows(class) {
			return name, nil
		}
	}
	return "", nil
}

// Changes returns a source of requests for all objects that depend on a tenant's settings. It fires when they change.
func Changes(clusters tenant.Clusters, requests func(context.Context) []reconcile.Request) source.Source {
	return source.Kind(clusters.Management.Cache, &v1alpha1.TenantCluster{},
		handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, _ *v1alpha1.TenantCluster) []reconcile.Request {
			return requests(ctx)
		}),
		predicate.NewTypedPredicateFuncs(func(cluster *v1alpha1.TenantCluster) bool {
			return client.ObjectKeyFromObject(cluster) == clusters.TenantCluster
		}),
		predicate.TypedFuncs[*v1alpha1.TenantCluster]{
			UpdateFunc: func(e event.TypedUpdateEvent[*v1alpha1.TenantCluster]) bool {
				return !equality.Semantic.DeepEqual(e.ObjectOld.Spec.Sync, e.ObjectNew.Spec.Sync)
			},
		})
}
