// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package estimate measures how long servers of a type take from the claim to the node, and writes it into the status of the
// NodeType.
//
// Each Machine that joins is a sample, and is counted at most once: the estimate carries the time up to which it counts,
// in the same write, and no process counts a Machine again that joined until then. A sample that arrives late is left
// out, which an estimate can bear.
package estimate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// weight is how much of the estimate a new sample replaces: an eighth. The first eight are averaged.
const weight = 8

// sample is how long one Machine took.
type sample struct {
	machine types.UID
	took    time.Duration
	joined  metav1.Time
}

// sampleOf returns the sample of a Machine. It returns false for one that has not joined, that never will, or that was
// interrupted on its way.
func sampleOf(machine *v1alpha1.Machine) (sample, bool) {
	progress := machine.Status.Progress
	if machine.Spec.TenantClusterRef == nil || machine.Status.NodeTypeRef == nil || progress == nil || progress.Step < progress.Steps ||
		progress.Interrupted {
		return sample{}, false
	}
	took := progress.LastProgressTime.Sub(progress.StartTime.Time)
	return sample{machine: machine.UID, took: took, joined: progress.LastProgressTime}, took >= 0
}

// next is the estimate after more samples, of which those that it counts already are left out. It is nil as long as
// there is none at all.
func next(before *v1alpha1.ProvisioningEstimate, samples []sample) *v1alpha1.ProvisioningEstimate {
	var after v1alpha1.ProvisioningEstimate
	if before != nil {
		after = *before
	}
	counted := after.CountedUntil
	slices.SortFunc(samples, func(a, b sample) int {
		return cmp.Or(a.joined.Compare(b.joined.Time), strings.Compare(string(a.machine), string(b.machine)))
	})
	for _, s := range samples {
		if !s.joined.After(counted.Time) {
			continue
		}
		after.Samples++
		seconds := int64(s.took.Round(time.Second) / time.Second)
		after.TypicalSeconds += (seconds - after.TypicalSeconds) / min(after.Samples, weight)
		after.CountedUntil = s.joined
	}
	if after.Samples == 0 {
		return nil
	}
	return &after
}
