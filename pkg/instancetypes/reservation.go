// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// RemoveReservationIDs removes from a NodeClaim the reservations that core has planned with: one for each type and domain
// that would do, which are thousands in a big fleet, and a hundred kilobytes in each NodeClaim. Nothing reads them: the
// manager chooses the server by the other requirements.
func RemoveReservationIDs(nodeClaim *karpenterv1.NodeClaim) {
	nodeClaim.Spec.Requirements = slices.DeleteFunc(nodeClaim.Spec.Requirements,
		func(requirement karpenterv1.NodeSelectorRequirementWithMinValues) bool {
			return requirement.Key == v1alpha1.ReservationIDLabelKey
		})
}

// digestLength is enough to tell the reservations of one fleet apart.
const digestLength = 8

// reservationID is what nodes of a type say that they were reserved from. It tells neither zone nor domain, because hosts are
// given other labels while the node runs.
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
