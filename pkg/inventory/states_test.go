// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func TestStates(t *testing.T) {
	zeros := []StateCount{
		{NodeType: "gpu", State: StateAvailable}, {NodeType: "gpu", State: StateClaimed},
		{NodeType: "gpu", State: StateError}, {NodeType: "gpu", State: StateQuarantined},
	}
	counted := func(state State, reason Reason) []StateCount {
		var all []StateCount
		found := false
		for _, count := range zeros {
			if count.State == state && count.Reason == reason {
				count.Hosts, found = 1, true
			}
			all = append(all, count)
			if !found && count.State == state { // sorted by reason after the empty one
				all, found = append(all, StateCount{NodeType: "gpu", State: state, Reason: reason, Hosts: 1}), true
			}
		}
		if !found {
			all = append(all, StateCount{NodeType: "gpu", State: state, Reason: reason, Hosts: 1})
		}
		return all
	}
	cases := map[string]struct {
		reason string
		// leftOut is what the type leaves out.
		leftOut []corev1.ResourceName
		change  func(*bmov1alpha1.BareMetalHost)
		want    []StateCount
	}{
		"None":      {reason: "A type without hosts still has its counts, for alerts that compare with zero.", want: zeros},
		"Available": {reason: "A host that can be claimed.", change: func(*bmov1alpha1.BareMetalHost) {}, want: counted(StateAvailable, "")},
		"Claimed": {reason: "A host with any consumer.", want: counted(StateClaimed, ""),
			change: func(host *bmov1alpha1.BareMetalHost) {
				host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Other", Name: "x"}
			}},
		"ClaimedInError": {reason: "It is in one state, and the error is its reason.", want: counted(StateClaimed, ReasonError),
			change: func(host *bmov1alpha1.BareMetalHost) {
				host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Other", Name: "x"}
				host.Status.ErrorType = bmov1alpha1.ProvisioningError
			}},
		"Error": {reason: "A free host that Metal3 reports an error for.", want: counted(StateError, ""),
			change: func(host *bmov1alpha1.BareMetalHost) {
				host.Status.ErrorType = bmov1alpha1.InspectionError
			}},
		"Paused": {reason: "The reason says why it is not to be had.", want: counted(StateUnavailable, ReasonPaused),
			change: func(host *bmov1alpha1.BareMetalHost) {
				host.Annotations = map[string]string{bmov1alpha1.PausedAnnotation: ""}
			}},
		"TooSmall": {reason: "It is free, and never this type's.", want: counted(StateUnavailable, ReasonTooSmall),
			change: func(host *bmov1alpha1.BareMetalHost) {
				host.Status.HardwareDetails.CPU.Count = 64
			}},
		"NotInspected": {reason: "It would be free, and nothing says how big it is.", want: counted(StateUnavailable, ReasonNotInspected),
			leftOut: []corev1.ResourceName{"memory"}, change: func(*bmov1alpha1.BareMetalHost) {}},
		"NotInspectedNotCleaned": {reason: "It is no server for its last tenant either.", want: counted(StateUnavailable, ReasonNotInspected),
			leftOut: []corev1.ResourceName{"memory"}, change: func(host *bmov1alpha1.BareMetalHost) {
				host.Spec.AutomatedCleaningMode = bmov1alpha1.CleaningModeDisabled
			}},
		"NotInspectedPaused": {reason: "It must go on first.", want: counted(StateUnavailable, ReasonPaused),
			leftOut: []corev1.ResourceName{"memory"}, change: func(host *bmov1alpha1.BareMetalHost) {
				host.Annotations = map[string]string{bmov1alpha1.PausedAnnotation: ""}
			}},
		"Inspected": {reason: "Its memory is known.", want: counted(StateAvailable, ""),
			leftOut: []corev1.ResourceName{"memory"}, change: func(host *bmov1alpha1.BareMetalHost) {
				host.Status.HardwareDetails.RAMMebibytes = 1024
			}},
		"TooSmallInError": {reason: "It must be checked first.", want: counted(StateError, ""),
			change: func(host *bmov1alpha1.BareMetalHost) {
				host.Status.HardwareDetails.CPU.Count, host.Status.ErrorType = 64, bmov1alpha1.InspectionError
			}},
		"OtherType": {reason: "A host that matches no type is in no count.", want: zeros, change: func(host *bmov1alpha1.BareMetalHost) {
			host.Labels = nil
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inventory := NewInventory(Options{})
			inventory.SetType(Profile{Name: "gpu", Namespace: "metal3", Selector: labels.SelectorFromSet(labels.Set{"gpu": "h100"}),
				Resources: list("cpu", "96"), LeftOut: tc.leftOut})
			if tc.change != nil {
				host := env.AvailableHost("metal3", "server-01", map[string]string{"gpu": "h100"})
				tc.change(host)
				inventory.SetHost(host)
			}
			if diff := cmp.Diff(tc.want, inventory.States()); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

func TestStatesAssumed(t *testing.T) {
	inventory := NewInventory(Options{})
	inventory.SetType(Profile{Name: "gpu", Namespace: "metal3", Selector: labels.Everything()})
	inventory.SetHost(env.AvailableHost("metal3", "server-01", nil))
	inventory.MarkHostsSynced()
	inventory.MarkTypesSynced()
	if _, err := inventory.give(Request{Machine: "m", NodeType: "gpu"}); err != nil {
		t.Fatal(err)
	}
	for _, count := range inventory.States() {
		if want := count.State == StateClaimed; (count.Hosts == 1) != want {
			t.Errorf("a host that has been given to a Machine is claimed, though its claim does not show yet: %+v", count)
		}
	}
}
