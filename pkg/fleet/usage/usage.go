// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage decides what the record of a server says: who had it, and from when until when.
//
// The truth about the present is the claim on the BareMetalHost, which carries what the record will say of it. So each claim can be
// recorded at any time while it stands, and again: a claim that the record has is not added a second time.
package usage

import (
	"encoding/json"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// MaxBytes is how long the uses of a server may be as JSON. The oldest are removed before that. An API server takes objects of 1.5 MiB.
// With names of usual length this is more than 3000 uses: 35 a day for 90 days.
const MaxBytes = 1 << 20

// Claim is the value of v1alpha1.ClaimAnnotationKey.
type Claim struct {
	// Machine has the server, unless its consumer is another one: a manager of an earlier version leaves the annotation there.
	Machine       types.UID        `json:"machine"`
	Time          metav1.MicroTime `json:"time"`
	TenantCluster string           `json:"tenantCluster,omitempty"`
	Cost          *int64           `json:"cost,omitempty"`
}

// String is the annotation.
func (c Claim) String() string {
	text, _ := json.Marshal(c) // of these fields it cannot fail
	return string(text)
}

// Time is a time as the record has it.
func Time(t time.Time) metav1.MicroTime {
	return metav1.NewMicroTime(t.UTC().Truncate(time.Microsecond))
}

// MachineOn returns the Machine that has claimed a host. It returns false for a host without a consumer, or with one that is not a
// Machine: Cluster API, a person, or a reference without a UID, which the manager never writes.
func MachineOn(host *bmov1alpha1.BareMetalHost) (v1alpha1.MachineReference, bool) {
	if host == nil || host.Spec.ConsumerRef == nil {
		return v1alpha1.MachineReference{}, false
	}
	consumer := host.Spec.ConsumerRef
	version, err := schema.ParseGroupVersion(consumer.APIVersion)
	if err != nil || version.Group != v1alpha1.Group || consumer.Kind != "Machine" || consumer.UID == "" {
		return v1alpha1.MachineReference{}, false
	}
	return v1alpha1.MachineReference{Namespace: consumer.Namespace, Name: consumer.Name, UID: consumer.UID}, true
}

// ClaimOn returns the use that a host is in, without an end; nil if no Machine has it. A host that was claimed by a manager without a
// record does not say when: then the start is zero.
func ClaimOn(host *bmov1alpha1.BareMetalHost) *v1alpha1.HostUse {
	machine, claimed := MachineOn(host)
	if !claimed {
		return nil
	}
	use := &v1alpha1.HostUse{HostUID: host.UID, Machine: machine, NodeType: host.Annotations[v1alpha1.NodeTypeAnnotationKey]}
	var claim Claim
	if json.Unmarshal([]byte(host.Annotations[v1alpha1.ClaimAnnotationKey]), &claim) == nil && claim.Machine == machine.UID {
		use.Start, use.TenantCluster, use.Cost = Time(claim.Time.Time), claim.TenantCluster, claim.Cost
	}
	return use
}

// Observation is what is known of a server at one time.
type Observation struct {
	At time.Time
	// Claim is what ClaimOn returns; nil if no Machine has the server.
	Claim *v1alpha1.HostUse
	// Ending is true when the claim is about to be removed.
	Ending bool
}

// Next is the record after an observation. Uses that ended more than keep before it are removed. It does not change the record before.
func Next(before v1alpha1.HostUsageSpec, seen Observation, keep time.Duration) v1alpha1.HostUsageSpec {
	after := *before.DeepCopy()
	switch index := indexOf(after.Uses, seen.Claim); {
	case seen.Claim == nil:
		end(after.Uses, len(after.Uses)-1, seen.At)
	case index >= 0 && seen.Ending:
		end(after.Uses, index, seen.At)
	case index < 0:
		begin(&after, *seen.Claim, seen.At)
		if seen.Ending {
			end(after.Uses, len(after.Uses)-1, seen.At)
		}
	}
	remove(&after, seen.At.Add(-keep), seen.Claim)
	return after
}

// Has returns whether a record has a claim.
func Has(record v1alpha1.HostUsageSpec, claim *v1alpha1.HostUse) bool {
	return indexOf(record.Uses, claim) >= 0
}

// Same returns whether two claims are one. A claim may be nil.
func Same(a, b *v1alpha1.HostUse) bool {
	return a != nil && b != nil && a.Machine.UID == b.Machine.UID && a.Start.Equal(&b.Start)
}

// indexOf returns where the record has the claim; -1 if it has not.
func indexOf(uses []v1alpha1.HostUse, claim *v1alpha1.HostUse) int {
	if claim == nil {
		return -1
	}
	for i := len(uses) - 1; i >= 0; i-- {
		claimed := uses[i].Start
		if uses[i].Claimed != nil {
			claimed = *uses[i].Claimed
		}
		if uses[i].Machine.UID == claim.Machine.UID && (claim.Start.IsZero() || claimed.Equal(&claim.Start)) {
			return i
		}
	}
	return -1
}

// begin adds a use. The one before has ended then: its Machine lost the server without a release.
func begin(record *v1alpha1.HostUsageSpec, use v1alpha1.HostUse, now time.Time) {
	use.End, use.Claimed = nil, nil
	if use.Start.IsZero() {
		use.Start = Time(now)
	}
	if last := len(record.Uses) - 1; last >= 0 {
		end(record.Uses, last, use.Start.Time)
		if before := record.Uses[last].End; use.Start.Before(before) {
			use.Claimed, use.Start = use.Start.DeepCopy(), *before
		}
	}
	record.Uses = append(record.Uses, use)
}

// end gives a use its end, unless it has one: that stays.
func end(uses []v1alpha1.HostUse, index int, now time.Time) {
	if index < 0 || uses[index].End != nil {
		return
	}
	ended := Time(now)
	if ended.Before(&uses[index].Start) {
		ended = uses[index].Start
	}
	uses[index].End = &ended
}

// remove takes uses away that ended before a time, and the oldest of more than MaxBytes. That of the claim stays: without it, the claim
// would be recorded again.
func remove(record *v1alpha1.HostUsageSpec, before time.Time, claim *v1alpha1.HostUse) {
	sizes, total := make([]int, len(record.Uses)), 0
	for i := range record.Uses {
		text, _ := json.Marshal(record.Uses[i])
		sizes[i] = len(text) + 1
		total += sizes[i]
	}
	gone, stays := 0, indexOf(record.Uses, claim)
	for ; gone < len(record.Uses) && record.Uses[gone].End != nil && gone != stays; gone++ {
		if total <= MaxBytes && !record.Uses[gone].End.Time.Before(before) {
			break
		}
		total -= sizes[gone]
		record.RemovedUntil = record.Uses[gone].End
	}
	if record.Uses = slices.Delete(record.Uses, 0, gone); len(record.Uses) == 0 {
		record.Uses = nil
	}
}

// Seconds is how long a use lasted within [from, to). One without an end lasts until now.
func Seconds(use *v1alpha1.HostUse, from, to, now time.Time) float64 {
	until := now
	if use.End != nil {
		until = use.End.Time
	}
	if until.After(to) {
		until = to
	}
	if use.Start.After(from) {
		from = use.Start.Time
	}
	return max(0, until.Sub(from).Seconds())
}
