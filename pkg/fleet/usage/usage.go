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
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Claim is the value of v1alpha1.ClaimAnnotationKey.
type Claim struct {
	// Machine has the server, unless its consumer is another one.
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

// Observation is what is known of a server at one time, read after the record: a claim that is seen then is the last that the record has,
// or is not in it yet.
type Observation struct {
	At time.Time
	// Claim is what ClaimOn returns; nil if no Machine has the server.
	Claim *v1alpha1.HostUse
	// Ending is true when the claim is about to be removed.
	Ending bool
}

// Next is the record after an observation. Uses that ended more than keep before it are removed, and no others: what would be too long
// is folded. It does not change the record before.
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
	fold(&after)
	return after
}

// Has returns whether a record has a claim that is no more. One of the time of folded uses of its namespace and type is taken for one of
// them: else a claim that is remembered, and was released meanwhile, would be recorded twice.
func Has(record v1alpha1.HostUsageSpec, claim *v1alpha1.HostUse) bool {
	return indexOf(record.Uses, claim) >= 0 || slices.ContainsFunc(record.Folded, func(folded v1alpha1.FoldedUses) bool {
		return folded.Namespace == claim.Machine.Namespace && folded.NodeType == claim.NodeType &&
			!claim.Start.Before(&folded.Start) && claim.Start.Before(&folded.End)
	})
}

// IsEmpty returns whether a record has no use.
func IsEmpty(record v1alpha1.HostUsageSpec) bool {
	return len(record.Uses)+len(record.Folded) == 0
}

// FirstEnd is the end that is removed first because of its age. It returns false if nothing has ended.
func FirstEnd(record v1alpha1.HostUsageSpec) (time.Time, bool) {
	var ends []time.Time
	if len(record.Uses) > 0 && record.Uses[0].End != nil {
		ends = append(ends, record.Uses[0].End.Time)
	}
	if len(record.Folded) > 0 {
		ends = append(ends, record.Folded[0].End.Time)
	}
	if len(ends) == 0 {
		return time.Time{}, false
	}
	return slices.MinFunc(ends, time.Time.Compare), true
}

// Same returns whether two claims are one. A claim may be nil.
func Same(a, b *v1alpha1.HostUse) bool {
	return a != nil && b != nil && a.Machine.UID == b.Machine.UID && a.Start.Equal(&b.Start)
}

// LostAt is when a claim that has gone without a release was lost at the latest: the server has had another one since then.
func LostAt(record v1alpha1.HostUsageSpec, lost, claim *v1alpha1.HostUse, now time.Time) time.Time {
	others := []*v1alpha1.HostUse{}
	if last := len(record.Uses) - 1; last >= 0 {
		others = append(others, &record.Uses[last])
	}
	if claim != nil {
		others = append(others, claim)
	}
	for _, other := range others {
		if since := claimedAt(other); lost.Start.Before(&since) && since.Time.Before(now) {
			now = since.Time
		}
	}
	return now
}

// indexOf returns where the record has the claim; -1 if it has not.
func indexOf(uses []v1alpha1.HostUse, claim *v1alpha1.HostUse) int {
	if claim == nil {
		return -1
	}
	for i := len(uses) - 1; i >= 0; i-- {
		claimed := claimedAt(&uses[i])
		if uses[i].Machine.UID == claim.Machine.UID && (claim.Start.IsZero() || claimed.Equal(&claim.Start)) {
			return i
		}
	}
	return -1
}

// claimedAt is when the claim of a use was written, by the clock of that time.
func claimedAt(use *v1alpha1.HostUse) metav1.MicroTime {
	return ptr.Deref(use.Claimed, use.Start)
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

// end gives a use its end, unless it has one: that stays. The use is as long as the clock says that the claim was, also if the clock has
// been set back since the use before, and this one had to begin later than its claim.
func end(uses []v1alpha1.HostUse, index int, now time.Time) {
	if index >= 0 && uses[index].End == nil {
		uses[index].End = ptr.To(endAt(&uses[index], now))
	}
}

func endAt(use *v1alpha1.HostUse, now time.Time) metav1.MicroTime {
	return Time(use.Start.Add(max(0, Time(now).Sub(claimedAt(use).Time))))
}

// remove takes uses away that ended before a time. That of the claim stays: without it, the claim would be recorded again.
func remove(record *v1alpha1.HostUsageSpec, before time.Time, claim *v1alpha1.HostUse) {
	old := func(end *metav1.MicroTime) bool {
		if end == nil || !end.Time.Before(before) {
			return false
		}
		if record.RemovedUntil == nil || record.RemovedUntil.Before(end) {
			record.RemovedUntil = end.DeepCopy()
		}
		return true
	}
	stays := indexOf(record.Uses, claim)
	gone := 0
	for gone < len(record.Uses) && gone != stays && old(record.Uses[gone].End) {
		gone++
	}
	if record.Uses = slices.Delete(record.Uses, 0, gone); len(record.Uses) == 0 {
		record.Uses = nil
	}
	record.Folded = slices.DeleteFunc(record.Folded, func(folded v1alpha1.FoldedUses) bool { return old(&folded.End) })
	if len(record.Folded) == 0 {
		record.Folded = nil
	}
}

// Lasted is how long a use lasted within [from, to). One without an end lasts until now.
func Lasted(use *v1alpha1.HostUse, from, to, now time.Time) time.Duration {
	return overlap(use.Start.Time, ptr.Deref(use.End, endAt(use, now)).Time, from, to)
}

// FoldedWithin is which part of folded uses was within [from, to), from 0 to 1. If it is neither, it is an estimate: when in its day, month
// or year each of them was is not known.
func FoldedWithin(folded *v1alpha1.FoldedUses, from, to time.Time) float64 {
	if folded.Start.Before(&metav1.MicroTime{Time: from}) || to.Before(folded.End.Time) {
		all := folded.End.Sub(folded.Start.Time)
		return overlap(folded.Start.Time, folded.End.Time, from, to).Seconds() / max(all.Seconds(), 1e-6)
	}
	return 1
}

// overlap is how long two times overlap.
func overlap(start, end, from, to time.Time) time.Duration {
	if end.After(to) {
		end = to
	}
	if start.Before(from) {
		start = from
	}
	return max(0, end.Sub(start))
}
