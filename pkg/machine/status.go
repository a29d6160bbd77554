// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
)

// facts are what a state handler found out and the status has to say.
type facts struct {
	phase v1alpha1.MachinePhase
	// reason and message of what the Machine is doing or waiting for.
	reason, message string
	// host as it was seen last; nil leaves what the status says of it.
	host *bmov1alpha1.BareMetalHost
	// choice is set when a host has been chosen.
	choice *hosts.Choice
	// properties are the effective ones; nil leaves what the status says of them.
	properties []v1alpha1.MachineProperty
	// installed is what is about to be installed; nil leaves what the status says of it.
	installed []v1alpha1.InstalledField
	// drifted is the condition of that name, without its type; nil leaves it as it is.
	drifted *metav1.Condition
	// unchoose is set when the chosen host cannot be had.
	unchoose bool
	// progress is how far the Machine is; nil leaves what the status says of it.
	progress *v1alpha1.MachineProgress
	// givenUp is the reason why the Machine has been given up, if it has.
	givenUp string
}

// steps are the conditions that become true one after the other.
var steps = []string{v1alpha1.ConditionClaimed, v1alpha1.ConditionProvisioned, v1alpha1.ConditionJoined}

// stepsDone is the number of steps that a phase has behind it. Phases that are not here leave the steps as they are.
var stepsDone = map[v1alpha1.MachinePhase]int{
	v1alpha1.MachinePending:      0,
	v1alpha1.MachineClaiming:     0,
	v1alpha1.MachineClaimed:      1,
	v1alpha1.MachineProvisioning: 1,
	v1alpha1.MachineProvisioned:  2,
	v1alpha1.MachineJoined:       3,
}

// nextStatus is the whole status that follows from the facts. Nothing else computes one.
func nextStatus(machine *v1alpha1.Machine, f facts, now metav1.Time) v1alpha1.MachineStatus {
	status := *machine.Status.DeepCopy()
	status.Phase = f.phase
	switch {
	case f.choice != nil:
		status.HostRef = ptr.To(f.choice.Host)
		status.NodeTypeRef = &v1alpha1.NameReference{Name: f.choice.NodeType}
		status.Cost = ptr.To(f.choice.Cost)
		status.NodeLabels = f.choice.Labels
	case f.unchoose:
		status.HostRef, status.NodeTypeRef, status.Cost, status.NodeLabels, status.HostState = nil, nil, nil, nil, ""
		status.Properties, status.Addresses, status.Power, status.Progress = nil, nil, nil, nil
		status.Installed, status.PropertiesHash = nil, ""
	}
	if f.installed != nil {
		status.Installed, status.PropertiesHash = f.installed, hashOf(f.installed)
	}
	if f.properties != nil {
		status.Properties = f.properties
	}
	if f.progress != nil {
		status.Progress = f.progress
	}
	if f.host != nil {
		status.HostState = string(f.host.Status.Provisioning.State)
		status.Power, status.Addresses = powerOf(status.Power, f.host), addressesOf(f.host)
	}
	done, moves := stepsDone[f.phase]
	if f.phase == v1alpha1.MachineFailed && status.HostRef == nil {
		done, moves = 0, true // it never got a server
	}
	if moves && done > 0 {
		status.ProviderID = v1alpha1.ProviderID(status.HostRef.Namespace, status.HostRef.Name, machine.Name)
	}
	status.NodeName = ""
	if f.phase == v1alpha1.MachineJoined || f.phase == v1alpha1.MachineFailed || f.phase == v1alpha1.MachineReleasing {
		status.NodeName = machine.Annotations[v1alpha1.NodeNameAnnotationKey]
	}

	set := func(kind string, value bool, reason, message string) {
		condition := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: shortened(message, maxConditionMessage),
			ObservedGeneration: machine.Generation, LastTransitionTime: now,
		}
		if value {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	if f.drifted != nil {
		drifted := *f.drifted
		drifted.Type, drifted.Message = v1alpha1.ConditionDrifted, shortened(drifted.Message, maxConditionMessage)
		drifted.ObservedGeneration, drifted.LastTransitionTime = machine.Generation, now
		meta.SetStatusCondition(&status.Conditions, drifted)
	}
	ready := f.reason != v1alpha1.ReasonPoweredOff && (f.phase == v1alpha1.MachineJoined || (f.phase == v1alpha1.MachineProvisioned && machine.Spec.TenantClusterRef == nil))
	switch {
	case f.phase == v1alpha1.MachineReleasing:
		set(v1alpha1.ConditionReleased, false, f.reason, f.message)
	case f.reason == v1alpha1.ReasonHostLost:
		set(v1alpha1.ConditionClaimed, false, f.reason, f.message)
	case f.givenUp != "" && !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionProvisioned):
		set(v1alpha1.ConditionProvisioned, false, f.reason, f.message)
	case f.givenUp != "":
		set(v1alpha1.ConditionJoined, false, f.reason, f.message)
	case (f.reason == v1alpha1.ReasonHostError || f.reason == v1alpha1.ReasonHostDeleting) && !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionProvisioned):
		set(v1alpha1.ConditionProvisioned, false, f.reason, f.message)
	case moves:
		for i, step := range steps {
			if i < done {
				set(step, true, reasonDone(step), messageDone(step, machine, &status))
			} else {
				set(step, false, f.reason, f.message)
			}
		}
	}
	switch {
	case f.reason == v1alpha1.ReasonWaitingForHook:
		set(v1alpha1.ConditionNetworkReady, false, f.reason, f.message)
	case moves && done > 0 && meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionNetworkReady) != nil:
		set(v1alpha1.ConditionNetworkReady, true, v1alpha1.ReasonNetworkReady, "no hook holds the Machine any more")
	}
	if f.givenUp != "" {
		set(v1alpha1.ConditionGivenUp, true, f.givenUp, f.message)
	}
	set(v1alpha1.ConditionReady, ready, f.reason, f.message)
	return status
}

// reasonDone is the reason of a step that is done.
func reasonDone(step string) string {
	switch step {
	case v1alpha1.ConditionClaimed:
		return v1alpha1.ReasonClaimed
	case v1alpha1.ConditionProvisioned:
		return v1alpha1.ReasonProvisioned
	}
	return v1alpha1.ReasonJoined
}

// messageDone is the message of a step that is done. It names what stays the same, so that the condition does too.
func messageDone(step string, machine *v1alpha1.Machine, status *v1alpha1.MachineStatus) string {
	server := fmt.Sprintf("server %s/%s", status.HostRef.Namespace, status.HostRef.Name)
	switch step {
	case v1alpha1.ConditionClaimed:
		return fmt.Sprintf("%s of type %s (cost %d)", server, status.NodeTypeRef.Name, ptr.Deref(status.Cost, 0))
	case v1alpha1.ConditionProvisioned:
		return "Metal3 has installed the image on " + server
	}
	return "node " + machine.Annotations[v1alpha1.NodeNameAnnotationKey] + " has registered"
}
