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

// offerings are what Karpenter can choose from, in three kinds. A NodeClaim reserves one unit of every offering that it
// is compatible with and that has any left, and fails only if none has, so:
//
//   - NodeClaims that select no domain reserve from the offering of all servers, and one of each domain too, so that the
//     others find no more than is left. It says that it has none of the labels that differ among its servers, so that
//     NodeClaims which select a domain do not reserve from it. Without pods for it there is none.
//   - NodeClaims that select a domain reserve from the offerings of that domain. Domains that have enough servers for all
//     pods share one offering.
//   - The first has no servers, and is for no zone. It is for the nodes that exist: to core a node whose labels match no
//     offering has drifted and has no price, and hosts get other labels and zones, and vanish, and domains become full.
//   - One for each zone has no servers either: core's metric of costs finds prices by zone.
//
// Servers that match several types have the same reservation in each of them. A domain without a free server has no
// offering.
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

// place says that the servers of an offering have none of the keys, nor of the labels that no server of the type has,
// and the zone that all have.
func (l layout) place(offering *cloudprovider.Offering, keys ...string) {
	for _, key := range slices.Concat(keys, l.absent) {
		offering.Requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
	}
	if zone, same := l.common[corev1.LabelTopologyZone]; same {
		offering.Requirements.Add(in(corev1.LabelTopologyZone, zone))
	}
}

// newOffering is one of so many servers of a type, without a place.
func newOffering(nodeType *v1alpha1.NodeType, available int32, reservation string) *cloudprovider.Offering {
	return &cloudprovider.Offering{
		Requirements: scheduling.NewRequirements(in(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeReserved),
			in(v1alpha1.ReservationIDLabelKey, reservation)),
		Price:               float64(nodeType.Status.Cost),
		Available:           available > 0,
		ReservationCapacity: int(available),
	}
}

// poolOf is the ID of the reservation that an offering draws from. Core takes the least of what offerings with the same ID say, so
// servers of several types share one only if no maxCapacity makes one of the types say less than there is. Which
// types they match is in the pool: to one of the types it may be no difference between its servers.
func poolOf(nodeType *v1alpha1.NodeType, domain domain, keys []string) string {
	if len(domain.pool) == 0 || domain.limited {
		return poolID(nodeType.Name, placeOf(keys, domain.place))
	}
	return sharedPoolID(domain.pool, placeOf(slices.DeleteFunc(slices.Clone(keys), v1alpha1.IsTypeLabel), domain.place))
}

func in(key string, values ...string) *scheduling.Requirement {
	return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
}

// RemoveReservationIDs removes from a NodeClaim the reservations that core has planned with: one for each type and
// domain that would do, which are thousands in a big fleet, and a hundred kilobytes in each NodeClaim. Nothing reads
// them: the manager chooses the server by the other requirements.
func RemoveReservationIDs(nodeClaim *karpv1.NodeClaim) {
	nodeClaim.Spec.Requirements = slices.DeleteFunc(nodeClaim.Spec.Requirements,
		func(requirement karpv1.NodeSelectorRequirementWithMinValues) bool {
			return requirement.Key == v1alpha1.ReservationIDLabelKey
		})
}

// digestLength is enough to tell the reservations of one fleet apart.
const digestLength = 8

// reservationID is what nodes of a type say that they were reserved from. It tells neither zone nor domain, because
// hosts are given other labels while the node runs.
func reservationID(nodeType string) string { return labelValue(nodeType) }

// poolID names servers of one type that are in one place, or in any if the place is empty. It is never that of a node.
// One ID per server would let the first NodeClaim of a scheduling pass take all of them, because a NodeClaim reserves
// one unit of each reservation that fits.
func poolID(nodeType, place string) string {
	return labelValue(nodeType + "." + digest("pool", nodeType, place))
}

// sharedPoolID names servers in one place that match several types.
func sharedPoolID(nodeTypes []string, place string) string {
	return "shared." + digest(append(slices.Clone(nodeTypes), "shared", place)...)
}

// labelValue shortens what is too long for the value of a label, and keeps it unique.
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
