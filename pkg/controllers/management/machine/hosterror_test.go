// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHostErrorMessage: what Metal3 says is followed by what to do about it. The messages are those of a real
// Ironic.
func TestHostErrorMessage(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, message string
		count           int
		want            string
	}{
		"Ends itself": {"two full stops, or three, look like something is left out",
			"Deploy step deploy.deploy failed: Failed to set node power state to power on..", 1,
			"server m/h: provisioning error: Deploy step deploy.deploy failed: Failed to set node power state to power on"},
		"Has no end": {"nothing is to be taken away", "Timeout reached while waiting for callback for node 1", 2,
			"server m/h: provisioning error (2 times in a row): Timeout reached while waiting for callback for node 1"},
		"Not all there": {"Metal3 reads Ironic's state before Ironic has written why", "Cleaning failed: ", 1,
			"server m/h: provisioning error: Cleaning failed"},
		"Nothing": {"the missing message is mentioned", "", 1, "server m/h: provisioning error: Metal3 gives no message"},
	} {
		t.Run(name, func(t *testing.T) {
			host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "m", Name: "h"}}
			host.Status.ErrorType, host.Status.ErrorMessage, host.Status.ErrorCount = bmov1alpha1.ProvisioningError, tc.message, tc.count
			if diff := cmp.Diff(tc.want, hostError(host)); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}
