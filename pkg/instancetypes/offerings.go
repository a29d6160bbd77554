// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// offerings returns what Karpenter can choose from. A NodeClaim reserves one unit of every compatible offering that has
// any left, and fails only if none has. So there are these kinds:
//
//   - One offering for all servers. NodeClaims that select no domain reserve from it, and from each domain too, so that
//     other NodeClaims find no more than is left. It has none of the labels that differ among its servers, so
//     NodeClaims that select a domain do not reserve from it. It is left out without pods for it.
//   - Offerings for each domain. NodeClaims that select a domain reserve from them. Domains with enough servers for all
//     pods share one offering.
//   - The first offering, without servers and zone. It is for existing nodes: to core, a node whose labels match no
//     offering has drifted and has no price. Hosts change labels and zones or vanish, and domains become full.
//   - One for each zone, without servers: core's metric of costs finds prices by zone.
//
// Servers that match several types have the same reservation in each. A domain without a free server has no offering.
func offerings(nodeType *v1alpha1.NodeType, demand *Demand) cloudprovider.Offerings {
	layout := layoutOf(nodeType, demand)
	result := cloudprovider.Offerings{newOffering(nodeType, 0, reservationID(nodeType.Name))}
	for _, zone := range zonesOf(nodeType) {
		existing := newOffering(nodeType, 0, reservationID(nodeType.Name))
		existing.Requirements.Add(in(corev1.LabelTopologyZone, zone.Name))
		result = append(result, existing)
	}
	for _, pool := range layout.pools(nodeType) {
		if pool.available <= 0 || demand.onlySelects(layout.keys) {
			continue
		}
		offering := newOffering(nodeType, pool.available, poolOf(nodeType, pool, nil))
		layout.place(offering, layout.keys...)
		result = append(result, offering)
	}
	if len(layout.keys) == 0 {
		return result // there is but one place, which is the pool
	}
	for _, domain := range layout.joinAmple(demand, nodeType.Status.Capacity.Available) {
		offering := newOffering(nodeType, domain.available, poolOf(nodeType, domain, layout.keys))
		for _, key := range layout.keys {
			if value, has := domain.place[key]; value == anyValue {
				offering.Requirements.Add(in(key, domain.values...))
			} else if has {
				offering.Requirements.Add(in(key, value))
			} else {
				layout.place(offering, key)
			}
		}
		layout.place(offering)
		result = append(result, offering)
	}
	return result
}

// place requires for the servers of an offering that they have none of the keys and of the absent labels, and the zone
// that all share.
func (l layout) place(offering *cloudprovider.Offering, keys ...string) {
	for _, key := range slices.Concat(keys, l.absent) {
		offering.Requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
	}
	if zone, same := l.common[corev1.LabelTopologyZone]; same {
		offering.Requirements.Add(in(corev1.LabelTopologyZone, zone))
	}
}

// newOffering returns an offering of that many servers of a type, without a place.
func newOffering(nodeType *v1alpha1.NodeType, available int32, reservation string) *cloudprovider.Offering {
	return &cloudprovider.Offering{
		Requirements: scheduling.NewRequirements(in(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeReserved),
			in(v1alpha1.ReservationIDLabelKey, reservation)),
		Price:               float64(nodeType.Status.Cost),
		Available:           available > 0,
		ReservationCapacity: int(available),
	}
}

// poolOf returns the ID of the reservation that an offering draws from. Core takes the least number of the offerings
// with the same ID, so several types share an ID only if no maxCapacity lowers the number of one of them. The pool
// contains the types that servers match: for one of the types that may be no difference between its servers.
func poolOf(nodeType *v1alpha1.NodeType, domain domain, keys []string) string {
	if len(domain.pool) == 0 || domain.limited {
		return poolID(nodeType.Name, placeOf(keys, domain.place))
	}
	return sharedPoolID(domain.pool, placeOf(slices.DeleteFunc(slices.Clone(keys), v1alpha1.IsTypeLabel), domain.place))
}

func in(key string, values ...string) *scheduling.Requirement {
	return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
}

// RemoveReservationIDs removes from a NodeClaim the reservations that core has planned with: one for each fitting type
// and domain. In a big fleet these are thousands, and a hundred kilobytes in each NodeClaim. Nothing reads them: the
// manager chooses the server by the other requirements.
func RemoveReservationIDs(nodeClaim *karpv1.NodeClaim) {
	nodeClaim.Spec.Requirements = slices.DeleteFunc(nodeClaim.Spec.Requirements,
		func(requirement karpv1.NodeSelectorRequirementWithMinValues) bool {
			return requirement.Key == v1alpha1.ReservationIDLabelKey
		})
}

// digestLength is enough to tell the reservations of one fleet apart.
const digestLength = 8

// reservationID returns the reservation that nodes of a type show. It has neither zone nor domain, because hosts are
// given other labels while the node runs.
func reservationID(nodeType string) string { return labelValue(nodeType) }

// poolID names servers of one type in one place, or in any if the place is empty. No node has this ID. An ID for each
// server would let the first NodeClaim of a scheduling pass take all of them, because a NodeClaim reserves one unit of
// each reservation that fits.
func poolID(nodeType, place string) string {
	return labelValue(nodeType + "." + digest("pool", nodeType, place))
}

// sharedPoolID names servers in one place that match several types.
func sharedPoolID(nodeTypes []string, place string) string {
	return "shared." + digest(append(slices.Clone(nodeTypes), "shared", place)...)
}

// labelValue shortens a name that is too long for the value of a label, and keeps it unique.
func labelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	return strings.TrimRight(name[:validation.LabelValueMaxLength-digestLength-1], "-_.") + "-" + digest(name)
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:digestLength]
}
