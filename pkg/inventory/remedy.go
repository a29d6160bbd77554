// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// pausedByCAPM3 is the value that Cluster API's provider for Metal3 pauses a host with, while its Cluster is paused.
const pausedByCAPM3 = "metal3.io/capm3"

// passing are the reasons that end without a person.
var passing = map[Reason]bool{
	ReasonDeleting: true, ReasonRebooting: true, ReasonInspecting: true, ReasonNotReady: true, ReasonNotOperational: true,
	ReasonNotInspected: true, ReasonAssumed: true, ReasonDomainHeld: true,
}

// NoTypeRemedy tells an operator what to do about a host that matches no NodeType.
const NoTypeRemedy = "give it the labels that the selector of a NodeType asks for: kubectl get nodetypes.karpenter.metal3.io -o yaml"

// RegisteredAnew is the message of ReasonRegisteredAnew.
func RegisteredAnew(host *bmov1alpha1.BareMetalHost) string {
	return fmt.Sprintf("names Machine %s/%s as its consumer, which has another server, and has an image: it was registered anew and may "+
		"run the Machine's node, so it is neither switched off nor cleaned", host.Spec.ConsumerRef.Namespace, host.Spec.ConsumerRef.Name)
}

// Passes reports whether the reason ends by itself, so that no person has to act.
func (r Reason) Passes() bool { return passing[r] }

// Remedy tells an operator what to do about a host that cannot be claimed for the reason: a command, or a sentence,
// with a command at its end if one helps. It is empty if there is nothing to do.
func (r Reason) Remedy(host *bmov1alpha1.BareMetalHost) string {
	without := func(annotation string) string {
		return shell.Command("kubectl annotate baremetalhost -n %s %s", host.Namespace, host.Name, annotation+"-")
	}
	patch := func(change string) string {
		return shell.Command("kubectl patch baremetalhost -n %s %s --type=merge --patch=%s", host.Namespace, host.Name, change)
	}
	describe := shell.Command("kubectl describe baremetalhost -n %s %s", host.Namespace, host.Name)
	switch r {
	case ReasonQuarantined:
		return "check the server, then: " + without(v1alpha1.QuarantinedAnnotationKey)
	case ReasonError:
		return "Metal3 tries again by itself; what it says is in: " + describe
	case ReasonRegisteredAnew:
		return "once nothing runs on it: " +
			shell.Command("kubectl delete machines.karpenter.metal3.io -n %s %s", host.Spec.ConsumerRef.Namespace, host.Spec.ConsumerRef.Name)
	case ReasonPaused:
		if host.Annotations[bmov1alpha1.PausedAnnotation] == pausedByCAPM3 {
			return "unpause its Cluster of Cluster API"
		}
		return "ask who has paused it, as a restore or an incident does: Metal3 then does all that waits, also an erasure. Then: " +
			without(bmov1alpha1.PausedAnnotation)
	case ReasonDetached:
		return "if no other management cluster has it: " + without(bmov1alpha1.DetachedAnnotation)
	case ReasonUnhealthy:
		return "check the server, then: " + without(v1alpha1.CAPIUnhealthyAnnotationKey)
	case ReasonNodeReuse:
		return "if Cluster API is to have it no more: " + shell.Command("kubectl label baremetalhost -n %s %s", host.Namespace,
			host.Name, v1alpha1.CAPINodeReuseLabelKey+"-")
	case ReasonMaintenance:
		return "when the work is done: " + without(v1alpha1.MaintenanceAnnotationKey)
	case ReasonRebooting:
		return "an annotation with a suffix keeps it off until it is removed: " + describe
	case ReasonExternallyProvisioned:
		// Metal3's webhook refuses to set the field back.
		return "if nothing on it is needed, delete the host, and register it again without spec.externallyProvisioned: " +
			shell.Command("kubectl delete baremetalhost -n %s %s", host.Namespace, host.Name)
	case ReasonImageSet:
		return "if nothing runs on it: " + patch(`{"spec": {"image": null, "customDeploy": null}}`)
	case ReasonNotReady:
		return "how far Metal3 is: " + describe
	case ReasonNotOperational:
		return "what Metal3 says: " + describe
	case ReasonNotCleaned:
		// Metal3 cleans a server when it is released, and not because the mode changes.
		const erased = "once you have erased its disks, which Metal3 does only after a release: "
		never, had := host.Spec.AutomatedCleaningMode == bmov1alpha1.CleaningModeDisabled, has(host, v1alpha1.LastTenantAnnotationKey)
		switch {
		case never && had:
			return erased + patch(`{"spec": {"automatedCleaningMode": "metadata"}, "metadata": {"annotations": {"`+
				v1alpha1.LastTenantAnnotationKey+`": null}}}`)
		case never:
			return erased + patch(`{"spec": {"automatedCleaningMode": "metadata"}}`)
		}
		return erased + without(v1alpha1.LastTenantAnnotationKey)
	case ReasonTooSmall:
		return "correct the resources of the NodeType, or the labels of the host"
	case ReasonNotInspected:
		if host.InspectionDisabled() {
			// The mode alone has an effect only on hosts that are registered anew.
			return patch(`{"spec": {"inspectionMode": "agent"}, "metadata": {"annotations": {"` +
				bmov1alpha1.InspectAnnotationPrefix + `": ""}}}`)
		}
		return "have Metal3 inspect it: " + shell.Command("kubectl annotate baremetalhost -n %s %s", host.Namespace, host.Name,
			bmov1alpha1.InspectAnnotationPrefix+"=")
	}
	return ""
}
