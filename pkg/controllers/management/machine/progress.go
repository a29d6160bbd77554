// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// stage is a stage of the installation, with its step and a description for people.
type stage struct {
	name        v1alpha1.MachineStage
	step        int32
	description string
}

// Reaching a stage for the first time is progress. A stage that Metal3 repeats in a retry is none.
var (
	stageNetwork     = stage{v1alpha1.StageNetwork, 1, "moving into the network of the tenant"}
	stageUserData    = stage{v1alpha1.StageUserData, 2, "preparing user data"}
	stageWaiting     = stage{v1alpha1.StageWaiting, 3, "waiting for Metal3"}
	stagePreparing   = stage{v1alpha1.StagePreparing, 3, "preparing the server"}
	stageWriting     = stage{v1alpha1.StageWriting, 3, "writing image"}
	stageBooting     = stage{v1alpha1.StageBooting, 4, "booting"}
	stageProvisioned = stage{v1alpha1.StageProvisioned, 4, "provisioned"}
	stageJoined      = stage{v1alpha1.StageJoined, 5, "joined"}

	stages = []stage{stageNetwork, stageUserData, stageWaiting, stagePreparing, stageWriting, stageBooting, stageProvisioned, stageJoined}
)

// stageOf returns the stage of a Machine. It returns false without a server, or if the server is in error.
func stageOf(machine *v1alpha1.Machine, f *observation) (stage, bool) {
	switch f.phase {
	case v1alpha1.MachineClaimed:
		if len(v1alpha1.Hooks(machine.Annotations, v1alpha1.PreProvisionHookPrefix)) > 0 {
			return stageNetwork, true
		}
		return stageUserData, true
	case v1alpha1.MachineProvisioning:
		if f.host == nil {
			return stageWaiting, true
		}
		switch f.host.Status.Provisioning.State {
		case bmov1alpha1.StatePreparing:
			return stagePreparing, true
		case bmov1alpha1.StateProvisioning, bmov1alpha1.StateProvisioned:
			return stageWriting, true
		}
		return stageWaiting, true
	case v1alpha1.MachineProvisioned:
		if machine.Spec.TenantClusterRef == nil {
			return stageProvisioned, true
		}
		return stageBooting, true
	case v1alpha1.MachineJoined:
		return stageJoined, true
	}
	return stage{}, false
}

// nextProgress returns the progress of a Machine, or nil before it has a claim. Progress changes when the Machine
// reaches a stage, is suspended or is resumed. Time alone does not change it.
func nextProgress(
	machine *v1alpha1.Machine, f *observation, estimate *v1alpha1.ProvisioningEstimate, now metav1.Time,
) *v1alpha1.MachineProgress {
	current, underWay := stageOf(machine, f)
	if machine.Status.Progress == nil {
		if !underWay || current == lastStage(machine) {
			return nil
		}
		return firstProgress(machine, current, estimate, now)
	}
	progress := machine.Status.Progress.DeepCopy()
	if isDone(progress) {
		return progress
	}
	reached := slices.IndexFunc(stages, func(s stage) bool { return s.name == progress.Stage })
	if underWay && slices.Index(stages, current) > reached {
		progress.Stage, progress.Step, progress.Description, progress.LastProgressTime = current.name, current.step, current.description, now
	}
	suspended := isSuspended(machine, f) && !isDone(progress)
	if progress.Suspended && !suspended {
		progress.LastProgressTime = now
	}
	progress.Suspended, progress.Interrupted = suspended, progress.Interrupted || suspended
	return progress
}

func firstProgress(machine *v1alpha1.Machine, stage stage, estimate *v1alpha1.ProvisioningEstimate,
	now metav1.Time) *v1alpha1.MachineProgress {
	progress := &v1alpha1.MachineProgress{
		Stage: stage.name, Step: stage.step, Steps: lastStage(machine).step, Description: stage.description, StartTime: now,
		LastProgressTime: now}
	if estimate != nil {
		ready := metav1.NewTime(progress.StartTime.Add(time.Duration(estimate.TypicalSeconds) * time.Second))
		progress.ExpectedReadyTime = &ready
	}
	return progress
}

// lastStage returns the last stage that the Machine reaches.
func lastStage(machine *v1alpha1.Machine) stage {
	if machine.Spec.TenantClusterRef == nil {
		return stageProvisioned
	}
	return stageJoined
}

// isDone reports whether a Machine has reached its last stage.
func isDone(progress *v1alpha1.MachineProgress) bool { return progress.Step >= progress.Steps }

// isSuspended reports whether the deadline does not count because the reason for the lack of progress is known: an
// error, a paused host, a server that is to be off, or a standstill.
func isSuspended(machine *v1alpha1.Machine, f *observation) bool {
	if f.standstill != "" {
		return true
	}
	switch f.phase {
	case v1alpha1.MachineFailed:
		return true
	case v1alpha1.MachineProvisioning, v1alpha1.MachineProvisioned:
		return (f.host != nil && hosts.WhyIgnored(f.host) != "") || (f.phase == v1alpha1.MachineProvisioned && !wantsPower(machine))
	}
	return false
}

// progressPrefix returns the first part of a Machine's message: "writing image, step 3 of 5, 12 min; usually 18 min: ".
func progressPrefix(progress *v1alpha1.MachineProgress, estimate *v1alpha1.ProvisioningEstimate, minutes int64) string {
	text := fmt.Sprintf("%s, step %d of %d, %d min", progress.Description, progress.Step, progress.Steps, minutes)
	if estimate != nil {
		text += "; usually " + inMinutes(time.Duration(estimate.TypicalSeconds)*time.Second)
	}
	return text + ": "
}

// inMinutes formats a duration for messages.
func inMinutes(d time.Duration) string {
	if d < time.Minute {
		return d.Truncate(time.Second).String()
	}
	return fmt.Sprintf("%d min", int64(d.Round(time.Minute)/time.Minute))
}

// staleMinutes is how many minutes a message may be behind the clock. Each update costs a write for each Machine.
const staleMinutes = 5

// withProgress prefixes a message with the progress and its minutes. It returns the current message if only a few
// minutes have passed and nothing else has changed.
func withProgress(current, message string, progress *v1alpha1.MachineProgress, estimate *v1alpha1.ProvisioningEstimate,
	now metav1.Time) string {
	minutes := int64(now.Sub(progress.StartTime.Time) / time.Minute)
	for age := range int64(staleMinutes) {
		if text := progressPrefix(progress, estimate, minutes-age) + message; conditions.Truncate(text, conditions.MaxMessage) == current {
			return text
		}
	}
	return progressPrefix(progress, estimate, minutes) + message
}

// trackProgress adds the progress of the Machine to the observation. It gives up a Machine that has made no progress
// within its deadline, or whose server is in error if the policy is Replace.
func (r *Reconciler) trackProgress(ctx context.Context, v *visit, outcome result) (result, error) {
	machine, f := v.machine, outcome.observed
	if f.choice != nil || f.clearChoice || f.givenUp != "" || !machine.DeletionTimestamp.IsZero() {
		return outcome, nil
	}
	if before := machine.Status.Progress; before == nil {
		if _, underWay := stageOf(machine, f); !underWay {
			return outcome, nil
		}
	} else if isDone(before) {
		return outcome, nil // it has arrived: no need to read its type
	}
	policy, err := r.deadlines.policyOf(ctx, machine)
	if err != nil {
		return result{}, err
	}
	moment := metav1.NewTime(r.clock.Now())
	if f.standstill, err = r.deadlines.standstill(ctx, machine, f, policy.deadline); err != nil {
		return result{}, err
	}
	f.progress = nextProgress(machine, f, policy.estimate, moment)
	if f.progress == nil {
		return outcome, nil
	}
	if reason := decidedBefore(machine, v.host); reason != "" {
		return r.giveUpOn(ctx, v, f, reason, policy)
	}
	if isDone(f.progress) {
		return outcome, nil
	}
	if f.reason == v1alpha1.ReasonHostError {
		outcome.hints = []scheduling.Event{objectChanged} // wait for a change of its NodeType
		if policy.onError == v1alpha1.OnErrorReplace && isLasting(v.host) {
			return r.replace(ctx, v, outcome, policy)
		}
	}
	if f.progress.Suspended && f.standstill != "" {
		f.message += "; its deadline stands still: " + f.standstill
		outcome.after = staleMinutes * time.Minute
	}
	if f.progress.Suspended || outcome.again {
		return outcome, nil
	}
	due := r.deadlines.heartbeat.due(f.progress.LastProgressTime.Time, policy.deadline).Sub(moment.Time)
	if due <= 0 {
		held, err := r.deadlines.mayGiveUp(ctx, machine)
		if err != nil {
			return result{}, err
		}
		if held == "" {
			return r.giveUpOn(ctx, v, f, v1alpha1.ReasonDeadlineExceeded, policy)
		}
		f.reason, f.message, due = v1alpha1.ReasonTooManyGivenUp, held, countPeriod
	}
	f.message = withProgress(condition(machine, v1alpha1.ConditionReady).Message, f.message, f.progress, policy.estimate, moment)
	outcome.after = min(cmp.Or(outcome.after, due), due, staleMinutes*time.Minute)
	return outcome, nil
}
