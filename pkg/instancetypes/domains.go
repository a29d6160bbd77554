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

// domain stands for servers of a type that are in the same place and match the same types.
type domain struct {
	// place is the value of each label that differs between domains; a label that the servers do not have is left out.
	// A label that several domains were joined by has anyValue there, and its values in values.
	place  map[string]string
	values []string
	// pool names all types that these servers match, sorted, if they are more than one.
	pool []string
	// available servers; limited means that maxCapacity makes them fewer than the free servers.
	available int32
	limited   bool
}

// layout says how the servers of a type are spread.
type layout struct {
	// keys of the labels that differ among the servers, sorted: a claim can ask for one value and not get another.
	keys []string
	// common has the zone and the topology labels that all servers share.
	common map[string]string
	// absent are the labels in use that say which types servers match, and that no server of this type has.
	absent []string
	// domains by place and pool.
	domains []domain
}

// layoutOf reads the layout from the status of a type. It separates domains only by labels that the demand uses.
func layoutOf(nodeType *v1alpha1.NodeType, demand *Demand) layout {
	var domains []domain
	free, used := int32(0), demand.typeLabels()
	for _, reported := range Domains(nodeType) {
		place := map[string]string{corev1.LabelTopologyZone: reported.Zone}
		for key, value := range reported.Labels {
			if Selectable(key) && demand.uses(key) {
				place[key] = value
			}
		}
		if len(used) > 0 {
			labels := reported.NodeLabels(nodeType.Name)
			for _, key := range used {
				if value, has := labels[key]; has {
					place[key] = value
				}
			}
		}
		converted := domain{place: place, available: reported.Available}
		if len(reported.SharedWith) > 0 {
			converted.pool = append(slices.Clone(reported.SharedWith), nodeType.Name)
			slices.Sort(converted.pool)
		}
		free += reported.Available
		domains = append(domains, converted)
	}
	if total := nodeType.Status.Capacity.Available; nodeType.Spec.MaxCapacity != nil && free > total {
		for i := range domains {
			domains[i].available, domains[i].limited = min(domains[i].available, total), true
		}
	}
	result := condense(domains)
	result.absent = slices.DeleteFunc(used, func(key string) bool {
		_, common := result.common[key]
		return common || slices.Contains(result.keys, key)
	})
	return result
}

// freePlaces returns the values of the labels of domains that a new server could have now. Core spreads pods over the
// values of the types, and waits for the emptiest domain: a full domain would block all others. Core itself adds the
// domains with nodes, which are also the ones that count for kube-scheduler.
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
	for _, reported := range nodeType.Status.Domains {
		insert(corev1.LabelTopologyZone, reported.Zone, reported.Available > 0)
		for key, value := range reported.NodeLabels(nodeType.Name) {
			insert(key, value, reported.Available > 0)
		}
	}
	return values
}

// someMatch returns the labels that only some servers of a type have, because these match another type too. As a
// requirement of the type, a label would keep off the claims that ask for the other servers.
func someMatch(nodeType *v1alpha1.NodeType) []string {
	count := map[string]int{}
	for i := range nodeType.Status.Domains {
		for key := range nodeType.Status.Domains[i].NodeLabels(nodeType.Name) {
			if v1alpha1.IsTypeLabel(key) {
				count[key]++
			}
		}
	}
	maps.DeleteFunc(count, func(_ string, domains int) bool { return domains == len(nodeType.Status.Domains) })
	return slices.Collect(maps.Keys(count))
}

// anyValue cannot be the value of a label.
const anyValue = "*"

// joinAmple returns the domains with free servers. It joins domains that have a server for every pod that could need
// one there: they need no count of their own. It does not join servers that match several types, because another type
// may join other domains. It does not join zones either, because core reads the zone of an offering.
func (l layout) joinAmple(demand *Demand, total int32) []domain {
	key := l.widestKey()
	var result []domain
	joined := map[string]int{}
	for _, domain := range l.domains {
		value, has := domain.place[key]
		switch {
		case domain.available <= 0:
			continue
		case !has || len(domain.pool) > 0 || int64(domain.available) < demand.atMost(domain.place):
			result = append(result, domain)
			continue
		}
		domain.place = maps.Clone(domain.place)
		domain.place[key], domain.values = anyValue, []string{value}
		id := placeOf(l.keys, domain.place)
		index, found := joined[id]
		if !found {
			joined[id] = len(result)
			result = append(result, domain)
			continue
		}
		result[index].values = append(result[index].values, value)
		result[index].available += domain.available
		if result[index].limited = result[index].limited || domain.limited; result[index].limited {
			result[index].available = min(result[index].available, total)
		}
	}
	return result
}

// widestKey returns the label with the most values, other than the zone.
func (l layout) widestKey() string {
	widest, most := "", 0
	for _, key := range l.keys {
		values := map[string]struct{}{}
		for _, domain := range l.domains {
			values[domain.place[key]] = struct{}{}
		}
		if key != corev1.LabelTopologyZone && len(values) > most {
			widest, most = key, len(values)
		}
	}
	return widest
}

// condense removes from the places what all share, and joins the domains that are then equal.
func condense(domains []domain) layout {
	result := layout{common: map[string]string{}}
	values := map[string]map[string]bool{}
	for _, domain := range domains {
		for key := range domain.place {
			values[key] = map[string]bool{}
		}
	}
	for key := range values {
		for _, domain := range domains {
			values[key][domain.place[key]] = true // a missing label is a value of its own
		}
		if len(values[key]) > 1 {
			result.keys = append(result.keys, key)
		} else {
			result.common[key] = domains[0].place[key]
		}
	}
	slices.Sort(result.keys)
	joined := map[string]domain{}
	for _, domain := range domains {
		place := map[string]string{}
		for _, key := range result.keys {
			if value := domain.place[key]; value != "" {
				place[key] = value
			}
		}
		id := placeOf(result.keys, place) + strings.Join(domain.pool, separator)
		domain.place = place
		domain.available += joined[id].available
		joined[id] = domain
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

// pools returns the servers of all places together, by the types that they match, as far as the type may have more.
func (l layout) pools(nodeType *v1alpha1.NodeType) []domain {
	var pools []domain
	for _, source := range l.domains {
		index := slices.IndexFunc(pools, func(other domain) bool { return slices.Equal(source.pool, other.pool) })
		if index < 0 {
			pools, index = append(pools, domain{pool: source.pool, limited: source.limited}), len(pools)
		}
		pools[index].available += source.available
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
