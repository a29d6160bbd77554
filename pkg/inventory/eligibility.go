// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Reason says why a host cannot be claimed.
type Reason string

// Reasons in the order of their checks.
const (
	// ReasonDeleting: the host is being deleted.
	ReasonDeleting Reason = "Deleting"
	// ReasonClaimed: the host has a consumer, of any kind.
	ReasonClaimed Reason = "Claimed"
	// ReasonQuarantined: a Machine on the host was given up, and the quarantine annotation is still set.
	ReasonQuarantined Reason = "Quarantined"
	// ReasonError: Metal3 reports an error.
	ReasonError Reason = "Error"
	// ReasonPaused: Metal3 does not look at the host.
	ReasonPaused Reason = "Paused"
	// ReasonDetached: the host is not managed by Metal3's provisioner.
	ReasonDetached Reason = "Detached"
	// ReasonUnhealthy: the host is marked as unhealthy.
	ReasonUnhealthy Reason = "Unhealthy"
	// ReasonNodeReuse: Cluster API's provider for Metal3 keeps the host for its next Machine of the same kind.
	ReasonNodeReuse Reason = "NodeReuse"
	// ReasonMaintenance: the host has the maintenance annotation.
	ReasonMaintenance Reason = "Maintenance"
	// ReasonRebooting: Metal3 was asked to reboot the host, or to keep it off.
	ReasonRebooting Reason = "Rebooting"
	// ReasonInspecting: Metal3 was asked to inspect the host, or is inspecting it.
	ReasonInspecting Reason = "Inspecting"
	// ReasonExternallyProvisioned: the host runs something that Metal3 has not installed.
	ReasonExternallyProvisioned Reason = "ExternallyProvisioned"
	// ReasonImageSet: the host has an image and no consumer.
	ReasonImageSet Reason = "ImageSet"
	// ReasonNotReady: the state of the host is not available (or ready, as old versions call it), but for example
	// inspecting or deprovisioning.
	ReasonNotReady Reason = "NotReady"
	// ReasonNotOperational: the operational status is not OK.
	ReasonNotOperational Reason = "NotOperational"
	// ReasonNotCleaned: the disks may hold data of the last tenant. A Machine of that tenant can claim the host.
	ReasonNotCleaned Reason = "NotCleaned"
	// ReasonTooSmall: the host has less than its type says.
	ReasonTooSmall Reason = "TooSmall"
	// ReasonNotInspected: the host's type leaves out cpu or memory, and inspection has not found how much the host has.
	ReasonNotInspected Reason = "NotInspected"
	// ReasonAssumed: the host was given to another Machine, whose claim is not on it yet.
	ReasonAssumed Reason = "Assumed"
	// ReasonDomainHeld: the host is in a domain that belongs to another tenant now.
	ReasonDomainHeld Reason = "DomainHeld"
	// ReasonRegisteredAnew: the host has an image, and its consumer is a Machine that has another host.
	ReasonRegisteredAnew Reason = "RegisteredAnew"
	// ReasonUnknown: the host does not exist.
	ReasonUnknown Reason = "Unknown"
)

// Eligibility says whether a host can be claimed now, and if not, why.
type Eligibility struct {
	// Claimable is true when a Machine of any tenant may have the host.
	Claimable bool
	// Reason why the host cannot be claimed; empty when it can.
	Reason Reason
	// Message ends a sentence that begins with the host's name: "is paused". Empty when the host is claimable.
	Message string
	// Claimed is true when the host has a consumer, even if other reasons apply.
	Claimed bool
	// Error is true when Metal3 reports an error, even if other reasons apply.
	Error bool
	// Quarantined is true when the host is quarantined, even if other reasons apply.
	Quarantined bool
	// UsedBy is the consumer of the host, if that is not one of our Machines: "Metal3Machine capi/worker-7". For
	// operators only, because the name may be somebody else's: tenants read Message, which has no names.
	UsedBy string
	// LastTenant is the namespace whose data the disks may hold, even if other reasons apply; empty if none is known.
	LastTenant string
}

// For returns the eligibility of the host for the Machines of a namespace. anyTenant is the operator's word that any
// tenant may have hosts that were not cleaned.
func (e Eligibility) For(namespace string, anyTenant bool) Eligibility {
	if e.Reason == ReasonNotCleaned && (anyTenant || e.LastTenant != "" && e.LastTenant == namespace) {
		e.Claimable, e.Reason, e.Message = true, "", ""
	}
	return e
}

// EligibilityOf returns the eligibility of a host for any tenant. It depends on the host alone, so it never returns
// ReasonTooSmall, ReasonNotInspected, ReasonDomainHeld or ReasonRegisteredAnew.
func EligibilityOf(host *bmov1alpha1.BareMetalHost) Eligibility {
	eligibility := Eligibility{
		Claimed:     host.Spec.ConsumerRef != nil,
		UsedBy:      usedBy(host.Spec.ConsumerRef),
		Error:       host.Status.ErrorType != "" || host.Status.OperationalStatus == bmov1alpha1.OperationalStatusError,
		Quarantined: has(host, v1alpha1.QuarantinedAnnotationKey),
		LastTenant:  host.Annotations[v1alpha1.LastTenantAnnotationKey],
	}
	eligibility.Reason, eligibility.Message = ineligible(host, eligibility)
	eligibility.Claimable = eligibility.Reason == ""
	return eligibility
}

func ineligible(host *bmov1alpha1.BareMetalHost, eligibility Eligibility) (Reason, string) {
	state := host.Status.Provisioning.State
	switch {
	case !host.DeletionTimestamp.IsZero():
		return ReasonDeleting, "is being deleted"
	case eligibility.Claimed:
		return ReasonClaimed, "is claimed by " + Consumer(host)
	case eligibility.Quarantined:
		return ReasonQuarantined, quarantinedMessage(host)
	case eligibility.Error:
		// Without Metal3's message: tenants read this, and it may have another tenant's image or the address of a BMC.
		return ReasonError, fmt.Sprintf("is in error (%s)", cmp.Or(Word(host.Status.ErrorType), "of no type"))
	case has(host, bmov1alpha1.PausedAnnotation):
		return ReasonPaused, "is paused"
	case has(host, bmov1alpha1.DetachedAnnotation) || host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached:
		return ReasonDetached, "is detached"
	case has(host, v1alpha1.CAPIUnhealthyAnnotationKey):
		return ReasonUnhealthy, "is marked as unhealthy"
	case metav1.HasLabel(host.ObjectMeta, v1alpha1.CAPINodeReuseLabelKey):
		return ReasonNodeReuse, "is kept by Cluster API for its next node (label " + v1alpha1.CAPINodeReuseLabelKey + ")"
	case has(host, v1alpha1.MaintenanceAnnotationKey):
		return ReasonMaintenance, "is in maintenance" // without the note, which is for operators
	case host.Spec.ExternallyProvisioned || state == bmov1alpha1.StateExternallyProvisioned:
		return ReasonExternallyProvisioned, "is provisioned by others than Metal3"
	case host.Spec.Image != nil || host.Spec.CustomDeploy != nil:
		return ReasonImageSet, "has an image set and no consumer"
	case state == bmov1alpha1.StateInspecting || (has(host, bmov1alpha1.InspectAnnotationPrefix) && !host.InspectionDisabled()):
		return ReasonInspecting, "is being inspected"
	case reboots(host):
		return ReasonRebooting, "is to be rebooted or kept off (annotation " + bmov1alpha1.RebootAnnotationPrefix + ")"
	case state != bmov1alpha1.StateAvailable && state != bmov1alpha1.StateReady:
		return ReasonNotReady, fmt.Sprintf("is not available yet (state %q)", Word(state))
	case host.Status.OperationalStatus != bmov1alpha1.OperationalStatusOK:
		return ReasonNotOperational, fmt.Sprintf("is not operational (status %q)", Word(host.Status.OperationalStatus))
	case has(host, v1alpha1.LastTenantAnnotationKey):
		// Without its name: tenants read this.
		return ReasonNotCleaned, "was not cleaned after its last tenant, and is for that tenant only: an operator must erase its disks " +
			"and remove the annotation " + v1alpha1.LastTenantAnnotationKey
	case host.Spec.AutomatedCleaningMode == bmov1alpha1.CleaningModeDisabled:
		return ReasonNotCleaned, "is not cleaned between its owners (spec.automatedCleaningMode is disabled): an operator must erase its disks " +
			"and set that to metadata, or name the namespace that it is for in the annotation " + v1alpha1.LastTenantAnnotationKey
	}
	return "", ""
}

// IsReleasing reports whether the release of a host has begun, which switches it off for good.
func IsReleasing(host *bmov1alpha1.BareMetalHost) bool {
	return has(host, v1alpha1.ReleasingAnnotationKey)
}

// IsOff reports whether a host that is being released is off, with its image on: it can leave its tenant's network.
func IsOff(host *bmov1alpha1.BareMetalHost) bool {
	return IsReleasing(host) && host.Spec.Image != nil && !host.Spec.Online && !host.Status.PoweredOn &&
		host.Status.Provisioning.State == bmov1alpha1.StateProvisioned
}

// Consumer describes the consumer of a host by its kind, and by its group if that is not ours: other projects have
// Machines too. It leaves out the name: tenants read this, and the consumer may be another tenant's.
func Consumer(host *bmov1alpha1.BareMetalHost) string {
	reference := host.Spec.ConsumerRef
	if reference == nil {
		return "no consumer"
	}
	kind := "a " + cmp.Or(reference.Kind, "consumer of no kind")
	if group := groupOf(reference); group != v1alpha1.Group && group != "" {
		kind += " of " + group
	}
	return kind
}

// usedBy names a consumer whose group is not ours.
func usedBy(consumer *corev1.ObjectReference) string {
	if consumer == nil || groupOf(consumer) == v1alpha1.Group {
		return ""
	}
	name := strings.Trim(consumer.Namespace+"/"+consumer.Name, "/")
	return strings.TrimSpace(cmp.Or(consumer.Kind, "consumer of no kind") + " " + name)
}

func groupOf(reference *corev1.ObjectReference) string {
	version, err := schema.ParseGroupVersion(reference.APIVersion)
	if err != nil {
		return ""
	}
	return version.Group
}

// reboots reports whether the host has one of Metal3's annotations that reboot it once or, with a suffix, keep it off.
func reboots(host *bmov1alpha1.BareMetalHost) bool {
	for key := range host.Annotations {
		if key == bmov1alpha1.RebootAnnotationPrefix || strings.HasPrefix(key, bmov1alpha1.RebootAnnotationPrefix+"/") {
			return true
		}
	}
	return false
}

func has(host *bmov1alpha1.BareMetalHost, annotation string) bool {
	_, found := host.Annotations[annotation]
	return found
}

// Quarantine says why and since when a host is kept out of the pool, and which Machine caused that.
type Quarantine struct {
	// Reason is the reason of the Machine's condition GivenUp.
	Reason string
	// Since is when the Machine was given up, to the second.
	Since   time.Time
	Machine types.NamespacedName
	// Suspect is true if only the tenant, and not Metal3, says that something is wrong with the host.
	Suspect bool
	// Message is the tenant's description of the fault, for operators. Other tenants do not read it.
	Message string
}

// quarantineJSON is the form of the annotation.
type quarantineJSON struct {
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
	Machine string    `json:"machine"`
	Suspect bool      `json:"suspect,omitempty"`
	Message string    `json:"message,omitempty"`
}

// String returns the annotation: {"reason":"HostError","since":"2026-01-02T15:04:05Z","machine":"tenant-a/gpu-x7f2k"}.
func (q Quarantine) String() string {
	// Marshal fails for years after 9999 only.
	text, _ := json.Marshal(quarantineJSON{Reason: q.Reason, Since: q.Since.UTC().Truncate(time.Second), Machine: q.Machine.String(),
		Suspect: q.Suspect, Message: q.Message})
	return string(text)
}

// QuarantineOf reads the annotation of a host. It returns false if there is none, or if a person has written it.
func QuarantineOf(host *bmov1alpha1.BareMetalHost) (Quarantine, bool) {
	var read quarantineJSON
	if err := json.Unmarshal([]byte(host.Annotations[v1alpha1.QuarantinedAnnotationKey]), &read); err != nil || read.Reason == "" ||
		read.Since.IsZero() {
		return Quarantine{}, false
	}
	namespace, name, found := strings.Cut(read.Machine, "/")
	if !found {
		return Quarantine{}, false
	}
	return Quarantine{Reason: read.Reason, Since: read.Since, Machine: types.NamespacedName{Namespace: namespace, Name: name},
		Suspect: read.Suspect, Message: read.Message}, true
}

// quarantinedMessage leaves out the Machine, which may be another tenant's, and a person's text: tenants read it.
func quarantinedMessage(host *bmov1alpha1.BareMetalHost) string {
	why := ""
	if quarantine, ours := QuarantineOf(host); ours {
		why = fmt.Sprintf("%s, since %s", quarantine.Reason, quarantine.Since.UTC().Format(time.RFC3339))
	}
	return strings.TrimSuffix("is quarantined: "+why, ": ") + "; an operator must check it and remove the annotation " +
		v1alpha1.QuarantinedAnnotationKey
}
