// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// stage is a part of the way from the claim to the node that shows from outside.
type stage struct {
	step        int32
	description string
}

// Stages, in the order in which a Machine reaches them. Each that is reached for the first time is progress. None is
// reached twice: a Metal3 that goes back to try again makes no progress, however often.
var (
	stageNetwork     = stage{1, "moving into the network of the tenant"}
	stageDocuments   = stage{2, "preparing user data"}
	stageWaiting     = stage{3, "waiting for Metal3"}
	stagePreparing   = stage{3, "preparing the server"}
	stageWriting     = stage{3, "writing image"}
	stageBooting     = stage{4, "booting"}
	stageProvisioned = stage{4, "provisioned"}
	stageJoined      = stage{5, "joined"}

	stages = []stage{stageNetwork, stageDocuments, stageWaiting, stagePreparing, stageWriting, stageBooting, stageProvisioned, stageJoined}
)

// stageOf is where a Machine is. It reports false for what is no part of the way: there is no server yet, or something
// is wrong with it.
func stageOf(machine *v1alpha1.Machine, f *facts) (stage, bool) {
	switch f.phase {
	case v1alpha1.MachineClaimed:
		if len(v1alpha1.Hooks(machine.Annotations, v1alpha1.PreProvisionHookPrefix)) > 0 {
			return stageNetwork, true
		}
		return stageDocuments, true
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

// nextProgress is how far a Machine is. It changes when the Machine gets further, and when it is suspended or taken up
// again; time alone changes nothing. It is nil before there is a claim.
func nextProgress(machine *v1alpha1.Machine, f *facts, estimate *v1alpha1.ProvisioningEstimate, now metav1.Time) *v1alpha1.MachineProgress {
	at, underWay := stageOf(machine, f)
	if machine.Status.Progress == nil {
		if !underWay || isArrival(machine, at) {
			return nil
		}
		return firstProgress(machine, at, estimate, now)
	}
	progress := machine.Status.Progress.DeepCopy()
	if isDone(progress) {
		return progress
	}
	reached := slices.IndexFunc(stages, func(s stage) bool { return s.description == progress.Description })
	if underWay && slices.Index(stages, at) > reached {
		progress.Step, progress.Description, progress.LastProgressTime = at.step, at.description, now
	}
	suspended := isSuspended(machine, f) && !isDone(progress)
	if progress.Suspended && !suspended {
		progress.LastProgressTime = now
	}
	progress.Suspended, progress.Interrupted = suspended, progress.Interrupted || suspended
	return progress
}

func firstProgress(machine *v1alpha1.Machine, at stage, estimate *v1alpha1.ProvisioningEstimate, now metav1.Time) *v1alpha1.MachineProgress {
	progress := &v1alpha1.MachineProgress{
		Step: at.step, Steps: lastStage(machine).step, Description: at.description, StartTime: now, LastProgressTime: now,
	}
	if claimed := condition(machine, v1alpha1.ConditionClaimed); claimed.Status == metav1.ConditionTrue {
		progress.StartTime = claimed.LastTransitionTime // it was claimed by a manager that kept no progress
	}
	if estimate != nil {
		ready := metav1.NewTime(progress.StartTime.Add(time.Duration(estimate.TypicalSeconds) * time.Second))
		progress.ExpectedReadyTime = &ready
	}
	return progress
}

// lastStage is where a Machine of this kind arrives.
func lastStage(machine *v1alpha1.Machine) stage {
	if machine.Spec.TenantClusterRef == nil {
		return stageProvisioned
	}
	return stageJoined
}

func isArrival(machine *v1alpha1.Machine, at stage) bool { return at == lastStage(machine) }

// isDone tells whether a Machine has arrived, or is not on its way at all.
func isDone(progress *v1alpha1.MachineProgress) bool {
	return progress == nil || progress.Step >= progress.Steps
}

// isSuspended tells whether no progress is to be expected of a Machine, for a reason that somebody knows of.
func isSuspended(machine *v1alpha1.Machine, f *facts) bool {
	switch f.phase {
	case v1alpha1.MachineFailed:
		return true
	case v1alpha1.MachineProvisioning, v1alpha1.MachineProvisioned:
		return (f.host != nil && ignored(f.host) != "") || (f.phase == v1alpha1.MachineProvisioned && !wantsPower(machine))
	}
	return false
}

// howLong begins the message of a Machine that is on its way: "writing image, step 3 of 5, 12 min; usually 18 min: ".
func howLong(progress *v1alpha1.MachineProgress, estimate *v1alpha1.ProvisioningEstimate, minutes int64) string {
	text := fmt.Sprintf("%s, step %d of %d, %d min", progress.Description, progress.Step, progress.Steps, minutes)
	if estimate != nil {
		text += "; usually " + inMinutes(time.Duration(estimate.TypicalSeconds)*time.Second)
	}
	return text + ": "
}

// inMinutes is a duration for people.
func inMinutes(d time.Duration) string {
	if d < time.Minute {
		return d.Truncate(time.Second).String()
	}
	return fmt.Sprintf("%d min", int64(d.Round(time.Minute)/time.Minute))
}

// staleMinutes is by how many minutes a message may be behind the clock. A message that counted every one would be a
// write a minute for each of a thousand Machines.
const staleMinutes = 5

// withProgress puts before a message how far the Machine is and how long that has taken. If the clock is all that has
// changed since the message that stands, and not by much, that one stands.
func withProgress(standing, message string, progress *v1alpha1.MachineProgress, estimate *v1alpha1.ProvisioningEstimate, now metav1.Time) string {
	minutes := int64(now.Sub(progress.StartTime.Time) / time.Minute)
	for age := range int64(staleMinutes) {
		if text := howLong(progress, estimate, minutes-age) + message; shortened(text, maxConditionMessage) == standing {
			return text
		}
	}
	return howLong(progress, estimate, minutes) + message
}
