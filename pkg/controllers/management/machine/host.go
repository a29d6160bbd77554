// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

const machineKind = "Machine"

// owner identifies a Machine by name and claim UID. The name alone would not do: a Machine that was deleted and
// recreated has no right to the first one's server, unless it was restored from a backup. The UID alone would not do
// either: the Machine itself names the UID that it claims under.
type owner struct {
	types.NamespacedName
	UID types.UID
}

func ownerOf(machine *v1alpha1.Machine) owner {
	return owner{NamespacedName: client.ObjectKeyFromObject(machine), UID: machine.ClaimUID()}
}

// reference returns the consumerRef of a host that the Machine claims.
func (o owner) reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(),
		Kind:       machineKind,
		Namespace:  o.Namespace,
		Name:       o.Name,
		UID:        o.UID,
	}
}

// consumerOf returns the Machine that has claimed a host.
func consumerOf(host *bmov1alpha1.BareMetalHost) (owner, bool) {
	machine, claimed := usage.MachineOn(host)
	return owner{NamespacedName: types.NamespacedName{Namespace: machine.Namespace, Name: machine.Name}, UID: machine.UID}, claimed
}

func ownsHost(o owner, host *bmov1alpha1.BareMetalHost) bool {
	consumer, ok := consumerOf(host)
	return ok && consumer == o
}

// failures explain Metal3's types of errors. Tenants read only these texts: see inventory.Word.
var failures = map[bmov1alpha1.ErrorType]string{
	bmov1alpha1.ProvisionedRegistrationError: "Metal3 could not register it again, although it is installed",
	bmov1alpha1.RegistrationError:            "Metal3 does not reach its BMC, or is refused there",
	bmov1alpha1.InspectionError:              "Metal3 could not find out what hardware it has",
	bmov1alpha1.PreparationError:             "Metal3 could not prepare it: clean it, or set its RAID and firmware up",
	bmov1alpha1.ProvisioningError: "Metal3 could not install its image, or could not clean it. If the image is yours, compare " +
		"its URL, checksum and format with the file",
	bmov1alpha1.PowerManagementError: "Metal3 could not switch it on or off",
	bmov1alpha1.DetachError:          "Metal3 could not let it go",
	bmov1alpha1.ServicingError:       "Metal3 could not change its firmware",
}

// hostError returns the error of a host, or "" if Metal3 reports none. It ends without a full stop: text may follow.
func hostError(host *bmov1alpha1.BareMetalHost) string {
	if host.Status.ErrorType == "" && host.Status.ErrorMessage == "" && host.Status.OperationalStatus != bmov1alpha1.OperationalStatusError {
		return ""
	}
	times := ""
	if host.Status.ErrorCount > 1 {
		times = fmt.Sprintf("; %d times in a row", host.Status.ErrorCount)
	}
	return fmt.Sprintf("server %s/%s: %s: %s%s (an operator reads Metal3's own words with: %s)", host.Namespace, host.Name,
		cmp.Or(inventory.Word(host.Status.ErrorType), "error"),
		cmp.Or(failures[host.Status.ErrorType], "Metal3 does not say what it could not do"), times,
		shell.Command("kubectl describe baremetalhost -n %s %s", host.Namespace, host.Name))
}

// ignored returns why Metal3 does not act on a host, or "" if Metal3 follows its spec.
func ignored(host *bmov1alpha1.BareMetalHost) string {
	name := host.Namespace + "/" + host.Name
	for _, annotation := range []string{bmov1alpha1.PausedAnnotation, bmov1alpha1.DetachedAnnotation} {
		if _, set := host.Annotations[annotation]; set {
			return fmt.Sprintf("server %s has the annotation %s: Metal3 does nothing on it before that is removed", name, annotation)
		}
	}
	switch {
	case host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached:
		return fmt.Sprintf("server %s is detached: Metal3 does nothing on it before it is attached again", name)
	case host.Spec.ExternallyProvisioned:
		return fmt.Sprintf("server %s has spec.externallyProvisioned: Metal3 installs and cleans nothing on it before that is false", name)
	}
	return ""
}

// isProvisioned reports whether Metal3 has installed the image that the spec names.
func isProvisioned(host *bmov1alpha1.BareMetalHost) bool {
	return host.Status.Provisioning.State == bmov1alpha1.StateProvisioned &&
		host.Spec.Image != nil && host.Status.Provisioning.Image.URL == host.Spec.Image.URL
}

// isEmptied reports whether a host's spec requests nothing any more, so that Metal3 will clean and stop it. A host that
// must not be powered off stays online: Metal3 refuses anything else.
func isEmptied(host *bmov1alpha1.BareMetalHost) bool {
	userData, networkData := documentsOf(host)
	return host.Spec.Image == nil && !userData.isReplaced() && !networkData.isReplaced() &&
		(!host.Spec.Online || host.Spec.DisablePowerOff)
}

// stateSince returns the provisioning state of a host and, for states that Metal3 measures, when it began. It needs a
// host that was read live: a cached host has no history.
func stateSince(host *bmov1alpha1.BareMetalHost) string {
	state := host.Status.Provisioning.State
	since := ""
	if metric := host.OperationMetricForState(state); metric != nil && !metric.Start.IsZero() && metric.End.IsZero() {
		since = " since " + metric.Start.UTC().Format(time.RFC3339)
	}
	return cmp.Or(inventory.Word(state), "not registered with Metal3 yet") + since
}

// unclean returns why an emptied host cannot go back to the pool yet, or "" if it can. The second value is true if the
// reason will not pass by itself.
func unclean(host *bmov1alpha1.BareMetalHost) (string, bool) {
	name := host.Namespace + "/" + host.Name
	if message := hostError(host); message != "" {
		return message + "; its state is " + stateSince(host) + ". The server stays claimed until Metal3 has cleaned it", true
	}
	if why := ignored(host); why != "" {
		return why, true
	}
	switch host.Status.OperationalStatus {
	case "", bmov1alpha1.OperationalStatusOK:
	default:
		return fmt.Sprintf("server %s is %s, and its state is %s", name, inventory.Word(host.Status.OperationalStatus), stateSince(host)), false
	}
	switch state := host.Status.Provisioning.State; {
	case state != bmov1alpha1.StateAvailable && state != bmov1alpha1.StateReady:
		return fmt.Sprintf("server %s is %s: it stays claimed until Metal3 has removed its image and cleaned it, and its state is available",
			name, stateSince(host)), false
	case host.Status.Provisioning.Image.URL != "":
		return fmt.Sprintf("server %s still has an image", name), false
	case host.Status.PoweredOn && !host.Spec.DisablePowerOff:
		return fmt.Sprintf("server %s is being powered off", name), false
	}
	return "", false
}
