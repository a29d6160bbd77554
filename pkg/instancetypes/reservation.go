// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// digestLength is enough to tell the reservations of one fleet apart.
const digestLength = 8

// reservationID names the pool of interchangeable servers that an offering draws from: those of a type, or, where the
// type has several zones, those of one of them. One per server would let the first NodeClaim of a scheduling pass take
// all of them, because a NodeClaim reserves one unit of each reservation that fits.
func reservationID(nodeType, zone string, zones int) string {
	if zones <= 1 {
		return labelValue(nodeType)
	}
	return labelValue(nodeType + "." + zone)
}

// labelValue shortens what is too long for the value of a label, and keeps it unique.
func labelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:])[:digestLength]
	return strings.TrimRight(name[:validation.LabelValueMaxLength-digestLength-1], "-_.") + "-" + digest
}
