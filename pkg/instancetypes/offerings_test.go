// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
)

// offering is one as a test wants it. Where are the labels that it is bound to, "rack=r1" or "!rack".
type offering struct {
	Where       []string
	ID          string
	Available   bool
	Reservation int
}

// byRack is the demand of any number of pods, some of which use the label rack.
var byRack = &Demand{pods: math.MaxInt64, keys: map[string]*selection{"rack": {}}}

func withDomains(domains ...v1alpha1.DomainCapacity) *v1alpha1.NodeType {
	result := nodeType("a100", 4)
	zones := map[string]int32{}
	for _, domain := range domains {
		zones[domain.Zone] += domain.Available
		result.Status.Capacity.Available += domain.Available
	}
	for name, available := range zones {
		result.Status.Zones = append(result.Status.Zones, zone(name, available))
	}
	result.Status.Domains = domains
	return result
}

func rack(name string, available int32, sharedWith ...string) v1alpha1.DomainCapacity {
	domain := v1alpha1.DomainCapacity{Zone: "dc1", Capacity: v1alpha1.Capacity{Total: 9, Available: available}, SharedWith: sharedWith}
	if name != "" {
		domain.Labels = map[string]string{"rack": name}
	}
	return domain
}

func limited(to int32, nodeType *v1alpha1.NodeType) *v1alpha1.NodeType {
	nodeType.Spec.MaxCapacity = &to
	for i := range nodeType.Status.Domains {
		nodeType.Status.Domains[i].Available = min(nodeType.Status.Domains[i].Available, to)
	}
	nodeType.Status.Capacity.Available = min(nodeType.Status.Capacity.Available, to)
	return nodeType
}

func TestOfferings(t *testing.T) {
	existing := func(zone, id string) offering { return offering{[]string{zoneIs + zone}, id, false, 0} }
	anywhere := offering{nil, "a100", false, 0}
	pool, shared := poolID("a100", ""), sharedPoolID([]string{"a100", "h100"}, "")
	in := func(rack string) string { return poolID("a100", "rack="+rack+",") }
	for name, tc := range map[string]struct {
		reason   string
		nodeType *v1alpha1.NodeType
		onDemand bool
		want     []offering
	}{
		"one zone, no topology": {
			reason:   "the servers of the type are interchangeable",
			nodeType: nodeType("a100", 4, zone("dc1", 2)),
			want:     []offering{existing("dc1", "a100"), {[]string{zoneIs + "dc1"}, pool, true, 2}},
		},
		"one rack": {
			reason:   "pods that select it get what all get",
			nodeType: withDomains(rack("r1", 3)),
			want:     []offering{existing("dc1", "a100"), {[]string{zoneIs + "dc1"}, pool, true, 3}},
		},
		"two racks": {
			reason:   "one offering for pods that select no rack, and one for each rack",
			nodeType: withDomains(rack("r1", 3), rack("r2", 2)),
			want: []offering{
				existing("dc1", "a100"), {[]string{"!rack", zoneIs + "dc1"}, pool, true, 5},
				{[]string{"rack=r1", zoneIs + "dc1"}, in("r1"), true, 3}, {[]string{"rack=r2", zoneIs + "dc1"}, in("r2"), true, 2},
			},
		},
		"a full rack": {
			reason:   "nothing to draw from",
			nodeType: withDomains(rack("r1", 0), rack("r2", 2)),
			want: []offering{
				existing("dc1", "a100"), {[]string{"!rack", zoneIs + "dc1"}, pool, true, 2}, {[]string{"rack=r2", zoneIs + "dc1"}, in("r2"), true, 2},
			},
		},
		"a server without a rack": {
			reason:   "it is for pods that select no rack",
			nodeType: withDomains(rack("", 1), rack("r2", 2)),
			want: []offering{
				existing("dc1", "a100"), {[]string{"!rack", zoneIs + "dc1"}, pool, true, 3},
				{[]string{"rack=r2", zoneIs + "dc1"}, in("r2"), true, 2}, {[]string{"!rack", zoneIs + "dc1"}, in(""), true, 1},
			},
		},
		"two zones": {
			reason:   "a zone is a place like a rack, and a claim on any draws from all",
			nodeType: nodeType("a100", 4, zone("dc2", 1), zone("dc1", 2)),
			want: []offering{
				existing("dc1", "a100"), existing("dc2", "a100"), {[]string{"!" + corev1.LabelTopologyZone}, pool, true, 3},
				{[]string{zoneIs + "dc1"}, poolID("a100", zoneIs+"dc1,"), true, 2}, {[]string{zoneIs + "dc2"}, poolID("a100", zoneIs+"dc2,"), true, 1},
			},
		},
		"shared": {
			reason:   "what another type draws from too has the other's reservation",
			nodeType: withDomains(rack("r1", 3, "h100"), rack("r1", 1)),
			want: []offering{
				existing("dc1", "a100"), {[]string{zoneIs + "dc1"}, pool, true, 1}, {[]string{zoneIs + "dc1"}, shared, true, 3},
			},
		},
		"limited": {
			reason:   "no place has more than the type may have",
			nodeType: limited(2, withDomains(rack("r1", 3), rack("r2", 1))),
			want: []offering{
				existing("dc1", "a100"), {[]string{"!rack", zoneIs + "dc1"}, pool, true, 2},
				{[]string{"rack=r1", zoneIs + "dc1"}, in("r1"), true, 2}, {[]string{"rack=r2", zoneIs + "dc1"}, in("r2"), true, 1},
			},
		},
		"limited and shared": {
			reason:   "the limit of this type says nothing about the other's",
			nodeType: limited(2, withDomains(rack("r1", 3, "h100"), rack("r2", 1, "h100"))),
			want: []offering{
				existing("dc1", "a100"), {[]string{"!rack", zoneIs + "dc1"}, pool, true, 2},
				{[]string{"rack=r1", zoneIs + "dc1"}, in("r1"), true, 2}, {[]string{"rack=r2", zoneIs + "dc1"}, in("r2"), true, 1},
			},
		},
		"exhausted": {
			reason:   "a type that vanishes would have its nodes replaced",
			nodeType: withDomains(rack("r1", 0), rack("r2", 0)),
			want:     []offering{existing("dc1", "a100")},
		},
		"no servers at all": {
			reason:   "as above",
			nodeType: nodeType("a100", 4),
		},
		"on demand": {
			reason: "for NodePools that insist on it; nothing is counted then, but a full rack is still none", onDemand: true,
			nodeType: withDomains(rack("r1", 3, "h100"), rack("r2", 1), rack("r3", 0)),
			want: []offering{
				existing("dc1", ""), {[]string{"!rack", zoneIs + "dc1"}, "", true, 0},
				{[]string{"!rack", zoneIs + "dc1"}, "", true, 0}, // a reservation each, of which core sees nothing
				{[]string{"rack=r1", zoneIs + "dc1"}, "", true, 0}, {[]string{"rack=r2", zoneIs + "dc1"}, "", true, 0},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []offering
			converted, capacityType := convert(tc.nodeType, nil, DefaultPods, byRack), karpv1.CapacityTypeReserved
			if tc.onDemand {
				converted, capacityType = onDemand(converted), karpv1.CapacityTypeOnDemand
			}
			for _, o := range converted.Offerings {
				if o.CapacityType() != capacityType || o.Price != 1234 {
					t.Errorf("capacity type %s, price %v", o.CapacityType(), o.Price)
				}
				got = append(got, describe(o))
			}
			byWhere := func(a, b offering) int { return slices.Compare(append(a.Where, a.ID), append(b.Where, b.ID)) }
			want := append([]offering{anywhere}, tc.want...)
			if tc.onDemand {
				want[0].ID = ""
			}
			slices.SortFunc(got[1:], byWhere)
			slices.SortFunc(want[1:], byWhere)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func describe(o *cloudprovider.Offering) offering {
	result := offering{ID: o.ReservationID(), Available: o.Available, Reservation: o.ReservationCapacity}
	for key, requirement := range o.Requirements {
		switch {
		case key == karpv1.CapacityTypeLabelKey || key == v1alpha1.ReservationIDLabelKey:
		case requirement.Operator() == corev1.NodeSelectorOpDoesNotExist:
			result.Where = append(result.Where, "!"+key)
		default:
			values := requirement.Values()
			slices.Sort(values)
			result.Where = append(result.Where, key+"="+strings.Join(values, " "))
		}
	}
	slices.Sort(result.Where)
	return result
}

const zoneIs = corev1.LabelTopologyZone + "="

// A node runs for months. Meanwhile its rack fills up, its host is given other labels, and the domain and the zone vanish.
func TestEveryNodeHasAnOffering(t *testing.T) {
	for name, instanceType := range map[string]*cloudprovider.InstanceType{
		"SameZone": convert(withDomains(rack("r1", 3), rack("r2", 0)), nil, DefaultPods, byRack),
		"TwoZones": convert(nodeType("a100", 4, zone("dc1", 2), zone("dc2", 0)), nil, DefaultPods, byRack),
		"Renamed":  convert(nodeType("a100", 4, zone("fra1", 2)), nil, DefaultPods, byRack),
		"NoHosts":  convert(nodeType("a100", 4), nil, DefaultPods, byRack),
		"Gone":     NewCatalog(DefaultPods).Gone("a100", 1234),
	} {
		t.Run(name, func(t *testing.T) {
			labels := map[string]string{
				corev1.LabelTopologyZone: "dc1", "rack": "gone", karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeReserved,
				v1alpha1.ReservationIDLabelKey: "a100", corev1.LabelInstanceTypeStable: "a100",
			}
			compatible := instanceType.Offerings.Compatible(scheduling.NewLabelRequirements(labels))
			if len(compatible) == 0 || compatible[0].Price != 1234 || len(compatible.Available()) > 0 {
				t.Errorf("%d offerings for the node, want one with its price: without, core takes it for drifted", len(compatible))
			}
		})
	}
}

func TestLimitTypes(t *testing.T) {
	two, nine := int64(2), int64(9)
	reserved := func(instanceType *cloudprovider.InstanceType) (capacities []int, reservations map[string]int) {
		reservations = map[string]int{}
		for _, offering := range instanceType.Offerings.Available() {
			capacities = append(capacities, offering.ReservationCapacity)
			reservations[offering.ReservationID()] = offering.ReservationCapacity
		}
		return capacities, reservations
	}
	none := int64(0)
	ofType := func(servers v1alpha1.ServerCount) *v1alpha1.Quota {
		return &v1alpha1.Quota{NodeTypes: map[string]v1alpha1.ServerCount{"a100": servers, "h100": 0}}
	}
	four := func(nodeType string) int64 { return map[string]int64{"a100": 4}[nodeType] }
	for name, tc := range map[string]struct {
		reason string
		quota  *v1alpha1.Quota
		want   []int
		// reservations is how many there are.
		reservations int
	}{
		"no quota":         {"all that there are", nil, []int{5, 3, 2}, 3},
		"empty":            {"it has no bound", &v1alpha1.Quota{}, []int{5, 3, 2}, 3},
		"two servers more": {"in whatever place, and of whatever type", &v1alpha1.Quota{Servers: &two}, []int{2, 2, 2}, 3},
		"nine GPUs more": {"a server has four, and half a server cannot be had", &v1alpha1.Quota{GPUs: &nine}, []int{2,
			2, 2}, 1},
		"no server more":  {"nothing", &v1alpha1.Quota{Servers: &none, GPUs: &nine}, nil, 0},
		"no GPU more":     {"nothing of this type", &v1alpha1.Quota{GPUs: &none}, nil, 0},
		"two of the type": {"all places together have two", ofType(2), []int{2, 2, 2}, 1},
		"three of the type": {"a place with fewer is counted by itself: more than are free there could be planned", ofType(3),
			[]int{3, 3, 2}, 2},
		"enough of the type": {"there are not more", ofType(9), []int{5, 3, 2}, 3},
		"none of the type":   {"nothing of this type", ofType(0), nil, 0},
		"fewer servers than of the type": {"the quota of all types is the smaller", &v1alpha1.Quota{Servers: &two,
			NodeTypes: map[string]v1alpha1.ServerCount{"a100": 3}}, []int{2, 2, 2}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			original := convert(withDomains(rack("r1", 3), rack("r2", 2)), nil, DefaultPods, byRack)
			narrowed := LimitTypes(quota.Rest{Quota: tc.quota, Accelerators: four}, []*cloudprovider.InstanceType{original})[0]
			capacities, reservations := reserved(narrowed)
			if diff := cmp.Diff(tc.want, capacities); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if len(reservations) != tc.reservations {
				t.Errorf("%s: the reservations are %v, want %d", tc.reason, reservations, tc.reservations)
			}
			if capacities, reservations := reserved(original); !slices.Equal(capacities, []int{5, 3, 2}) ||
				len(reservations) != 3 {
				t.Errorf("what others hold has changed: %v, %v", capacities, reservations)
			}
			if len(narrowed.Offerings) != len(original.Offerings) {
				t.Error("an offering has vanished: core would take nodes for drifted")
			}
			for i, offering := range original.Offerings {
				if offering.ReservationCapacity == 0 && narrowed.Offerings[i].ReservationID() != offering.ReservationID() {
					t.Error("the offering of the nodes has another reservation: core would take nodes for drifted")
				}
			}
		})
	}
	plain := convert(nodeType("cpu", 0, zone("dc1", 7)), nil, DefaultPods, byRack)
	if got := LimitTypes(quota.Rest{Quota: &v1alpha1.Quota{GPUs: &none}, Accelerators: four},
		[]*cloudprovider.InstanceType{plain})[0]; got != plain {
		t.Error("a type without GPUs is bounded by the quota of GPUs")
	}
}
