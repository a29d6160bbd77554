// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Room is servers of one type that are free and in one place.
type Room struct {
	// InstanceType of the servers. It is shared with others and must not be changed.
	InstanceType *cloudprovider.InstanceType
	// Labels that nodes on these servers have: the zone and the topology labels. They must not be changed.
	Labels map[string]string
	// Servers names these servers: rooms of several types have the same name if they are the same servers.
	Servers string
	// Free is how many there are.
	Free int32
	// Limit is how many servers of the type can be had in all of its rooms together.
	Limit int32
}

// Rooms returns what is free of the types that pass the filter, by type and place. Types whose status does not tell
// domains have one room for each zone.
func (c *Catalog) Rooms(filter Filter) []Room {
	var rooms []Room
	items := c.read().items
	for i := range items {
		if !filter.Allows(items[i].name, items[i].provider) {
			continue
		}
		if len(items[i].nodeType.Status.Domains) == 0 {
			for _, zone := range zonesOf(items[i].nodeType) {
				if zone.Available > 0 {
					rooms = append(rooms, Room{
						InstanceType: items[i].instanceType, Labels: map[string]string{corev1.LabelTopologyZone: zone.Name},
						Servers: items[i].name + separator + zone.Name, Free: zone.Available, Limit: items[i].nodeType.Status.Capacity.Available,
					})
				}
			}
			continue
		}
		for _, told := range items[i].nodeType.Status.Domains {
			if told.Available <= 0 {
				continue
			}
			labels := map[string]string{corev1.LabelTopologyZone: told.Zone}
			maps.Copy(labels, told.Labels)
			pool := append(slices.Clone(told.SharedWith), items[i].name)
			slices.Sort(pool)
			place := placeOf(slices.Sorted(maps.Keys(told.Labels)), told.Labels)
			rooms = append(rooms, Room{
				InstanceType: items[i].instanceType, Labels: labels,
				Servers: strings.Join(pool, separator) + separator + place + ownZone(told), Free: told.Available, Limit: items[i].nodeType.Status.Capacity.Available,
			})
		}
	}
	return rooms
}

// ownZone tells the servers of one type in several zones apart. Types that share a server may each say another zone.
func ownZone(told v1alpha1.DomainCapacity) string {
	if len(told.SharedWith) > 0 {
		return ""
	}
	return told.Zone
}
