// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// observation is the result of a state handler; nextStatus turns it into a status.
type observation struct {
	phase v1alpha1.MachinePhase
	// reason and message tell what the Machine is doing or waiting for.
	reason, message string
	// standstill is why no server makes progress, which suspends the deadline; empty without a standstill.
	standstill string
	// host is the host as last seen; nil keeps the host fields of the status.
	host *bmov1alpha1.BareMetalHost
	// choice is the choice of a host, if one was just chosen.
	choice *inventory.Choice
	// properties are the effective properties; nil keeps the status.
	properties []v1alpha1.MachineProperty
	// installed is what is about to be installed; nil keeps the status.
	installed []v1alpha1.InstalledField
	// drifted is the condition Drifted, without its type; nil keeps the status.
	drifted *metav1.Condition
	// network is the network that the server is moved into, with the choice.
	network string
	// claimNumber is the number of the claim on the server, once it is claimed; 0 keeps the status.
	claimNumber int64
	// clearChoice: the chosen host is not available.
	clearChoice bool
	// progress is how far the Machine is; nil keeps the status.
	progress *v1alpha1.MachineProgress
	// givenUp is the reason why the Machine has been given up, or "".
	givenUp string
}

// nextStatus computes the whole status from the observation. Nothing else computes a status.
func nextStatus(machine *v1alpha1.Machine, f observation, now metav1.Time) v1alpha1.MachineStatus {
	status := *machine.Status.DeepCopy()
	status.Phase, status.ObservedGeneration = f.phase, machine.Generation
	setServer(machine, &status, &f)
	if f.installed != nil {
		status.Installed, status.PropertiesHash = f.installed, plan.Hash(f.installed)
	}
	if f.properties != nil {
		status.Properties = f.properties
	}
	status.Progress = cmp.Or(f.progress, status.Progress)
	status.ClaimNumber = cmp.Or(f.claimNumber, status.ClaimNumber)
	if steps, known := stepsDone(&f, &status); known && steps > 0 {
		status.ProviderID = v1alpha1.ProviderID(status.HostRef.Namespace, status.HostRef.Name, machine.Name)
	}
	status.NodeName = ""
	if hasNode[f.phase] {
		status.NodeName = machine.ReportedNode().Name
	}
	for _, condition := range nextConditions(machine, &f, &status) {
		condition.Message = conditions.Truncate(condition.Message, conditions.MaxMessage)
		condition.ObservedGeneration, condition.LastTransitionTime = machine.Generation, now
		conditions.Set(&status.Conditions, condition)
	}
	ready := newCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, f.reason, f.message)
	if isReady(machine, &f) {
		ready.Status = metav1.ConditionTrue
	}
	conditions.SetReady(&status.Conditions, ready, machine.Generation, now)
	return status
}

// nodeLabels adds the Machine's own properties to the node labels from its type and its host. The latter win: Karpenter
// has planned with them.
func nodeLabels(labels, own map[string]string) map[string]string {
	all := map[string]string{}
	for key, value := range properties.Merge(properties.Layer{Values: own}).Map() {
		if values, _ := properties.LabelValues(key, value); len(values) == 1 {
			all[key] = values[0]
		}
	}
	maps.Copy(all, labels)
	maps.Copy(all, v1alpha1.OtherSpellings(all))
	return all
}

// setServer writes which server the Machine has, and the state of that server.
func setServer(machine *v1alpha1.Machine, status *v1alpha1.MachineStatus, f *observation) {
	switch {
	case f.choice != nil:
		status.HostRef = ptr.To(f.choice.Host)
		status.NodeTypeRef = &v1alpha1.NameReference{Name: f.choice.NodeType}
		status.Cost, status.Network = ptr.To(f.choice.Cost), f.network
		status.NodeLabels = nodeLabels(f.choice.Labels, machine.Spec.Properties)
	case f.clearChoice:
		status.HostRef, status.NodeTypeRef, status.Cost, status.NodeLabels, status.HostState = nil, nil, nil, nil, ""
		status.Properties, status.Addresses, status.Power, status.Progress = nil, nil, nil, nil
		status.Installed, status.PropertiesHash, status.Network = nil, "", ""
	}
	if f.host != nil {
		if f.phase == v1alpha1.MachineReleasing && status.HostRef == nil {
			// The Machine was restored and deleted. The controller that moves the server back finds the server by this.
			status.HostRef = &v1alpha1.HostReference{Namespace: f.host.Namespace, Name: f.host.Name, UID: f.host.UID}
		}
		status.HostState = inventory.Word(f.host.Status.Provisioning.State)
		status.Power, status.Addresses = powerOf(status.Power, f.host), addressesOf(f.host)
	}
}

// hasNode are the phases with a known node.
var hasNode = map[v1alpha1.MachinePhase]bool{
	v1alpha1.MachineJoined: true, v1alpha1.MachineFailed: true, v1alpha1.MachineReleasing: true,
}

// steps are the conditions that become true one after the other, each with its reason then.
var steps = []struct{ condition, reasonDone string }{
	{v1alpha1.ConditionClaimed, v1alpha1.ReasonClaimed},
	{v1alpha1.ConditionProvisioned, v1alpha1.ReasonProvisioned},
	{v1alpha1.ConditionJoined, v1alpha1.ReasonJoined},
}

// stepsDone returns how many steps the Machine has completed. It returns false for phases that keep the steps.
func stepsDone(f *observation, status *v1alpha1.MachineStatus) (int, bool) {
	switch f.phase {
	case v1alpha1.MachinePending, v1alpha1.MachineClaiming:
		return 0, true
	case v1alpha1.MachineClaimed, v1alpha1.MachineProvisioning:
		return 1, true
	case v1alpha1.MachineProvisioned:
		return 2, true
	case v1alpha1.MachineJoined:
		return 3, true
	case v1alpha1.MachineFailed:
		return 0, status.HostRef == nil // it never got a server
	}
	return 0, false
}

// nextConditions returns the conditions that the observation determines. The others stay as they are.
func nextConditions(machine *v1alpha1.Machine, f *observation, status *v1alpha1.MachineStatus) []metav1.Condition {
	all := append(stepConditions(machine, f, status), networkCondition(f, status)...)
	if f.drifted != nil {
		all = append(all, newCondition(v1alpha1.ConditionDrifted, f.drifted.Status, f.drifted.Reason, f.drifted.Message))
	}
	switch {
	case f.givenUp != "":
		all = append(all, newCondition(v1alpha1.ConditionGivenUp, metav1.ConditionTrue, f.givenUp, f.message))
	case f.phase == v1alpha1.MachineJoined && meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionGivenUp) != nil:
		all = append(all, newCondition(v1alpha1.ConditionGivenUp, metav1.ConditionFalse, v1alpha1.ReasonJoined, "its node came late"))
	}
	return all
}

func newCondition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}

// isReady reports whether the server is in use: as a node, or provisioned if it has no tenant.
func isReady(machine *v1alpha1.Machine, f *observation) bool {
	if f.reason == v1alpha1.ReasonPoweredOff {
		return false
	}
	return f.phase == v1alpha1.MachineJoined || f.phase == v1alpha1.MachineProvisioned && machine.Spec.TenantClusterRef == nil
}

// stepConditions returns all step conditions, done or not, or only the failed one.
func stepConditions(machine *v1alpha1.Machine, f *observation, status *v1alpha1.MachineStatus) []metav1.Condition {
	if wrong := failedStep(f, status); wrong != "" {
		return []metav1.Condition{newCondition(wrong, metav1.ConditionFalse, f.reason, f.message)}
	}
	done, known := stepsDone(f, status)
	if !known {
		return nil
	}
	var all []metav1.Condition
	for i, step := range steps {
		if i < done {
			all = append(all, newCondition(step.condition, metav1.ConditionTrue, step.reasonDone, messageDone(step.condition, machine, status)))
		} else {
			all = append(all, newCondition(step.condition, metav1.ConditionFalse, f.reason, f.message))
		}
	}
	return all
}

// failedStep returns the condition that shows the fault, or the release; "" if the steps apply.
func failedStep(f *observation, status *v1alpha1.MachineStatus) string {
	installed := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionProvisioned)
	inError := f.reason == v1alpha1.ReasonHostError || f.reason == v1alpha1.ReasonHostDeleting
	switch {
	case f.phase == v1alpha1.MachineReleasing:
		return v1alpha1.ConditionReleased
	case f.reason == v1alpha1.ReasonHostLost:
		return v1alpha1.ConditionClaimed
	case f.givenUp != "" && installed:
		return v1alpha1.ConditionJoined
	case !installed && (f.givenUp != "" || inError):
		return v1alpha1.ConditionProvisioned
	}
	return ""
}

// networkCondition returns the condition NetworkReady: whether the Machine waits for hooks. A Machine that never had a
// hook does not have the condition.
func networkCondition(f *observation, status *v1alpha1.MachineStatus) []metav1.Condition {
	done, _ := stepsDone(f, status)
	switch {
	case f.reason == v1alpha1.ReasonWaitingForHook:
		return []metav1.Condition{newCondition(v1alpha1.ConditionNetworkReady, metav1.ConditionFalse, f.reason, f.message)}
	case (done > 0 || f.phase == v1alpha1.MachineReleasing) &&
		meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionNetworkReady) != nil:
		return []metav1.Condition{newCondition(v1alpha1.ConditionNetworkReady, metav1.ConditionTrue, v1alpha1.ReasonNetworkReady,
			"no hook holds the server")}
	}
	return nil
}

// messageDone returns the message of a completed step. It has only what stays the same, as the condition must.
func messageDone(step string, machine *v1alpha1.Machine, status *v1alpha1.MachineStatus) string {
	server := fmt.Sprintf("server %s/%s", status.HostRef.Namespace, status.HostRef.Name)
	switch step {
	case v1alpha1.ConditionClaimed:
		return fmt.Sprintf("%s of type %s (cost %d)", server, status.NodeTypeRef.Name, ptr.Deref(status.Cost, 0))
	case v1alpha1.ConditionProvisioned:
		return "Metal3 has installed the image on " + server
	}
	return "node " + machine.ReportedNode().Name + " has registered"
}

// EventReason is the reason of an event on a Machine. A condition for the same event has the same reason.
type EventReason string

// Reasons of events without a condition. Events with a condition use v1alpha1.Reason...
const (
	// EventReleased: the server is available again, or the Machine had none.
	EventReleased EventReason = "Released"
	// EventRebootRefused: the value of the request to reboot is not valid.
	EventRebootRefused EventReason = "RebootRefused"
	// EventQuarantined: a Machine was given up, and its server is quarantined. On the BareMetalHost.
	EventQuarantined EventReason = "Quarantined"
	// EventTaken: the chosen server was taken before it was claimed; another is chosen.
	EventTaken EventReason = "ServerTaken"
	// EventNotReleased: a server with an image has a Machine that has another server. On the BareMetalHost.
	EventNotReleased EventReason = "ServerNotReleased"
	// EventAnnotationIgnored: the Machine has a hook that the manager does not know, or an identity that is no UID.
	EventAnnotationIgnored EventReason = "AnnotationIgnored"
	// EventPoolsOverlap: another pool contains addresses of the Machine's pool.
	EventPoolsOverlap EventReason = "AddressPoolsOverlap"
)

// quiet are the reasons without an event: every Machine passes through them, and an event costs the API server as much
// as a write of the Machine. The claim has an event of its own.
var quiet = map[string]bool{
	v1alpha1.ReasonClaiming:                true,
	v1alpha1.ReasonClaimed:                 true,
	v1alpha1.ReasonWaitingForBootstrapData: true,
}

const (
	// conflictDelay is the delay after a conflict: long enough for the watch event of the other write to arrive.
	conflictDelay = 50 * time.Millisecond
	// resync is how often a Machine is reconciled without an event, in case an event was missed.
	resync = 10 * time.Minute
	// maxSteps limits the states of one reconcile, so that a Machine that keeps losing races does not block a worker.
	maxSteps = 16
	// workers is how many Machines are reconciled at a time.
	workers = 10
)

// powerOf returns the power status for a host.
func powerOf(before *v1alpha1.MachinePowerStatus, host *bmov1alpha1.BareMetalHost) *v1alpha1.MachinePowerStatus {
	power := &v1alpha1.MachinePowerStatus{State: v1alpha1.PowerOff}
	if host.Status.PoweredOn {
		power.State = v1alpha1.PowerOn
	}
	if before != nil {
		power.LastReboot = before.LastReboot
	}
	if lastReboot, rebooted := hosts.RebootedAt(host); rebooted && !lastReboot.IsZero() {
		power.LastReboot = &lastReboot
	}
	return power
}

// addressesOf returns the addresses that the manager gave to a host, from its annotations.
func addressesOf(host *bmov1alpha1.BareMetalHost) []corev1.NodeAddress {
	if _, ours := host.Annotations[v1alpha1.SavedNetworkAnnotationKey]; !ours {
		return nil
	}
	prefix, err := netip.ParsePrefix(host.Annotations[v1alpha1.IPAddressAnnotationKey])
	if err != nil {
		return nil // another client has written it
	}
	return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: prefix.Addr().String()}}
}
