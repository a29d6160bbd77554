// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"math/rand/v2"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestTenantsReadNoWordsOfOthers: the message of a host is in the status of a Machine that is pinned to it and in answers of the
// webhook, of whichever tenant. Nothing that another tenant, an operator or Metal3 has written into the host is in it.
func TestTenantsReadNoWordsOfOthers(t *testing.T) {
	const marker = "MARKER"
	annotations := []string{
		v1alpha1.QuarantinedAnnotationKey, v1alpha1.MaintenanceAnnotationKey, v1alpha1.CAPIUnhealthyAnnotationKey,
		bmov1alpha1.PausedAnnotation, bmov1alpha1.DetachedAnnotation, bmov1alpha1.RebootAnnotationPrefix,
		bmov1alpha1.RebootAnnotationPrefix + "/x", bmov1alpha1.StatusAnnotation, "example.com/note",
	}
	states := []bmov1alpha1.ProvisioningState{
		bmov1alpha1.StateAvailable, bmov1alpha1.StateReady, bmov1alpha1.StateProvisioned, bmov1alpha1.StateInspecting,
		bmov1alpha1.StateDeprovisioning, bmov1alpha1.StateDeleting, bmov1alpha1.StateExternallyProvisioned,
	}
	random := rand.New(rand.NewPCG(1, 2))
	maybe := func(change func()) {
		if random.IntN(4) == 0 {
			change()
		}
	}
	reasons := map[Reason]bool{}
	for range 5000 {
		host := &bmov1alpha1.BareMetalHost{}
		host.Namespace, host.Name = "servers", "server-1"
		host.Annotations = map[string]string{}
		host.Status.Provisioning.State = states[random.IntN(len(states))]
		host.Status.OperationalStatus = bmov1alpha1.OperationalStatusOK
		maybe(func() { host.Annotations[annotations[random.IntN(len(annotations))]] = marker })
		maybe(func() {
			host.Annotations[v1alpha1.QuarantinedAnnotationKey] = `{"reason":"HostError","since":"2026-01-02T15:04:05Z","machine":"` + marker + `/m"}`
		})
		maybe(func() { host.Status.ErrorType = bmov1alpha1.ProvisioningError; host.Status.ErrorMessage = marker })
		maybe(func() {
			host.Status.OperationalStatus = bmov1alpha1.OperationalStatusError
			host.Status.ErrorMessage = marker
		})
		maybe(func() {
			host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Machine", Namespace: marker, Name: marker, UID: marker}
		})
		maybe(func() { host.Spec.Image = &bmov1alpha1.Image{URL: "https://" + marker} })
		maybe(func() { host.Spec.UserData = &corev1.SecretReference{Name: marker, Namespace: marker} })
		maybe(func() { host.Status.Provisioning.ID = marker })
		maybe(func() { host.Spec.BMC.Address = marker })
		eligibility := EligibilityOf(host)
		reasons[eligibility.Reason] = true
		if strings.Contains(eligibility.Message, marker) {
			t.Fatalf("%s: a tenant reads %q", eligibility.Reason, eligibility.Message)
		}
	}
	for _, reason := range []Reason{ReasonQuarantined, ReasonError, ReasonMaintenance, ReasonClaimed, ReasonPaused} {
		if !reasons[reason] {
			t.Errorf("no host was %s", reason)
		}
	}
}
