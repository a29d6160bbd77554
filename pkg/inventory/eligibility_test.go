// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// available makes a host as Metal3 leaves it once it can be claimed.
func available(name string, labels map[string]string) *bmov1alpha1.BareMetalHost {
	host := &bmov1alpha1.BareMetalHost{}
	host.Namespace, host.Name, host.UID, host.Labels = "metal3", name, types.UID("uid-of-"+name), labels
	host.Status.OperationalStatus = bmov1alpha1.OperationalStatusOK
	host.Status.Provisioning.State = bmov1alpha1.StateAvailable
	return host
}

func TestEligibility(t *testing.T) {
	annotate := func(key string) func(*bmov1alpha1.BareMetalHost) {
		return func(host *bmov1alpha1.BareMetalHost) { host.Annotations = map[string]string{key: ""} }
	}
	state := func(state bmov1alpha1.ProvisioningState) func(*bmov1alpha1.BareMetalHost) {
		return func(host *bmov1alpha1.BareMetalHost) { host.Status.Provisioning.State = state }
	}
	operational := func(status bmov1alpha1.OperationalStatus) func(*bmov1alpha1.BareMetalHost) {
		return func(host *bmov1alpha1.BareMetalHost) { host.Status.OperationalStatus = status }
	}
	consume := func(host *bmov1alpha1.BareMetalHost) {
		host.Spec.ConsumerRef = &corev1.ObjectReference{
			APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3Machine", Namespace: "capi", Name: "m"}
	}
	fail := func(host *bmov1alpha1.BareMetalHost) {
		host.Status.OperationalStatus, host.Status.ErrorType = bmov1alpha1.OperationalStatusError, bmov1alpha1.PowerManagementError
		host.Status.ErrorMessage = "no answer from the BMC"
	}
	quarantine := func(host *bmov1alpha1.BareMetalHost) {
		host.Annotations = map[string]string{v1alpha1.QuarantinedAnnotationKey: Quarantine{
			Reason: "HostError", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Machine: types.NamespacedName{Namespace: "blue", Name: "m"},
		}.String()}
	}
	uncleaned := func(host *bmov1alpha1.BareMetalHost) {
		host.Spec.AutomatedCleaningMode = bmov1alpha1.CleaningModeDisabled
	}
	heldBy := func(namespace string) func(*bmov1alpha1.BareMetalHost) {
		return func(host *bmov1alpha1.BareMetalHost) {
			host.Annotations = map[string]string{v1alpha1.LastTenantAnnotationKey: namespace}
		}
	}
	for name, tc := range map[string]struct {
		reason  string
		changes []func(*bmov1alpha1.BareMetalHost)
		want    Eligibility
	}{
		"NotCleaned": {reason: "the next tenant could read the disks of the one before", changes: []func(*bmov1alpha1.BareMetalHost){uncleaned},
			want: Eligibility{Reason: ReasonNotCleaned, Message: "is not cleaned between its owners (spec.automatedCleaningMode is disabled): " +
				"an operator must erase its disks and set that to metadata, or name the namespace that it is for in the annotation " +
				v1alpha1.LastTenantAnnotationKey}},
		"NotCleanedAfter": {reason: "it still has data of a tenant, whichever mode it has now, and others are not told whose",
			changes: []func(*bmov1alpha1.BareMetalHost){heldBy("blue")},
			want: Eligibility{Reason: ReasonNotCleaned, LastTenant: "blue", Message: "was not cleaned after its last tenant, and is for that " +
				"tenant only: an operator must erase its disks and remove the annotation karpenter.metal3.io/last-tenant"}},
		"NotCleanedAndPaused": {reason: "that tenant cannot have it either",
			changes: []func(*bmov1alpha1.BareMetalHost){heldBy("blue"), func(host *bmov1alpha1.BareMetalHost) {
				host.Annotations[bmov1alpha1.PausedAnnotation] = ""
			}}, want: Eligibility{Reason: ReasonPaused, LastTenant: "blue", Message: "is paused"}},
		"Available": {reason: "nothing is the matter", want: Eligibility{Claimable: true}},
		"Ready": {reason: "old versions of Metal3 call it ready", changes: []func(*bmov1alpha1.BareMetalHost){state(bmov1alpha1.StateReady)},
			want: Eligibility{Claimable: true}},
		"PoweredOn": {reason: "Metal3 leaves servers on or off in the pool, as configured",
			changes: []func(*bmov1alpha1.BareMetalHost){func(host *bmov1alpha1.BareMetalHost) {
				host.Status.PoweredOn, host.Spec.Online = true, true
			}},
			want: Eligibility{Claimable: true}},
		"OtherConsumer": {reason: "it has a consumer", changes: []func(*bmov1alpha1.BareMetalHost){consume},
			want: Eligibility{Reason: ReasonClaimed, Message: "is claimed by a Metal3Machine of infrastructure.cluster.x-k8s.io", Claimed: true,
				UsedBy: "Metal3Machine capi/m"}},
		"OtherMachine": {reason: "others have a kind of that name, too",
			changes: []func(*bmov1alpha1.BareMetalHost){func(host *bmov1alpha1.BareMetalHost) {
				host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: "machine.openshift.io/v1beta1", Kind: "Machine",
					Namespace: "openshift-machine-api", Name: "worker-0"}
			}}, want: Eligibility{Reason: ReasonClaimed, Message: "is claimed by a Machine of machine.openshift.io", Claimed: true,
				UsedBy: "Machine openshift-machine-api/worker-0"}},
		"OurMachine": {reason: "it is another tenant's, perhaps, and not named",
			changes: []func(*bmov1alpha1.BareMetalHost){func(host *bmov1alpha1.BareMetalHost) {
				host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: "blue",
					Name: "m"}
			}}, want: Eligibility{Reason: ReasonClaimed, Message: "is claimed by a Machine", Claimed: true}},
		"Error": {reason: "an errored host is never claimed", changes: []func(*bmov1alpha1.BareMetalHost){fail},
			want: Eligibility{Reason: ReasonError, Message: "is in error (power management error)", Error: true}},
		"ErrorTypeAlone": {reason: "Metal3 keeps the type while it tries again",
			changes: []func(*bmov1alpha1.BareMetalHost){fail, operational(bmov1alpha1.OperationalStatusOK)},
			want:    Eligibility{Reason: ReasonError, Message: "is in error (power management error)", Error: true}},
		"ClaimedAndInError": {reason: "it counts as both", changes: []func(*bmov1alpha1.BareMetalHost){consume, fail},
			want: Eligibility{Reason: ReasonClaimed, Message: "is claimed by a Metal3Machine of infrastructure.cluster.x-k8s.io", Claimed: true,
				Error: true, UsedBy: "Metal3Machine capi/m"}},
		"Paused": {reason: "Metal3 would not act on the claim",
			changes: []func(*bmov1alpha1.BareMetalHost){annotate(bmov1alpha1.PausedAnnotation)},
			want:    Eligibility{Reason: ReasonPaused, Message: "is paused"}},
		"DetachedByAnnotation": {reason: "asked for, not done yet",
			changes: []func(*bmov1alpha1.BareMetalHost){annotate(bmov1alpha1.DetachedAnnotation)},
			want:    Eligibility{Reason: ReasonDetached, Message: "is detached"}},
		"DetachedByStatus": {reason: "not undone yet",
			changes: []func(*bmov1alpha1.BareMetalHost){operational(bmov1alpha1.OperationalStatusDetached)},
			want:    Eligibility{Reason: ReasonDetached, Message: "is detached"}},
		"Unhealthy": {reason: "it is marked as unhealthy",
			changes: []func(*bmov1alpha1.BareMetalHost){annotate(v1alpha1.CAPIUnhealthyAnnotationKey)},
			want:    Eligibility{Reason: ReasonUnhealthy, Message: "is marked as unhealthy"}},
		"NodeReuse": {reason: "CAPM3 has released it in a rollout and takes it again",
			changes: []func(*bmov1alpha1.BareMetalHost){func(host *bmov1alpha1.BareMetalHost) {
				host.Labels = map[string]string{v1alpha1.CAPINodeReuseLabelKey: "md-workers"}
			}},
			want: Eligibility{Reason: ReasonNodeReuse,
				Message: "is kept by Cluster API for its next node (label infrastructure.cluster.x-k8s.io/node-reuse)"}},
		"ExternallyProvisioned": {reason: "something runs on it",
			changes: []func(*bmov1alpha1.BareMetalHost){func(host *bmov1alpha1.BareMetalHost) { host.Spec.ExternallyProvisioned = true }},
			want:    Eligibility{Reason: ReasonExternallyProvisioned, Message: "is provisioned by others than Metal3"}},
		"ImageWithoutConsumer": {reason: "it is installed by hand",
			changes: []func(*bmov1alpha1.BareMetalHost){func(host *bmov1alpha1.BareMetalHost) {
				host.Spec.Image = &bmov1alpha1.Image{URL: "http://x"}
			}},
			want: Eligibility{Reason: ReasonImageSet, Message: "has an image set and no consumer"}},
		"CustomDeploy": {reason: "it is installed by hand, with a custom deploy method",
			changes: []func(*bmov1alpha1.BareMetalHost){func(host *bmov1alpha1.BareMetalHost) {
				host.Spec.CustomDeploy = &bmov1alpha1.CustomDeploy{Method: "install_coreos"}
			}},
			want: Eligibility{Reason: ReasonImageSet, Message: "has an image set and no consumer"}},
		"Inspecting": {reason: "not there yet", changes: []func(*bmov1alpha1.BareMetalHost){state(bmov1alpha1.StateInspecting)},
			want: Eligibility{Reason: ReasonInspecting, Message: "is being inspected"}},
		"InspectionAskedFor": {reason: "Metal3 will take it away to inspect it",
			changes: []func(*bmov1alpha1.BareMetalHost){annotate(bmov1alpha1.InspectAnnotationPrefix)},
			want:    Eligibility{Reason: ReasonInspecting, Message: "is being inspected"}},
		"InspectionDisabled": {reason: "the same annotation may say the opposite",
			changes: []func(*bmov1alpha1.BareMetalHost){func(host *bmov1alpha1.BareMetalHost) {
				host.Annotations = map[string]string{bmov1alpha1.InspectAnnotationPrefix: "disabled"}
			}},
			want: Eligibility{Claimable: true}},
		"Maintenance": {reason: "it is in maintenance, with a reason",
			changes: []func(*bmov1alpha1.BareMetalHost){func(host *bmov1alpha1.BareMetalHost) {
				host.Annotations = map[string]string{v1alpha1.MaintenanceAnnotationKey: "fan 3"}
			}},
			want: Eligibility{Reason: ReasonMaintenance, Message: "is in maintenance"}},
		"MaintenanceUnsaid": {reason: "the value is optional",
			changes: []func(*bmov1alpha1.BareMetalHost){annotate(v1alpha1.MaintenanceAnnotationKey)},
			want:    Eligibility{Reason: ReasonMaintenance, Message: "is in maintenance"}},
		"Quarantined": {reason: "a Machine was given up on it, and tenants are not told whose",
			changes: []func(*bmov1alpha1.BareMetalHost){quarantine},
			want: Eligibility{Reason: ReasonQuarantined, Quarantined: true,
				Message: "is quarantined: HostError, since 2026-01-02T03:04:05Z; an operator must check it and remove the annotation " +
					"karpenter.metal3.io/quarantined"}},
		"QuarantinedByHand": {reason: "operators may quarantine too, and say what they like",
			changes: []func(*bmov1alpha1.BareMetalHost){func(host *bmov1alpha1.BareMetalHost) {
				host.Annotations = map[string]string{v1alpha1.QuarantinedAnnotationKey: "smells burnt"}
			}},
			want: Eligibility{Reason: ReasonQuarantined, Quarantined: true,
				Message: "is quarantined; an operator must check it and remove the annotation karpenter.metal3.io/quarantined"}},
		"QuarantinedAndInError": {reason: "it counts as both; the quarantine says more",
			changes: []func(*bmov1alpha1.BareMetalHost){quarantine, fail},
			want: Eligibility{Reason: ReasonQuarantined, Quarantined: true, Error: true,
				Message: "is quarantined: HostError, since 2026-01-02T03:04:05Z; an operator must check it and remove the annotation " +
					"karpenter.metal3.io/quarantined"}},
		"KeptOff": {reason: "a remediation controller keeps it off; it would never boot",
			changes: []func(*bmov1alpha1.BareMetalHost){annotate(bmov1alpha1.RebootAnnotationPrefix + "/remediation")},
			want:    Eligibility{Reason: ReasonRebooting, Message: "is to be rebooted or kept off (annotation reboot.metal3.io)"}},
		"Deprovisioning": {reason: "still being cleaned", changes: []func(*bmov1alpha1.BareMetalHost){state(bmov1alpha1.StateDeprovisioning)},
			want: Eligibility{Reason: ReasonNotReady, Message: `is not available yet (state "deprovisioning")`}},
		"New": {reason: "Metal3 has not looked at it", changes: []func(*bmov1alpha1.BareMetalHost){state(bmov1alpha1.StateNone), operational("")},
			want: Eligibility{Reason: ReasonNotReady, Message: `is not available yet (state "")`}},
		"Servicing": {reason: "firmware is being written",
			changes: []func(*bmov1alpha1.BareMetalHost){operational(bmov1alpha1.OperationalStatusServicing)},
			want:    Eligibility{Reason: ReasonNotOperational, Message: `is not operational (status "servicing")`}},
		"Deleting": {reason: "it would be gone under the Machine",
			changes: []func(*bmov1alpha1.BareMetalHost){func(host *bmov1alpha1.BareMetalHost) {
				host.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}},
			want: Eligibility{Reason: ReasonDeleting, Message: "is being deleted"}},
	} {
		t.Run(name, func(t *testing.T) {
			host := available("server-01", nil)
			for _, change := range tc.changes {
				change(host)
			}
			if diff := cmp.Diff(tc.want, EligibilityOf(host)); diff != "" {
				t.Errorf("%s: Eligibility (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEligibilityFor(t *testing.T) {
	for name, tc := range map[string]struct {
		reason             string
		mode               bmov1alpha1.AutomatedCleaningMode
		lastTenant, tenant string
		paused, anyTenant  bool
		want               bool
	}{
		"SameTenant":    {reason: "it knows what is on it", lastTenant: "blue", tenant: "blue", want: true},
		"OtherTenant":   {reason: "it could read it", lastTenant: "blue", tenant: "red"},
		"NoTenant":      {reason: "a question that names no tenant is for all of them", lastTenant: "blue"},
		"Unknown":       {reason: "it may have had any", mode: bmov1alpha1.CleaningModeDisabled, tenant: "blue"},
		"UnknownToNone": {reason: "no tenant is not the unknown one", mode: bmov1alpha1.CleaningModeDisabled},
		"Dedicated": {reason: "an operator has named its tenant", mode: bmov1alpha1.CleaningModeDisabled, lastTenant: "blue", tenant: "blue",
			want: true},
		"AnyTenant":        {reason: "the operator says so", lastTenant: "blue", tenant: "red", anyTenant: true, want: true},
		"AnyTenantUnknown": {reason: "the operator says so", mode: bmov1alpha1.CleaningModeDisabled, tenant: "red", anyTenant: true, want: true},
		"Paused":           {reason: "another reason stays", lastTenant: "blue", tenant: "blue", paused: true, anyTenant: true},
	} {
		t.Run(name, func(t *testing.T) {
			host := available("h", nil)
			host.Spec.AutomatedCleaningMode, host.Annotations = tc.mode, map[string]string{}
			if tc.lastTenant != "" {
				host.Annotations[v1alpha1.LastTenantAnnotationKey] = tc.lastTenant
			}
			if tc.paused {
				host.Annotations[bmov1alpha1.PausedAnnotation] = ""
			}
			if got := EligibilityOf(host).For(tc.tenant, tc.anyTenant); got.Claimable != tc.want || (got.Reason == "") != tc.want {
				t.Errorf("%s: %+v, want claimable %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestQuarantineOf(t *testing.T) {
	written := Quarantine{Reason: "DeadlineExceeded", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Machine: types.NamespacedName{Namespace: "blue", Name: "m"}}
	suspect := written
	suspect.Suspect = true
	for name, tc := range map[string]struct {
		reason, value string
		want          Quarantine
		ours          bool
	}{
		"Written": {reason: "what was written is read", value: written.String(), want: written, ours: true},
		"Suspect": {reason: "and on whose word", value: suspect.String(), want: suspect, ours: true},
		"Older": {reason: "an older manager has written it",
			value: `{"reason":"DeadlineExceeded","since":"2026-01-02T03:04:05Z","machine":"blue/m"}`, want: written, ours: true},
		"ByHand":    {reason: "people write what they like", value: `"fan 3 rattles, since yesterday, machine room is hot"`},
		"NoMachine": {reason: "cut short", value: `{"reason":"HostError","since":"2026-01-02T03:04:05Z"}`},
		"Empty":     {reason: "a value is optional"},
	} {
		t.Run(name, func(t *testing.T) {
			host := available("h", nil)
			host.Annotations = map[string]string{v1alpha1.QuarantinedAnnotationKey: tc.value}
			got, ours := QuarantineOf(host)
			if diff := cmp.Diff(tc.want, got); diff != "" || ours != tc.ours {
				t.Errorf("%s: ours %v, want %v (-want +got):\n%s", tc.reason, ours, tc.ours, diff)
			}
		})
	}
}
