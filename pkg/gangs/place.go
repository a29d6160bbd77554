// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"cmp"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// domain is one place that a gang could be in.
type domain struct {
	// values of the gang's keys, in their order.
	values []string
	// room is how many pods of the gang fit, all in all.
	room int64
	// cost of the new servers for as many as fit.
	cost float64

	standing []seat[*standing]
	rooms    []seat[instancetypes.Room]
}

// seat is something with room for so many pods each.
type seat[T any] struct {
	on   T
	each int64
}

// place picks the domain for a gang: among those that have room for all the cheapest, then the one that is filled best;
// if there is none, the one with the most room. Pods that run leave one domain to choose from. It returns all domains, the chosen one first, and takes the gang's room
// off the fleet. There may be none.
func (f *fleet) place(g *gang) []*domain {
	asks, count := g.ask(), int64(len(g.pods))
	domains := f.domains(g, asks)
	for _, one := range domains {
		one.add(f, count)
	}
	domains = slices.DeleteFunc(domains, func(one *domain) bool { return one.room == 0 })
	slices.SortFunc(domains, func(a, b *domain) int {
		if a.room >= count && b.room >= count {
			return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.room, b.room), slices.Compare(a.values, b.values))
		}
		return cmp.Or(cmp.Compare(b.room, a.room), cmp.Compare(a.cost, b.cost), slices.Compare(a.values, b.values))
	})
	if len(domains) > 0 {
		f.take(domains[0], asks, count)
	}
	return domains
}

// domains are the places that have the labels that the gang gathers by.
func (f *fleet) domains(g *gang, asks ask) []*domain {
	byPlace := map[string]*domain{}
	at := func(labels map[string]string) *domain {
		var values []string
		for _, key := range g.keys {
			if labels[key] == "" || g.fixed != nil && labels[key] != g.fixed[key] {
				return nil
			}
			values = append(values, labels[key])
		}
		id := strings.Join(values, "/")
		if byPlace[id] == nil {
			byPlace[id] = &domain{values: values}
		}
		return byPlace[id]
	}
	for _, one := range f.standing {
		if each := one.fits(asks); each > 0 {
			if place := at(one.labels); place != nil {
				place.standing = append(place.standing, seat[*standing]{one, each})
			}
		}
	}
	for _, room := range f.rooms {
		place := at(room.Labels)
		if place == nil {
			continue
		}
		if each := f.serves(room, asks); each > 0 {
			place.rooms = append(place.rooms, seat[instancetypes.Room]{room, each})
		}
	}
	domains := make([]*domain, 0, len(byPlace))
	for _, one := range byPlace {
		// What is cheapest for one pod first, and the small servers before the big ones.
		slices.SortFunc(one.rooms, func(a, b seat[instancetypes.Room]) int {
			return cmp.Or(cmp.Compare(price(a.on)/float64(a.each), price(b.on)/float64(b.each)), cmp.Compare(a.each, b.each),
				cmp.Compare(a.on.InstanceType.Name, b.on.InstanceType.Name), cmp.Compare(a.on.Servers, b.on.Servers))
		})
		domains = append(domains, one)
	}
	return domains
}

// add counts the room, and what new servers for count pods would cost.
func (d *domain) add(f *fleet, count int64) {
	for _, seat := range d.standing {
		d.room += seat.each
	}
	missing := max(0, count-d.room)
	counted := map[string]bool{}
	for _, seat := range d.rooms {
		if counted[seat.on.Servers] {
			continue // the same servers as another type
		}
		counted[seat.on.Servers] = true
		free := int64(seat.on.Free - f.taken[seat.on.Servers])
		d.room += free * seat.each
		servers := min(free, ceil(missing, seat.each))
		d.cost += float64(servers) * price(seat.on)
		missing = max(0, missing-servers*seat.each)
	}
}

// take promises what a gang will have of a domain.
func (f *fleet) take(d *domain, asks ask, count int64) {
	for _, seat := range d.standing {
		pods := min(count, seat.each)
		seat.on.less(asks.needs, pods)
		count -= pods
	}
	for _, seat := range d.rooms {
		free := int64(seat.on.Free - f.taken[seat.on.Servers])
		servers := min(free, ceil(count, seat.each))
		f.taken[seat.on.Servers] += int32(servers)
		count = max(0, count-servers*seat.each)
	}
}

func ceil(count, each int64) int64 { return (count + each - 1) / each }

// price of a server of a room. All offerings of a type have the same.
func price(room instancetypes.Room) float64 {
	if len(room.InstanceType.Offerings) == 0 {
		return math.MaxFloat64
	}
	return room.InstanceType.Offerings[0].Price
}

// requirements that keep a pod in the domain.
func (d *domain) requirements(keys []string) []corev1.NodeSelectorRequirement {
	var result []corev1.NodeSelectorRequirement
	for i, key := range keys {
		result = append(result, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{d.values[i]}})
	}
	return result
}
