// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
)

// Filter narrows the types of a catalog, and has the class and the kubelet of their nodes.
type Filter struct {
	tenant   *v1alpha1.TenantCluster
	class    *v1alpha1.MetalNodeClass
	provider string
	kubelet  capacity.Kubelet
}

// NewFilter returns a filter for the types that the tenant may have and that the class offers. Either may be nil, which
// excludes no type.
func NewFilter(tenant *v1alpha1.TenantCluster, class *v1alpha1.MetalNodeClass) Filter {
	if class == nil {
		return Filter{tenant: tenant}
	}
	kubelet, _ := capacity.ParseKubelet(class.Spec.KubeletArgs) // a class with wrong arguments is not ready
	filter := Filter{tenant: tenant, class: class, kubelet: kubelet}
	if class.Spec.ProviderRef != nil {
		filter.provider = class.Spec.ProviderRef.Name
	}
	return filter
}

// Kubelet returns the kubelet of the class.
func (f Filter) Kubelet() capacity.Kubelet { return f.kubelet }

// Allows reports whether a type passes.
func (f Filter) Allows(nodeType *v1alpha1.NodeType) bool {
	if f.provider != "" && f.provider != nodeType.Spec.ProviderRef.Name {
		return false
	}
	return f.tenant == nil || f.tenant.Allows(nodeType.Name, nodeType.MadeBy())
}

// Meets reports whether servers of a type that passes the filter could meet each of the requirements, free or not.
func (c *Catalog) Meets(filter Filter, requirements ...*labels.Requirement) bool {
	return slices.ContainsFunc(c.read().items, func(item item) bool {
		if !filter.Allows(item.nodeType) {
			return false
		}
		offered := matching.OfferedBy(item.nodeType)
		if len(offered[corev1.LabelTopologyZone]) == 0 {
			delete(offered, corev1.LabelTopologyZone) // a type without servers would be in every zone
		}
		return !slices.ContainsFunc(requirements, func(requirement *labels.Requirement) bool { return !offered.Meets(requirement) })
	})
}

// FreeServers are the free servers of one type in one topology domain.
type FreeServers struct {
	// InstanceType of the servers. It is shared: callers must not change it.
	InstanceType *cloudprovider.InstanceType
	// Labels that nodes on these servers have: the zone and the topology labels. Callers must not change them.
	Labels map[string]string
	// ID is the same for two types that match the same servers.
	ID    string
	Count int32
	// absent are the labels that only other servers of the type have.
	absent []string
	// sharedWith are the other types that match the servers.
	sharedWith []string
	// Limit is the number of available servers of the type in all domains together.
	Limit int32
}

// FreeServers returns the free servers of the types that pass the filter, by type and domain, or by zone if the status
// of a type has no domains.
func (c *Catalog) FreeServers(filter Filter) []FreeServers {
	return c.servers(filter, available)
}

func available(domain v1alpha1.DomainCapacity) int32 { return domain.Available }

// AllServers returns the same as if all servers were free, except the too small ones.
func (c *Catalog) AllServers(filter Filter) []FreeServers {
	return c.servers(filter, func(domain v1alpha1.DomainCapacity) int32 { return domain.Total - domain.TooSmall })
}

func (c *Catalog) servers(filter Filter, count func(v1alpha1.DomainCapacity) int32) []FreeServers {
	var result []FreeServers
	items, own := c.read().items, c.OwnNodes(filter)
	for i := range items {
		if !filter.Allows(items[i].nodeType) {
			continue
		}
		instanceType := withNode(items[i].instanceType, items[i].nodeType, filter.kubelet, own(items[i].name))
		for _, servers := range items[i].servers(count) {
			servers.InstanceType = instanceType
			result = append(result, servers)
		}
	}
	return result
}

func (i *item) servers(count func(v1alpha1.DomainCapacity) int32) (result []FreeServers) {
	keys := slices.Collect(maps.Keys(freePlaces(i.nodeType)))
	for _, reported := range Domains(i.nodeType) {
		if count(reported) <= 0 {
			continue
		}
		labels := map[string]string{corev1.LabelTopologyZone: reported.Zone}
		maps.Copy(labels, reported.NodeLabels(i.name))
		pool := append(slices.Clone(reported.SharedWith), i.name)
		slices.Sort(pool)
		place := placeOf(slices.Sorted(maps.Keys(reported.Labels)), reported.Labels)
		result = append(result, FreeServers{
			InstanceType: i.instanceType, Labels: labels,
			ID: strings.Join(pool, separator) + separator + place + ownZone(reported), Count: count(reported),
			Limit: i.nodeType.Status.Capacity.Available, sharedWith: reported.SharedWith,
			absent: slices.DeleteFunc(slices.Clone(keys), func(key string) bool { _, has := labels[key]; return has }),
		})
	}
	return result
}

// Meet reports whether the servers are of a type, and in a place, that the requirements ask for. Labels that only other
// servers of the type have, and labels of types that these servers do not match, are absent.
func (f FreeServers) Meet(wanted scheduling.Requirements) bool {
	wanted = OfServer(wanted)
	return f.InstanceType.Requirements.Intersects(wanted) == nil && f.in(wanted)
}

func (f FreeServers) in(wanted scheduling.Requirements) bool {
	place := scheduling.NewLabelRequirements(f.Labels)
	for _, key := range f.absent {
		place.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
	}
	for key := range wanted {
		if v1alpha1.IsTypeLabel(key) && !place.Has(key) {
			place.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
		}
	}
	return place.Intersects(wanted) == nil
}

// ownZone returns the zone of servers of one type only. Types that share a server may name different zones.
func ownZone(reported v1alpha1.DomainCapacity) string {
	if len(reported.SharedWith) > 0 {
		return ""
	}
	return reported.Zone
}

// HasFree reports whether a server of a type is free that meets one of the alternatives.
func HasFree(instanceType *cloudprovider.InstanceType, alternatives ...scheduling.Requirements) bool {
	return slices.ContainsFunc(alternatives, func(wanted scheduling.Requirements) bool {
		wanted = OfServer(wanted)
		return instanceType.Requirements.Intersects(wanted) == nil &&
			slices.ContainsFunc(instanceType.Offerings.Available(), func(offering *cloudprovider.Offering) bool {
				return offering.Requirements.Intersects(wanted) == nil
			})
	})
}

// LimitTypes returns the types with offerings for no more servers than the quota leaves. A type within the quota is
// returned unchanged; the others are copies. If the quota leaves none of a type, its offerings stay but are not
// available: to core, the nodes of a missing type have drifted.
//
// If the quota of a type leaves fewer servers than the quota of all types, the type's offerings draw from one
// reservation, so that a burst plans no more than the quota leaves. It may plan more if a place has fewer servers than
// the quota leaves, or if the quota of servers leaves fewer than several types have. The manager refuses the excess,
// and the next pass finds nothing available.
func LimitTypes(rest quota.Rest, types []*cloudprovider.InstanceType) []*cloudprovider.InstanceType {
	if rest.Quota == nil {
		return types
	}
	result := make([]*cloudprovider.InstanceType, len(types))
	for i, instanceType := range types {
		result[i] = limitType(instanceType, rest.Servers(), rest.OwnOf(instanceType.Name))
	}
	return result
}

// LimitServers limits free servers to the number that the quota leaves.
func LimitServers(rest quota.Rest, free []FreeServers) []FreeServers {
	for i := range free {
		free[i].Count = int32(min(int64(free[i].Count), rest.Of(free[i].InstanceType.Name)))
	}
	return slices.DeleteFunc(free, func(servers FreeServers) bool { return servers.Count <= 0 })
}

// Unavailable returns the type with unavailable offerings. Their reservations keep their capacity: if several NodePools
// have a reservation, core takes the least capacity, so otherwise no other NodePool would get a server of the type.
func Unavailable(instanceType *cloudprovider.InstanceType) *cloudprovider.InstanceType {
	return WithOfferings(instanceType, func(offering *cloudprovider.Offering) { offering.Available = false })
}

// WithLabels returns the type with requirements for more labels, so that pods can require that they do not exist.
func WithLabels(instanceType *cloudprovider.InstanceType, keys []string) *cloudprovider.InstanceType {
	if len(keys) == 0 {
		return instanceType
	}
	labelled := withOfferings(instanceType, instanceType.Offerings)
	labelled.Requirements = scheduling.NewRequirements(instanceType.Requirements.Values()...)
	for _, key := range keys {
		labelled.Requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, "true"))
	}
	return labelled
}

// limitType limits a type to the servers that are left of all types, and of its own. Core takes the least number among
// offerings with the same reservation, and servers of several types may share one. So a number for this type alone
// needs a reservation of its own.
func limitType(instanceType *cloudprovider.InstanceType, all, own int64) *cloudprovider.InstanceType {
	left := min(all, own)
	ownReservation := func(offering *cloudprovider.Offering) bool {
		return own < all && offering.ReservationCapacity > 0 && int64(offering.ReservationCapacity) >= left
	}
	if !slices.ContainsFunc(instanceType.Offerings, func(offering *cloudprovider.Offering) bool {
		return left == 0 && offering.Available || int64(offering.ReservationCapacity) > left || ownReservation(offering)
	}) {
		return instanceType
	}
	return WithOfferings(instanceType, func(offering *cloudprovider.Offering) {
		if ownReservation(offering) {
			offering.Requirements = maps.Clone(offering.Requirements)
			offering.Requirements[v1alpha1.ReservationIDLabelKey] = in(v1alpha1.ReservationIDLabelKey,
				poolID(instanceType.Name, "quota"))
		}
		offering.Available = offering.Available && left > 0
		offering.ReservationCapacity = int(min(int64(offering.ReservationCapacity), left))
	})
}
