// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// after is a time of the test, so many seconds after the Machine was created.
func after(seconds int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(seconds) * time.Second))
}

func machine(change func(*v1alpha1.Machine)) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{UID: "machine", CreationTimestamp: after(0),
		Annotations: map[string]string{v1alpha1.NodeClaimUIDAnnotationKey: "nodeclaim"}}}
	if change != nil {
		change(m)
	}
	return m
}

func stage(reached v1alpha1.MachineStage, seconds int) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.Progress = &v1alpha1.MachineProgress{Stage: reached, LastProgressTime: after(seconds)}
	}
}

func condition(name string, status metav1.ConditionStatus, seconds int) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.Conditions = []metav1.Condition{{Type: name, Status: status, Reason: "Because", LastTransitionTime: after(seconds)}}
	}
}

// TestSpans: a span is sent once, when its end is seen.
func TestSpans(t *testing.T) {
	type span struct {
		Trace         types.UID
		Name, Parent  string
		Start, End    int
		FailureReason string
	}
	for _, tc := range []struct {
		reason      string
		before, now *v1alpha1.Machine
		want        []span
	}{
		{"nothing has happened", machine(stage(v1alpha1.StageWaiting, 5)), machine(stage(v1alpha1.StageWaiting, 5)), nil},
		{"the stage has begun again: it has not ended", machine(stage(v1alpha1.StageWaiting, 5)), machine(stage(v1alpha1.StageWaiting, 9)), nil},
		{"a server was claimed", machine(nil), machine(condition(v1alpha1.ConditionClaimed, metav1.ConditionTrue, 3)),
			[]span{{"nodeclaim", "Claim", "Machine", 0, 3, ""}}},
		{"it had been claimed before", machine(condition(v1alpha1.ConditionClaimed, metav1.ConditionTrue, 3)),
			machine(condition(v1alpha1.ConditionClaimed, metav1.ConditionTrue, 3)), nil},
		{"no server is free", machine(nil), machine(condition(v1alpha1.ConditionClaimed, metav1.ConditionFalse, 3)), nil},
		{"a stage has ended", machine(stage(v1alpha1.StageWriting, 5)), machine(stage(v1alpha1.StageBooting, 9)),
			[]span{{"nodeclaim", "Writing", "Machine", 5, 9, ""}}},
		{"the node has joined: the Machine's part has ended, too", machine(stage(v1alpha1.StageBooting, 9)),
			machine(stage(v1alpha1.StageJoined, 20)),
			[]span{{"nodeclaim", "Booting", "Machine", 9, 20, ""}, {"nodeclaim", "Machine", "NodeClaim", 0, 20, ""}}},
		{"it was given up", machine(nil), machine(condition(v1alpha1.ConditionGivenUp, metav1.ConditionTrue, 30)),
			[]span{{"nodeclaim", "Machine", "NodeClaim", 0, 30, "Because"}}},
		{"a Machine without a NodeClaim is a trace of its own",
			machine(func(m *v1alpha1.Machine) { m.Annotations = nil; stage(v1alpha1.StageWriting, 5)(m) }),
			machine(func(m *v1alpha1.Machine) { m.Annotations = nil; stage(v1alpha1.StageProvisioned, 9)(m) }),
			[]span{{"machine", "Writing", "Machine", 5, 9, ""}, {"machine", "Machine", "", 0, 9, ""}}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var got []span
			for _, s := range spans(tc.before, tc.now) {
				seconds := func(moment time.Time) int { return int(moment.Sub(after(0).Time).Seconds()) }
				got = append(got, span{s.Trace, s.Name, s.Parent, seconds(s.Start), seconds(s.End), s.Failure})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
		})
	}
}
