// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plain describes the objects of the metal tests in a few words, for logs and failures.
package plain

import (
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// most is the length of a message, in bytes, that is shown whole.
const most = 250

// Host describes a host; nil is a missing one.
func Host(host *bmov1alpha1.BareMetalHost) string {
	if host == nil {
		return "not there"
	}
	words := string(host.Status.Provisioning.State)
	if words == "" {
		words = "new"
	}
	if host.Spec.ConsumerRef != nil {
		words += ", claimed by " + host.Spec.ConsumerRef.Name
	}
	if host.Status.PoweredOn {
		words += ", on"
	}
	if host.Status.ErrorType != "" {
		words += fmt.Sprintf(", %s: %s", host.Status.ErrorType, Short(host.Status.ErrorMessage))
	}
	return words
}

// Machine describes a Machine; nil is a missing one.
func Machine(machine *v1alpha1.Machine) string {
	if machine == nil {
		return "not there"
	}
	words := string(machine.Status.Phase)
	if words == "" {
		words = "new"
	}
	if ready := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		words += fmt.Sprintf(", %s: %s", ready.Reason, Short(ready.Message))
	}
	return words
}

// Short returns the beginning of a message, on one line.
func Short(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if len(message) > most {
		message = message[:most] + "..."
	}
	return message
}
