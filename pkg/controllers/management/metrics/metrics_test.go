// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

var start = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

func timeAt(minutes int) metav1.Time {
	return metav1.NewTime(start.Add(time.Duration(minutes) * time.Minute))
}

// machine of a type, made at the start, with conditions that have become true.
func machine(name, nodeType string, phase v1alpha1.MachinePhase, conditions ...metav1.Condition) *v1alpha1.Machine {
	return &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: name, UID: "1", CreationTimestamp: timeAt(0)},
		Spec:       v1alpha1.MachineSpec{TenantClusterRef: &v1alpha1.NameReference{Name: "tenant-a"}},
		Status: v1alpha1.MachineStatus{
			Phase: phase, NodeTypeRef: &v1alpha1.NameReference{Name: nodeType}, ProviderID: "metal3://ns/host/" + name, Conditions: conditions,
		},
	}
}

func is(conditionType, reason string, minutes int) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: timeAt(minutes)}
}

func isNot(conditionType, reason string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: timeAt(0)}
}

func TestObserve(t *testing.T) {
	claimed, installed := is(v1alpha1.ConditionClaimed, "Claimed", 1), is(v1alpha1.ConditionProvisioned, "Provisioned", 13)
	joined := is(v1alpha1.ConditionJoined, "Joined", 18)
	cases := map[string]struct {
		reason        string
		before, after []metav1.Condition
		// stages before and after, if there are some.
		stages []v1alpha1.MachineProgress
		want   observation
	}{
		"Nothing": {reason: "A heartbeat tells nothing.", before: []metav1.Condition{claimed}, after: []metav1.Condition{claimed}},
		"Claimed": {reason: "A claim is counted once.", after: []metav1.Condition{claimed}, want: observation{claimed: true}},
		"Installed": {reason: "The installation counts from the claim.", before: []metav1.Condition{claimed},
			after: []metav1.Condition{claimed, installed}, want: observation{steps: map[string]time.Duration{StepInstall: 12 * time.Minute}}},
		"Joined": {
			reason: "The join counts from the boot, the whole from the claim.",
			before: []metav1.Condition{claimed, installed}, after: []metav1.Condition{claimed, installed, joined},
			want: observation{joined: true, provisioned: 17 * time.Minute, steps: map[string]time.Duration{StepJoin: 5 * time.Minute}},
		},
		"Missed": {
			reason: "A watch may leave states out; what is written in the conditions is enough.",
			after:  []metav1.Condition{claimed, installed, joined},
			want: observation{claimed: true, joined: true, provisioned: 17 * time.Minute, steps: map[string]time.Duration{
				StepInstall: 12 * time.Minute, StepJoin: 5 * time.Minute,
			}},
		},
		"Backwards": {
			reason: "A clock that was put back makes no negative duration.",
			before: []metav1.Condition{is(v1alpha1.ConditionClaimed, "Claimed", 20)},
			after:  []metav1.Condition{is(v1alpha1.ConditionClaimed, "Claimed", 20), installed},
			want:   observation{steps: map[string]time.Duration{StepInstall: 0}},
		},
		"UserData": {
			reason: "The user data counts from the server that waits for it, not from the claim: hooks may have held that.",
			before: []metav1.Condition{claimed}, after: []metav1.Condition{claimed},
			stages: []v1alpha1.MachineProgress{{Stage: v1alpha1.StageUserData, LastProgressTime: timeAt(7)},
				{Stage: v1alpha1.StageWaiting, LastProgressTime: timeAt(8)}},
			want: observation{steps: map[string]time.Duration{StepUserData: time.Minute}},
		},
		"StillUserData": {
			reason: "A heartbeat while it waits for user data ends nothing.",
			before: []metav1.Condition{claimed}, after: []metav1.Condition{claimed},
			stages: []v1alpha1.MachineProgress{{Stage: v1alpha1.StageUserData, LastProgressTime: timeAt(7)},
				{Stage: v1alpha1.StageUserData, LastProgressTime: timeAt(7)}},
		},
		"GivenUp": {
			reason: "The reason says why.", before: []metav1.Condition{claimed},
			after: []metav1.Condition{claimed, is(v1alpha1.ConditionGivenUp, "HostError", 30)},
			want:  observation{givenUp: "HostError"},
		},
		"Drifted": {
			reason: "A condition that was false before has become true.",
			before: []metav1.Condition{isNot(v1alpha1.ConditionDrifted, "UpToDate")},
			after:  []metav1.Condition{is(v1alpha1.ConditionDrifted, "OSImage", 30)},
			want:   observation{drifted: "OSImage"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.want.nodeType = "h100"
			if tc.want.steps == nil {
				tc.want.steps = map[string]time.Duration{}
			}
			before, after := machine("m", "h100", "", tc.before...), machine("m", "h100", "", tc.after...)
			if len(tc.stages) > 0 {
				before.Status.Progress, after.Status.Progress = &tc.stages[0], &tc.stages[1]
			}
			got := observe(before, after)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(observation{})); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

func TestMachineCounts(t *testing.T) {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	pending := machine("pending", "", "")
	pending.Status.NodeTypeRef, pending.Namespace = nil, "tenant-b"
	slow := machine("slow", "h100", v1alpha1.MachineProvisioning)
	slow.Status.Progress = &v1alpha1.MachineProgress{LastProgressTime: timeAt(2)}
	stuck := machine("stuck", "h100", v1alpha1.MachineProvisioning)
	stuck.Status.Progress = &v1alpha1.MachineProgress{LastProgressTime: timeAt(1)}
	done := machine("done", "h100", v1alpha1.MachineJoined, is(v1alpha1.ConditionDrifted, "OSImage", 5))
	done.Status.Progress = &v1alpha1.MachineProgress{LastProgressTime: timeAt(0)}
	failed := machine("failed", "h100", v1alpha1.MachineFailed, isNot(v1alpha1.ConditionReady, "HostError"))
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pending, slow, stuck, done, failed).Build()
	collector := machineCounts{machines: reader, clock: clocktesting.NewFakePassiveClock(timeAt(11).Time)}
	want := `
# HELP karpenter_metal3_machine_progress_age_seconds Longest time since a Machine of the type that is on its way to a node last made progress.
# TYPE karpenter_metal3_machine_progress_age_seconds gauge
karpenter_metal3_machine_progress_age_seconds{nodetype="h100"} 600
# HELP karpenter_metal3_machines Machines by namespace, type and phase.
# TYPE karpenter_metal3_machines gauge
karpenter_metal3_machines{namespace="tenant-b",nodetype="",phase="Claimed"} 0
karpenter_metal3_machines{namespace="tenant-b",nodetype="",phase="Claiming"} 0
karpenter_metal3_machines{namespace="tenant-b",nodetype="",phase="Failed"} 0
karpenter_metal3_machines{namespace="tenant-b",nodetype="",phase="Joined"} 0
karpenter_metal3_machines{namespace="tenant-b",nodetype="",phase="Pending"} 1
karpenter_metal3_machines{namespace="tenant-b",nodetype="",phase="Provisioned"} 0
karpenter_metal3_machines{namespace="tenant-b",nodetype="",phase="Provisioning"} 0
karpenter_metal3_machines{namespace="tenant-b",nodetype="",phase="Releasing"} 0
karpenter_metal3_machines{namespace="tenant-a",nodetype="h100",phase="Claimed"} 0
karpenter_metal3_machines{namespace="tenant-a",nodetype="h100",phase="Claiming"} 0
karpenter_metal3_machines{namespace="tenant-a",nodetype="h100",phase="Failed"} 1
karpenter_metal3_machines{namespace="tenant-a",nodetype="h100",phase="Joined"} 1
karpenter_metal3_machines{namespace="tenant-a",nodetype="h100",phase="Pending"} 0
karpenter_metal3_machines{namespace="tenant-a",nodetype="h100",phase="Provisioned"} 0
karpenter_metal3_machines{namespace="tenant-a",nodetype="h100",phase="Provisioning"} 2
karpenter_metal3_machines{namespace="tenant-a",nodetype="h100",phase="Releasing"} 0
# HELP karpenter_metal3_machines_drifted Machines that would be installed differently if they were made now, by the reason of their condition Drifted.
# TYPE karpenter_metal3_machines_drifted gauge
karpenter_metal3_machines_drifted{namespace="tenant-a",nodetype="h100",reason="OSImage"} 1
# HELP karpenter_metal3_machines_failed Machines that need attention, by the reason of their condition Ready.
# TYPE karpenter_metal3_machines_failed gauge
karpenter_metal3_machines_failed{namespace="tenant-a",nodetype="h100",reason="HostError"} 1
`
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

type fakeInventory struct {
	synced bool
	counts []inventory.StateCount
}

func (i fakeInventory) Synced() bool                   { return i.synced }
func (i fakeInventory) States() []inventory.StateCount { return i.counts }

func TestHostCounts(t *testing.T) {
	counts := []inventory.StateCount{
		{NodeType: "h100", State: inventory.StateAvailable, Hosts: 3},
		{NodeType: "h100", State: inventory.StateUnavailable, Reason: inventory.ReasonPaused, Hosts: 1},
	}
	if got := testutil.CollectAndCount(hostCounts{fakeInventory{synced: false, counts: counts}}); got != 0 {
		t.Errorf("an inventory that is still being filled has %d series, want none: they would look like servers that are gone", got)
	}
	want := `
# HELP karpenter_metal3_hosts BareMetalHosts that match a NodeType, by state: available, claimed, error, quarantined, unavailable. A host may match several types.
# TYPE karpenter_metal3_hosts gauge
karpenter_metal3_hosts{nodetype="h100",reason="",state="available"} 3
karpenter_metal3_hosts{nodetype="h100",reason="Paused",state="unavailable"} 1
`
	if err := testutil.CollectAndCompare(hostCounts{fakeInventory{synced: true, counts: counts}}, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestTenantCounts(t *testing.T) {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	tenant := func(name string, conditions ...metav1.Condition) *v1alpha1.TenantCluster {
		return &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name},
			Status: v1alpha1.TenantClusterStatus{Conditions: conditions}}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		tenant("silent", metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonProviderSilent}),
		tenant("new"), tenant("well", is(v1alpha1.ConditionClusterIdentified, v1alpha1.ReasonIdentified, 0)),
		tenant("one", isNot(v1alpha1.ConditionClusterIdentified, v1alpha1.ReasonAnotherCluster)),
		tenant("two", isNot(v1alpha1.ConditionClusterIdentified, v1alpha1.ReasonAnotherCluster),
			isNot(v1alpha1.ConditionPoolsSynced, v1alpha1.ReasonInvalidPools)),
	).Build()
	want := `
# HELP karpenter_metal3_tenantclusters_blocked TenantClusters whose provider writes or deletes nothing, by the reason of the condition that says why.
# TYPE karpenter_metal3_tenantclusters_blocked gauge
karpenter_metal3_tenantclusters_blocked{reason="AnotherCluster"} 2
karpenter_metal3_tenantclusters_blocked{reason="ProviderSilent"} 1
`
	if err := testutil.CollectAndCompare(tenantCounts{reader}, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestWatcher(t *testing.T) {
	w := newWatcher(nil, clocktesting.NewFakePassiveClock(timeAt(60).Time))
	machines := w.handler()
	claimed := is(v1alpha1.ConditionClaimed, "Claimed", 1)
	machines.OnUpdate(machine("m", "h100", ""), machine("m", "h100", "", claimed))
	machines.OnUpdate(machine("m", "h100", "", claimed), machine("m", "h100", "", claimed, is(v1alpha1.ConditionGivenUp, "HostError", 40)))
	other := machine("m", "h100", "", claimed)
	other.UID = "2"
	machines.OnUpdate(machine("m", "h100", ""), other) // another Machine of the same name

	gone := machine("m", "h100", "", claimed)
	deleted := timeAt(50)
	gone.DeletionTimestamp = &deleted
	machines.OnDelete(gone)
	never := gone.DeepCopy()
	never.Status.ProviderID = ""
	machines.OnDelete(never)
	machines.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: gone})

	if got := testutil.ToFloat64(w.claims); got != 1 {
		t.Errorf("%v claims, want 1: only the one that was seen to happen", got)
	}
	if got := testutil.ToFloat64(w.givenUp.WithLabelValues("h100", "HostError")); got != 1 {
		t.Errorf("%v given up, want 1", got)
	}
	wantSteps := `
# HELP karpenter_metal3_machine_step_duration_seconds Seconds that a Machine took for a step: install (claim to booted image), of that userdata (until Metal3 has image and user data), join (booted image to node), release (deletion to the server's return to the pool).
# TYPE karpenter_metal3_machine_step_duration_seconds histogram
` + buckets(`karpenter_metal3_machine_step_duration_seconds_bucket{nodetype="h100",step="release"`, 600) + `
karpenter_metal3_machine_step_duration_seconds_sum{nodetype="h100",step="release"} 600
karpenter_metal3_machine_step_duration_seconds_count{nodetype="h100",step="release"} 1
`
	if err := testutil.CollectAndCompare(w.steps, strings.NewReader(wantSteps)); err != nil {
		t.Errorf("one Machine with a server was released, after 10 minutes: %v", err)
	}

	w.forget(&v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "a100"}})
	if got := testutil.CollectAndCount(w.claims); got != 1 {
		t.Errorf("%d series after another type has gone, want 1", got)
	}
	w.forget(&v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "h100"}})
	for _, collector := range w.collectors() {
		if got := testutil.CollectAndCount(collector); got != 0 {
			t.Errorf("%d series of %T are left of a type that has gone", got, collector)
		}
	}
}

func buckets(name string, value float64) string {
	var lines []string
	for _, bound := range append(durations, 0) {
		text, count := strconv.FormatFloat(bound, 'f', -1, 64), "0"
		if bound == 0 {
			text = "+Inf"
		}
		if bound == 0 || value <= bound {
			count = "1"
		}
		lines = append(lines, name+`,le="`+text+`"} `+count)
	}
	return strings.Join(lines, "\n")
}
