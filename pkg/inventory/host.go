// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"maps"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// host is what the inventory keeps of a BareMetalHost: only what a decision or a count depends on.
type host struct {
	key         types.NamespacedName
	uid         types.UID
	labels      map[string]string // the informer's own map, never written to
	arch        string
	hardware    hardware
	eligibility Eligibility
	// claimedAs is the type that one of our Machines has claimed the host as, by its annotation.
	claimedAs string
	// assumedBy is the Machine that the host has been given to while the claim does not show on it yet.
	assumedBy types.UID
	assumedAs string
	// buckets that the host is in, by the name of the type. One for each type that it matches.
	buckets map[string]*bucket
	// lacks is what the host has less of than a type says, by the name of the type; nothing for those it is big enough for.
	lacks map[string]string
	// matches are the names of those types, as sharing writes them.
	matches string
}

func newHost(from *bmov1alpha1.BareMetalHost) *host {
	h := &host{
		key:         types.NamespacedName{Namespace: from.Namespace, Name: from.Name},
		uid:         from.UID,
		labels:      from.Labels,
		arch:        architecture(from),
		hardware:    hardwareOf(from),
		eligibility: EligibilityOf(from),
		buckets:     map[string]*bucket{},
		lacks:       map[string]string{},
	}
	if consumer := from.Spec.ConsumerRef; consumer != nil {
		if version, err := schema.ParseGroupVersion(consumer.APIVersion); err == nil && version.Group == v1alpha1.Group {
			h.claimedAs = from.Annotations[v1alpha1.NodeTypeAnnotationKey]
		}
	}
	return h
}

// alike returns whether two states of a host belong to the same buckets.
func (h *host) alike(other *host) bool {
	return h.arch == other.arch && h.hardware == other.hardware && maps.Equal(h.labels, other.labels)
}

func (h *host) reference() v1alpha1.HostReference {
	return v1alpha1.HostReference{Namespace: h.key.Namespace, Name: h.key.Name, UID: h.uid}
}

// usedAs is the type that the host counts for against maxCapacity, empty if none.
func (h *host) usedAs() string {
	if h.assumedBy != "" {
		return h.assumedAs
	}
	return h.claimedAs
}

// counts is what the host adds to the counts of a type that it is big enough for.
func (h *host) counts() Counts {
	counts := Counts{Total: 1}
	claimed := h.eligibility.Claimed || h.assumedBy != ""
	if claimed {
		counts.Claimed = 1
	}
	if h.eligibility.Error {
		counts.Error = 1
	}
	if h.eligibility.Quarantined {
		counts.Quarantined = 1
	}
	switch {
	case h.eligibility.Claimable && !claimed:
		counts.Available = 1
	case !claimed && !h.eligibility.Error && !h.eligibility.Quarantined:
		counts.NotReady = 1
	}
	return counts
}

func byName(a, b *host) int {
	return cmp.Or(strings.Compare(a.key.Namespace, b.key.Namespace), strings.Compare(a.key.Name, b.key.Name))
}

// architecture in the words of kubernetes.io/arch. Hosts that have not been inspected count as amd64, as most are.
func architecture(from *bmov1alpha1.BareMetalHost) string {
	reported := from.Spec.Architecture
	if details := from.Status.HardwareDetails; details != nil && details.CPU.Arch != "" {
		reported = details.CPU.Arch
	}
	switch reported {
	case "aarch64", "arm64":
		return "arm64"
	}
	return "amd64"
}
