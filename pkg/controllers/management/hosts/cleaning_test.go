// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestExpectCleaning: which servers are clean once Metal3 has taken their image off.
func TestExpectCleaning(t *testing.T) {
	preReturn := v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, v1alpha1.NetworkHook)
	const off, enabled = bmov1alpha1.CleaningModeDisabled, bmov1alpha1.CleaningModeMetadata
	for name, tc := range map[string]struct {
		reason string
		state  bmov1alpha1.ProvisioningState
		mode   bmov1alpha1.AutomatedCleaningMode
		// edited says that the spec has changed since the image was set, soiled that another Machine of the tenant left the server so.
		edited, soiled, want bool
		// networked says that it was in the tenant's network when it was installed, inside that it still is, and begun that Metal3 has
		// begun to install it since.
		networked, inside, begun bool
	}{
		"Available": {reason: "Metal3 has not begun", state: bmov1alpha1.StateAvailable, mode: off, want: true},
		"Ready":     {reason: "the former name of it", state: bmov1alpha1.StateReady, mode: off, want: true},
		"Preparing": {reason: "Metal3 applies firmware and RAID settings before it writes",
			state: bmov1alpha1.StatePreparing, mode: off, want: true},
		"PreparingEdited": {reason: "what was in between is not known", state: bmov1alpha1.StatePreparing, mode: enabled, edited: true},
		"PreparingSoiled": {reason: "the data of before is still there", state: bmov1alpha1.StatePreparing, mode: enabled, soiled: true},
		"Provisioning":    {reason: "Metal3 deprovisions and cleans it", state: bmov1alpha1.StateProvisioning, mode: enabled, want: true},
		"ProvisioningOff": {reason: "nothing cleans it", state: bmov1alpha1.StateProvisioning, mode: off},
		"Provisioned":     {reason: "Metal3 deprovisions and cleans it", state: bmov1alpha1.StateProvisioned, mode: enabled, want: true},
		"Inspecting":      {reason: "Metal3 has lost what it knew, as after a restore", state: bmov1alpha1.StateInspecting, mode: enabled},
		"Moved": {reason: "it is erased outside of the tenant's network", state: bmov1alpha1.StateProvisioned, mode: enabled, networked: true,
			begun: true, want: true},
		"NotMoved": {reason: "another machine can answer Ironic", state: bmov1alpha1.StateProvisioned, mode: enabled, networked: true,
			inside: true, begun: true},
		"FailedInside": {reason: "Metal3 deprovisions it by itself", state: bmov1alpha1.StateProvisioning, mode: enabled, networked: true,
			inside: true, begun: true},
		"AvailableInside": {reason: "Metal3 has not begun", state: bmov1alpha1.StateAvailable, mode: enabled, networked: true, inside: true,
			want: true},
		"AvailableAgain": {reason: "it was erased in the tenant's network after an installation had failed", state: bmov1alpha1.StateAvailable,
			mode: enabled, networked: true, inside: true, begun: true},
	} {
		t.Run(name, func(t *testing.T) {
			host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "server-00"}}
			host.Generation = 7
			host.Status.OperationHistory.Provision.Start = metav1.Unix(1, 0)
			host.Spec.AutomatedCleaningMode, host.Spec.ConsumerRef = tc.mode, &corev1.ObjectReference{Namespace: "blue", Name: "m"}
			if tc.soiled {
				host.Annotations = map[string]string{v1alpha1.LastTenantAnnotationKey: "blue"}
			}
			if tc.networked {
				metav1.SetMetaDataAnnotation(&host.ObjectMeta, preReturn, "vlan:100")
			}
			markUncleaned(host)
			host.Spec.Image = &bmov1alpha1.Image{URL: "http://images.example.com/ubuntu.raw"}
			if host.Generation++; tc.edited {
				host.Generation++
			}
			if tc.begun {
				host.Status.OperationHistory.Provision.Start = metav1.Unix(2, 0)
			}
			if !tc.inside {
				delete(host.Annotations, preReturn)
			}
			host.Status.Provisioning.State = tc.state
			expectCleaning(host)
			host.Generation++
			host.Spec.Image = nil
			if got := follows(host); got != tc.want || host.Annotations[v1alpha1.LastTenantAnnotationKey] != "blue" {
				t.Errorf("%s: it becomes clean: %v, want %v; annotations %v", tc.reason, got, tc.want, host.Annotations)
			}
		})
	}
}
