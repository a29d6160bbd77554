// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/conditions"
)

// Reasons of the events on the tenant's pods, claims and templates.
const (
	// ReasonClassNotAllowed: a device class is not one that the tenant may ask for. The object is not on the host.
	ReasonClassNotAllowed = "DeviceClassNotAllowed"
	// ReasonOrphaned: a device class is not allowed any more. The object stays on both sides and is not in sync.
	ReasonOrphaned = "DeviceClassGone"
	// ReasonInvalidSelector: the selector of the allowed classes does not parse.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonInvalidName: the name on the host would not be unique.
	ReasonInvalidName = "InvalidName"
	// ReasonNameTaken: there is an object of that name which belongs to another.
	ReasonNameTaken = "NameTaken"
	// ReasonRefusedByHost: the host's API server rejects the copy.
	ReasonRefusedByHost = "RefusedByHost"
	// ReasonNoAdminAccess: the copy asks for less than the tenant has asked for.
	ReasonNoAdminAccess = "NoAdminAccess"
	// ReasonDeletedOnHost: the copy has been deleted, and the object with it.
	ReasonDeletedOnHost = "DeletedOnHost"
)

func warning(object client.Object, reason, message string, dedupe ...string) events.Event {
	return events.Event{
		InvolvedObject: object, Type: corev1.EventTypeWarning, Reason: reason, Message: conditions.Truncate(message, conditions.MaxEventNote),
		DedupeValues: append([]string{string(object.GetUID())}, dedupe...),
	}
}

func (c *CopyController[T]) warn(object T, reason, message string) {
	c.recorder.Publish(warning(object, reason, message, message))
}

func (c *CopyController[T]) notInSync(object T, reason, cause string) {
	c.warn(object, reason, fmt.Sprintf("%s %s is not in sync with the host: %s", c.kind.Kind, object.GetName(), cause))
}

func (c *CopyController[T]) notAllowed(object T, class, policy string, synced bool) {
	if !synced {
		c.notInSync(object, ReasonClassNotAllowed, fmt.Sprintf("it names DeviceClass %s, but %s", class, policy))
		return
	}
	c.notInSync(object, ReasonOrphaned, fmt.Sprintf("it names DeviceClass %s, which is not allowed any more: %s. "+
		"It stays here and on the host, and the sync resumes when the class is allowed again", class, policy))
}

func generatedOrphaned(object client.Object, podClaim, class, policy string) events.Event {
	return warning(object, ReasonOrphaned,
		fmt.Sprintf("the claim %s is not in sync with the host: it names DeviceClass %s, which is not allowed "+
			"any more: %s. It stays, and the sync resumes when the class is allowed again", podClaim, class, policy), podClaim, class)
}

func generatedNameTaken(pod *corev1.Pod, podClaim, name string) events.Event {
	return warning(pod, ReasonNameTaken,
		fmt.Sprintf("the claim %s is not in sync with the host: ResourceClaim %s exists and does not belong to "+
			"this pod; delete it", podClaim, name), name)
}
