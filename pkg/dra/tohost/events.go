// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tohost

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/events"
)

// Reasons of the events on the tenant's claims and templates.
const (
	// ReasonClassNotAllowed: a device class is not one that the tenant may ask for. The object is not on the host.
	ReasonClassNotAllowed = "DeviceClassNotAllowed"
	// ReasonOrphaned: a device class is not allowed any more. The object stays on both sides and is not in sync.
	ReasonOrphaned = "DeviceClassGone"
	// ReasonInvalidSelector: what is allowed is not known.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonInvalidName: the name on the host would not be unique.
	ReasonInvalidName = "InvalidName"
	// ReasonNameTaken: the host has an object of that name which is somebody else's.
	ReasonNameTaken = "NameTaken"
	// ReasonRefusedByHost: the host's API server does not take the copy.
	ReasonRefusedByHost = "RefusedByHost"
	// ReasonNoAdminAccess: the copy asks for less than the tenant has asked for.
	ReasonNoAdminAccess = "NoAdminAccess"
	// ReasonDeletedOnHost: the copy has been deleted, and the object with it.
	ReasonDeletedOnHost = "DeletedOnHost"
)

// maxMessage is the greatest length of an event's message, in bytes.
const maxMessage = 1024

func (c *Controller[T]) refused(object T, reason, message string) events.Event {
	if reason != ReasonNoAdminAccess && reason != ReasonDeletedOnHost {
		message = fmt.Sprintf("%s %s is not in sync with the host: %s", c.kind.Kind, object.GetName(), message)
	}
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	return events.Event{
		InvolvedObject: object, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		DedupeValues: []string{string(object.GetUID()), message},
	}
}

func (c *Controller[T]) notAllowed(object T, class, policy string, synced bool) events.Event {
	if !synced {
		return c.refused(object, ReasonClassNotAllowed, fmt.Sprintf("it names DeviceClass %s, but %s", class, policy))
	}
	return c.refused(object, ReasonOrphaned, fmt.Sprintf("it names DeviceClass %s, which is not allowed any more: %s. "+
		"It stays here and on the host, and goes on when the class is back", class, policy))
}
