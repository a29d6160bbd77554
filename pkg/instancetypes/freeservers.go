// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// FreeServers are the free servers of one type in one topology domain.
type FreeServers struct {
	// InstanceType of the servers. It is shared with others and must not be changed.
	InstanceType *cloudprovider.InstanceType
	// Labels that nodes on these servers have: the zone and the topology labels. They must not be changed.
	Labels map[string]string
	// ID is the same for another type if that matches the same servers.
	ID string
	// Count is how many there are.
	Count int32
	// Limit is how many servers of the type are available in all domains together.
	Limit int32
}

// FreeServers returns the free servers of the types that pass the filter, by type and domain. For types whose status has
// no domains it is by zone.
func (c *Catalog) FreeServers(filter Filter) []FreeServers {
	var result []FreeServers
	items := c.read().items
	for i := range items {
		if !filter.Allows(items[i].name, items[i].provider) {
			continue
		}
		instanceType := WithKubelet(items[i].instanceType, filter.kubelet)
		if len(items[i].nodeType.Status.Domains) == 0 {
			for _, zone := range zonesOf(items[i].nodeType) {
				if zone.Available > 0 {
					result = append(result, FreeServers{
						InstanceType: instanceType, Labels: map[string]string{corev1.LabelTopologyZone: zone.Name},
						ID: items[i].name + separator + zone.Name, Count: zone.Available, Limit: items[i].nodeType.Status.Capacity.Available,
					})
				}
			}
			continue
		}
		for _, reported := range items[i].nodeType.Status.Domains {
			if reported.Available <= 0 {
				continue
			}
			labels := map[string]string{corev1.LabelTopologyZone: reported.Zone}
			maps.Copy(labels, reported.Labels)
			pool := append(slices.Clone(reported.SharedWith), items[i].name)
			slices.Sort(pool)
			place := placeOf(slices.Sorted(maps.Keys(reported.Labels)), reported.Labels)
			result = append(result, FreeServers{
				InstanceType: instanceType, Labels: labels,
				ID: strings.Join(pool, separator) + separator + place + ownZone(reported), Count: reported.Available,
				Limit: items[i].nodeType.Status.Capacity.Available,
			})
		}
	}
	return result
}

// ownZone tells the servers of one type in several zones apart. Types that share a server may each say another zone.
func ownZone(reported v1alpha1.DomainCapacity) string {
	if len(reported.SharedWith) > 0 {
		return ""
	}
	return reported.Zone
}

// HasFree returns whether a server of a type is free that meets the requirements.
func HasFree(instanceType *cloudprovider.InstanceType, wanted scheduling.Requirements) bool {
	return instanceType.Requirements.Intersects(wanted) == nil &&
		slices.ContainsFunc(instanceType.Offerings.Available(), func(offering *cloudprovider.Offering) bool {
			return offering.Requirements.Intersects(wanted) == nil
		})
}
