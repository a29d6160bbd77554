// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

var midnight = metav1.NewTime(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))

func after(d time.Duration) metav1.Time { return metav1.NewTime(midnight.Add(d)) }

// TestNextProgress walks a Machine along its way, and looks at what each step makes of the one before.
func TestNextProgress(t *testing.T) {
	inState := func(state bmov1alpha1.ProvisioningState) *bmov1alpha1.BareMetalHost {
		_, host := provisionedPair()
		host.Status.Provisioning.State = state
		return host
	}
	paused := inState(bmov1alpha1.StateProvisioning)
	paused.Annotations = map[string]string{bmov1alpha1.PausedAnnotation: ""}
	writing := observation{phase: v1alpha1.MachineProvisioning, host: inState(bmov1alpha1.StateProvisioning)}
	progress := func(stage stage, last time.Duration, change func(*v1alpha1.MachineProgress)) *v1alpha1.MachineProgress {
		p := &v1alpha1.MachineProgress{Stage: stage.name, Step: stage.step, Steps: 5, Description: stage.description, StartTime: midnight,
			LastProgressTime: after(last)}
		if change != nil {
			change(p)
		}
		return p
	}
	suspended := func(p *v1alpha1.MachineProgress) { p.Suspended, p.Interrupted = true, true }
	interrupted := func(p *v1alpha1.MachineProgress) { p.Interrupted = true }
	for name, tc := range map[string]struct {
		reason     string
		before     *v1alpha1.MachineProgress
		observed   observation
		standAlone bool
		held       bool
		elapsed    time.Duration
		want       *v1alpha1.MachineProgress
	}{
		"NotClaimed": {reason: "there is no way yet", observed: observation{phase: v1alpha1.MachinePending}},
		"Claimed": {
			reason:   "the way begins with the claim",
			observed: observation{phase: v1alpha1.MachineClaimed, reason: v1alpha1.ReasonWaitingForBootstrapData},
			want:     progress(stageUserData, 0, nil),
		},
		"Held": {
			reason: "the network comes first", observed: observation{phase: v1alpha1.MachineClaimed, reason: v1alpha1.ReasonClaimed}, held: true,
			want: progress(stageNetwork, 0, nil),
		},
		"OlderManager": {reason: "a Machine that joined before there was progress has no known duration",
			observed: observation{phase: v1alpha1.MachineJoined}},
		"StandAloneArrived": {
			reason: "it joins no cluster, so it is done once it is installed", standAlone: true,
			before: progress(stageWriting, 0, func(p *v1alpha1.MachineProgress) { p.Steps = 4 }), elapsed: time.Minute,
			observed: observation{phase: v1alpha1.MachineProvisioned, host: inState(bmov1alpha1.StateProvisioned)},
			want:     progress(stageProvisioned, time.Minute, func(p *v1alpha1.MachineProgress) { p.Steps = 4 }),
		},
		"NotYet": {reason: "Metal3 has been told, and has not begun", before: progress(stageUserData, 0, nil), elapsed: time.Minute,
			observed: observation{phase: v1alpha1.MachineProvisioning, host: inState(bmov1alpha1.StateAvailable)},
			want:     progress(stageWaiting, time.Minute, nil)},
		"Preparing": {reason: "a part of a step is progress too", before: progress(stageWaiting, 0, nil), elapsed: time.Minute,
			observed: observation{phase: v1alpha1.MachineProvisioning, host: inState(bmov1alpha1.StatePreparing)},
			want:     progress(stagePreparing, time.Minute, nil)},
		"TimePasses": {
			reason: "time alone is no progress, and no write", before: progress(stageWriting, 0, nil), elapsed: 50 * time.Minute,
			observed: writing, want: progress(stageWriting, 0, nil),
		},
		"Back": {
			reason: "to begin again is no progress, or a Metal3 that tries for ever would never be given up",
			before: progress(stageWriting, 0, nil), elapsed: time.Minute,
			observed: observation{phase: v1alpha1.MachineProvisioning, host: inState(bmov1alpha1.StatePreparing)},
			want:     progress(stageWriting, 0, nil),
		},
		"Error": {
			reason: "what becomes of errors is onError's business", before: progress(stageWriting, 0, nil), elapsed: time.Minute,
			observed: observation{phase: v1alpha1.MachineFailed, reason: v1alpha1.ReasonHostError}, want: progress(stageWriting, 0, suspended),
		},
		"Recovered": {
			reason: "the time in error does not count", before: progress(stageWriting, 0, suspended), elapsed: 3 * time.Hour,
			observed: writing, want: progress(stageWriting, 3*time.Hour, interrupted),
		},
		"Paused": {
			reason: "nothing is to be expected of a host that is paused", before: progress(stageWriting, 0, nil), elapsed: time.Minute,
			observed: observation{phase: v1alpha1.MachineProvisioning, host: paused}, want: progress(stageWriting, 0, suspended),
		},
		"Joined": {
			reason: "it is there", before: progress(stageBooting, 0, nil), elapsed: 18 * time.Minute,
			observed: observation{phase: v1alpha1.MachineJoined}, want: progress(stageJoined, 18*time.Minute, nil),
		},
		"AfterJoining": {
			reason: "what happens to a node is no part of the way", before: progress(stageJoined, 18*time.Minute, nil), elapsed: time.Hour,
			observed: observation{phase: v1alpha1.MachineFailed, reason: v1alpha1.ReasonHostError}, want: progress(stageJoined, 18*time.Minute, nil),
		},
	} {
		t.Run(name, func(t *testing.T) {
			machine, _ := provisionedPair()
			if tc.standAlone {
				machine.Spec.TenantClusterRef = nil
			}
			if tc.held {
				machine.Annotations[v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, v1alpha1.NetworkHook)] = "vlan 7"
			}
			machine.Status.Progress = tc.before
			got := nextProgress(machine, &tc.observed, nil, after(tc.elapsed))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestExpectedReadyTime(t *testing.T) {
	machine, _ := provisionedPair()
	got := nextProgress(machine, &observation{phase: v1alpha1.MachineClaimed}, &v1alpha1.ProvisioningEstimate{TypicalSeconds: 1080}, midnight)
	if got.ExpectedReadyTime == nil || !got.ExpectedReadyTime.Time.Equal(after(18*time.Minute).Time) {
		t.Errorf("expected to be ready at %v, want %v", got.ExpectedReadyTime, after(18*time.Minute))
	}
}

// TestWithProgress: the message counts minutes, but a minute alone changes none that stands.
func TestWithProgress(t *testing.T) {
	progress := &v1alpha1.MachineProgress{Step: 3, Steps: 5, Description: "writing image", StartTime: midnight}
	estimate := &v1alpha1.ProvisioningEstimate{TypicalSeconds: 1080}
	const unchanged = "writing image, step 3 of 5, 12 min; usually 18 min: Metal3 is at it"
	for name, tc := range map[string]struct {
		reason, before, message string
		elapsed                 time.Duration
		estimate                *v1alpha1.ProvisioningEstimate
		want                    string
	}{
		"New": {reason: "to the minute when something has changed", message: "Metal3 is at it", elapsed: 12*time.Minute + 40*time.Second,
			estimate: estimate, want: unchanged},
		"Later": {reason: "four minutes later it still stands", before: unchanged, message: "Metal3 is at it", elapsed: 16 * time.Minute,
			estimate: estimate, want: unchanged},
		"MuchLater": {reason: "five are worth a write", before: unchanged, message: "Metal3 is at it", elapsed: 17 * time.Minute,
			estimate: estimate, want: "writing image, step 3 of 5, 17 min; usually 18 min: Metal3 is at it"},
		"Other": {reason: "news is worth a write at once", before: unchanged, message: "paused", elapsed: 13 * time.Minute, estimate: estimate,
			want: "writing image, step 3 of 5, 13 min; usually 18 min: paused"},
		"NoEstimate": {reason: "no server of the type has ever joined", message: "Metal3 is at it", elapsed: time.Minute,
			want: "writing image, step 3 of 5, 1 min: Metal3 is at it"},
		"Seconds": {reason: "virtual servers are fast", message: "Metal3 is at it", elapsed: time.Second,
			estimate: &v1alpha1.ProvisioningEstimate{TypicalSeconds: 7}, want: "writing image, step 3 of 5, 0 min; usually 7s: Metal3 is at it"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := withProgress(tc.before, tc.message, progress, tc.estimate, after(tc.elapsed)); got != tc.want {
				t.Errorf("%s:\n got %s\nwant %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestIsLasting(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		kind   bmov1alpha1.ErrorType
		count  int
		want   bool
	}{
		"Provisioning":   {"the image could not be written; Metal3 would start all over", bmov1alpha1.ProvisioningError, 1, true},
		"Preparation":    {"the server could not be prepared", bmov1alpha1.PreparationError, 1, true},
		"Power":          {"a BMC that does not answer may be busy", bmov1alpha1.PowerManagementError, 1, false},
		"PowerTwice":     {"or restarting", bmov1alpha1.PowerManagementError, 2, false},
		"PowerThreeTime": {"three times in a row, minutes apart, is no accident", bmov1alpha1.PowerManagementError, 3, true},
		"Registration":   {"credentials may be being changed", bmov1alpha1.RegistrationError, 1, false},
		"NoType":         {"an error without a type is counted like the others", "", 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, host := provisionedPair()
			host.Status.ErrorType, host.Status.ErrorCount = tc.kind, tc.count
			if got := isLasting(host); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
