// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage decides the content of the record of a server: who had it, from when and until when.
//
// The truth about the present is the claim on the BareMetalHost, which carries everything that the record needs. So a
// claim can be recorded at any time while it stands, and again: a claim that the record has is not added a second time.
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
	// Machine has the server, unless the consumer is another one.
	Machine       types.UID        `json:"machine"`
	Time          metav1.MicroTime `json:"time"`
	TenantCluster string           `json:"tenantCluster,omitempty"`
	Cost          *int64           `json:"cost,omitempty"`
}

// String returns the annotation.
func (c Claim) String() string {
	text, _ := json.Marshal(c) // cannot fail for these fields
	return string(text)
}

// Time converts a time to the precision of the record.
func Time(t time.Time) metav1.MicroTime {
	return metav1.NewMicroTime(t.UTC().Truncate(time.Microsecond))
}

// MachineOn returns the Machine that has claimed a host. It reports false if the host has no consumer or a consumer
// other than a Machine: Cluster API, a person, or a reference without a UID, which the manager never writes.
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

// ClaimOn returns the current use of a host, without an end; nil if no Machine has it. The start is zero if a manager
// without a record claimed the host: such a claim has no time.
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

// Observation is the state of a server at one time. It must be read after the record: then the claim is either the last
// one in the record, or not in it yet.
type Observation struct {
	At time.Time
	// Claim is what ClaimOn returns; nil if no Machine has the server.
	Claim *v1alpha1.HostUse
	// Ending is true if the claim is about to be removed.
	Ending bool
}

// Next returns the record after an observation. It removes only the uses that ended more than keep before it, and folds
// whatever would be too long. It does not modify before.
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

// Has reports whether a record has a claim that is gone. A claim within the time of folded uses of its namespace and
// type counts as one of them. Otherwise a remembered claim that was released meanwhile would be recorded twice.
func Has(record v1alpha1.HostUsageSpec, claim *v1alpha1.HostUse) bool {
	return indexOf(record.Uses, claim) >= 0 || slices.ContainsFunc(record.Folded, func(folded v1alpha1.FoldedUses) bool {
		return folded.Namespace == claim.Machine.Namespace && folded.NodeType == claim.NodeType &&
			!claim.Start.Before(&folded.Start) && claim.Start.Before(&folded.End)
	})
}

// IsEmpty reports whether a record has no use.
func IsEmpty(record v1alpha1.HostUsageSpec) bool {
	return len(record.Uses)+len(record.Folded) == 0
}

// FirstEnd returns the end that is removed first because of its age. It reports false if no use has ended.
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

// Same reports whether two claims are the same. A claim may be nil.
func Same(a, b *v1alpha1.HostUse) bool {
	return a != nil && b != nil && a.Machine.UID == b.Machine.UID && a.Start.Equal(&b.Start)
}

// LostAt returns the latest time at which a claim that went without a release can have been lost: the start of the
// server's next claim, or now.
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

// indexOf returns the index of the claim in the record, -1 if it is not there.
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

// claimedAt returns when the claim of a use was written, by the clock of that time.
func claimedAt(use *v1alpha1.HostUse) metav1.MicroTime {
	return ptr.Deref(use.Claimed, use.Start)
}

// begin adds a use, and ends the previous one: its Machine lost the server without a release.
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

// end sets the end of a use, unless the use has one. The use gets the length of the claim by the clock, even if the
// clock was set back after the previous use, so that this use begins later than its claim.
func end(uses []v1alpha1.HostUse, index int, now time.Time) {
	if index >= 0 && uses[index].End == nil {
		uses[index].End = ptr.To(endAt(&uses[index], now))
	}
}

func endAt(use *v1alpha1.HostUse, now time.Time) metav1.MicroTime {
	return Time(use.Start.Add(max(0, Time(now).Sub(claimedAt(use).Time))))
}

// remove removes the uses that ended before a time. The claim's use stays, or the claim would be recorded again.
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

// Lasted returns how long a use lasted within [from, to). A use without an end lasts until now.
func Lasted(use *v1alpha1.HostUse, from, to, now time.Time) time.Duration {
	return overlap(use.Start.Time, ptr.Deref(use.End, endAt(use, now)).Time, from, to)
}

// FoldedWithin returns the share of folded uses within [from, to), from 0 to 1. A share between 0 and 1 is an estimate:
// the record does not tell when in its day, month or year each use was.
func FoldedWithin(folded *v1alpha1.FoldedUses, from, to time.Time) float64 {
	if folded.Start.Before(&metav1.MicroTime{Time: from}) || to.Before(folded.End.Time) {
		all := folded.End.Sub(folded.Start.Time)
		return overlap(folded.Start.Time, folded.End.Time, from, to).Seconds() / max(all.Seconds(), 1e-6)
	}
	return 1
}

func overlap(start, end, from, to time.Time) time.Duration {
	if end.After(to) {
		end = to
	}
	if start.Before(from) {
		start = from
	}
	return max(0, end.Sub(start))
}
