// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// words are Metal3's words for the states of a host and the types of its errors.
var words = sets.New(
	"", string(bmov1alpha1.StateUnmanaged), string(bmov1alpha1.StateRegistering), string(bmov1alpha1.StateMatchProfile),
	string(bmov1alpha1.StatePreparing), string(bmov1alpha1.StateReady), string(bmov1alpha1.StateAvailable),
	string(bmov1alpha1.StateProvisioning), string(bmov1alpha1.StateProvisioned), string(bmov1alpha1.StateExternallyProvisioned),
	string(bmov1alpha1.StateDeprovisioning), string(bmov1alpha1.StateInspecting), string(bmov1alpha1.StatePoweringOffBeforeDelete),
	string(bmov1alpha1.StateDeleting),
	string(bmov1alpha1.OperationalStatusOK), string(bmov1alpha1.OperationalStatusDiscovered), string(bmov1alpha1.OperationalStatusError),
	bmov1alpha1.OperationalStatusDelayed, string(bmov1alpha1.OperationalStatusDetached), string(bmov1alpha1.OperationalStatusServicing),
	string(bmov1alpha1.ProvisionedRegistrationError), string(bmov1alpha1.RegistrationError), string(bmov1alpha1.InspectionError),
	string(bmov1alpha1.PreparationError), string(bmov1alpha1.ProvisioningError), string(bmov1alpha1.PowerManagementError),
	string(bmov1alpha1.DetachError), string(bmov1alpha1.ServicingError),
)

// Word returns a word of Metal3's as tenants may read it: "unknown", unless this program knows it. Other text of Metal3
// and Ironic is for readers of BareMetalHosts: it may have an image's user and password, or the address of a BMC.
func Word[T ~string](word T) string {
	if words.Has(string(word)) {
		return string(word)
	}
	return "unknown"
}
