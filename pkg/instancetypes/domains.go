// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// domain is servers of a type that are in the same place and match the same types.
type domain struct {
	// place is the value of each label that tells domains apart; one that the servers do not have is left out.
	place map[string]string
	// pool names all types that these servers match, sorted, if they are more than one.
	pool []string
	// available servers, and whether that number is less than there are free ones, because of maxCapacity.
	available int32
	limited   bool
}

// layout is how the servers of a type are spread.
type layout struct {
	// keys of the labels that differ among the servers, sorted: a claim can ask for one value and not get another.
	keys []string
	// common are the zone and the topology labels that all servers have alike.
	common map[string]string
	// domains by place and pool.
	domains []domain
}

// layoutOf reads the layout from the status of a type. Types that do not tell their domains have those of their zones.
// Without reservations nothing is counted, and which types servers match besides makes no difference. Labels that are
// not in use tell no domains apart: core looks at every domain for every pod.
func layoutOf(nodeType *v1alpha1.NodeType, settings Settings, inUse func(key string) bool) layout {
	var domains []domain
	free := int32(0)
	for _, told := range nodeType.Status.Domains {
		place := map[string]string{corev1.LabelTopologyZone: told.Zone}
		for key, value := range told.Labels {
			if Selectable(key) && inUse(key) {
				place[key] = value
			}
		}
		one := domain{place: place, available: told.Available}
		if len(told.SharedWith) > 0 && settings.Reserved() {
			one.pool = append(slices.Clone(told.SharedWith), nodeType.Name)
			slices.Sort(one.pool)
		}
		free += told.Available
		domains = append(domains, one)
	}
	if len(domains) == 0 {
		for _, zone := range zonesOf(nodeType) {
			domains = append(domains, domain{place: map[string]string{corev1.LabelTopologyZone: zone.Name}, available: zone.Available})
			free += zone.Available
		}
	}
	if total := nodeType.Status.Capacity.Available; nodeType.Spec.MaxCapacity != nil && free > total {
		for i := range domains {
			domains[i].available, domains[i].limited = min(domains[i].available, total), true
		}
	}
	return condense(domains)
}

// freePlaces are the values of the labels of domains that a new server could have now. Core spreads pods over the values
// that types promise, and waits for a domain that it knows for as long as it is the emptiest: one that is full would
// hold up all others. Of those that have nodes core knows by itself, and only those count for kube-scheduler, too.
func freePlaces(nodeType *v1alpha1.NodeType) map[string][]string {
	values := map[string][]string{}
	insert := func(key, value string, free bool) {
		if !Selectable(key) {
			return
		}
		if _, known := values[key]; !known {
			values[key] = nil
		}
		if free && !slices.Contains(values[key], value) {
			values[key] = append(values[key], value)
		}
	}
	for _, told := range nodeType.Status.Domains {
		insert(corev1.LabelTopologyZone, told.Zone, told.Available > 0)
		for key, value := range told.Labels {
			insert(key, value, told.Available > 0)
		}
	}
	return values
}

// condense leaves out of the places what all have alike, and joins the domains that are the same then.
func condense(domains []domain) layout {
	result := layout{common: map[string]string{}}
	values := map[string]map[string]bool{}
	for _, one := range domains {
		for key := range one.place {
			values[key] = map[string]bool{}
		}
	}
	for key := range values {
		for _, one := range domains {
			values[key][one.place[key]] = true // absent is a value of its own
		}
		if len(values[key]) > 1 {
			result.keys = append(result.keys, key)
		} else {
			result.common[key] = domains[0].place[key]
		}
	}
	slices.Sort(result.keys)
	joined := map[string]domain{}
	for _, one := range domains {
		place := map[string]string{}
		for _, key := range result.keys {
			if value := one.place[key]; value != "" {
				place[key] = value
			}
		}
		id := placeOf(result.keys, place) + strings.Join(one.pool, separator)
		one.place = place
		one.available += joined[id].available
		joined[id] = one
	}
	for _, id := range slices.Sorted(maps.Keys(joined)) {
		result.domains = append(result.domains, joined[id])
	}
	return result
}

// separator is in no name and no value of a label.
const separator = ","

func placeOf(keys []string, place map[string]string) string {
	var text strings.Builder
	for _, key := range keys {
		text.WriteString(key + "=" + place[key] + separator)
	}
	return text.String()
}

// pools are the servers of all places together, by the types that they match, with as many as the type may still have.
func (l layout) pools(nodeType *v1alpha1.NodeType) []domain {
	var pools []domain
	for _, one := range l.domains {
		at := slices.IndexFunc(pools, func(other domain) bool { return slices.Equal(one.pool, other.pool) })
		if at < 0 {
			pools, at = append(pools, domain{pool: one.pool, limited: one.limited}), len(pools)
		}
		pools[at].available += one.available
	}
	if nodeType.Spec.MaxCapacity != nil {
		for i := range pools {
			pools[i].available = min(pools[i].available, nodeType.Status.Capacity.Available)
		}
	}
	slices.SortFunc(pools, func(a, b domain) int {
		return cmp.Compare(strings.Join(a.pool, separator), strings.Join(b.pool, separator))
	})
	return pools
}
