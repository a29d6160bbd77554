// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// machineKind is the kind of the consumer of a host that a Machine has claimed.
const machineKind = "Machine"

// Owner identifies a Machine by name and claim UID. The name alone would not do: a Machine that was deleted and
// recreated has no right to the first one's server, unless it was restored from a backup. The UID alone would not do
// either: the Machine itself names the UID that it claims under.
type Owner struct {
	types.NamespacedName
	UID types.UID
}

// OwnerOf returns the identity under which a Machine claims a host.
func OwnerOf(machine *v1alpha1.Machine) Owner {
	return Owner{NamespacedName: client.ObjectKeyFromObject(machine), UID: machine.ClaimUID()}
}

// ConsumerRef returns the consumerRef of a host that the Machine claims.
func (o Owner) ConsumerRef() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(),
		Kind:       machineKind,
		Namespace:  o.Namespace,
		Name:       o.Name,
		UID:        o.UID,
	}
}

// ConsumerOf returns the Machine that has claimed a host.
func ConsumerOf(host *bmov1alpha1.BareMetalHost) (Owner, bool) {
	machine, claimed := usage.MachineOn(host)
	return Owner{NamespacedName: types.NamespacedName{Namespace: machine.Namespace, Name: machine.Name}, UID: machine.UID}, claimed
}

// Owns reports whether the owner has claimed a host.
func Owns(o Owner, host *bmov1alpha1.BareMetalHost) bool {
	consumer, ok := ConsumerOf(host)
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

// ErrorOf returns the error of a host, or "" if Metal3 reports none. It ends without a full stop: text may follow.
func ErrorOf(host *bmov1alpha1.BareMetalHost) string {
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

// WhyIgnored returns why Metal3 does not act on a host, or "" if Metal3 follows its spec.
func WhyIgnored(host *bmov1alpha1.BareMetalHost) string {
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

// IsProvisioned reports whether Metal3 has installed the image that the spec names.
func IsProvisioned(host *bmov1alpha1.BareMetalHost) bool {
	return host.Status.Provisioning.State == bmov1alpha1.StateProvisioned &&
		host.Spec.Image != nil && host.Status.Provisioning.Image.URL == host.Spec.Image.URL
}

// IsEmptied reports whether a host's spec requests nothing any more, so that Metal3 will clean and stop it. A host that
// must not be powered off stays online: Metal3 refuses anything else.
func IsEmptied(host *bmov1alpha1.BareMetalHost) bool {
	userData, networkData := documentsOf(host)
	return host.Spec.Image == nil && !userData.isReplaced() && !networkData.isReplaced() &&
		(!host.Spec.Online || host.Spec.DisablePowerOff)
}

// StateSince returns the provisioning state of a host and, for states that Metal3 measures, when it began. It needs a
// host that was read live: a cached host has no history.
func StateSince(host *bmov1alpha1.BareMetalHost) string {
	state := host.Status.Provisioning.State
	since := ""
	if metric := host.OperationMetricForState(state); metric != nil && !metric.Start.IsZero() && metric.End.IsZero() {
		since = " since " + metric.Start.UTC().Format(time.RFC3339)
	}
	return cmp.Or(inventory.Word(state), "not registered with Metal3 yet") + since
}

// WhyUnclean returns why an emptied host cannot go back to the pool yet, or "" if it can. The second value is true if the
// reason will not pass by itself.
func WhyUnclean(host *bmov1alpha1.BareMetalHost) (string, bool) {
	name := host.Namespace + "/" + host.Name
	if message := ErrorOf(host); message != "" {
		return message + "; its state is " + StateSince(host) + ". The server stays claimed until Metal3 has cleaned it", true
	}
	if why := WhyIgnored(host); why != "" {
		return why, true
	}
	switch host.Status.OperationalStatus {
	case "", bmov1alpha1.OperationalStatusOK:
	default:
		return fmt.Sprintf("server %s is %s, and its state is %s", name, inventory.Word(host.Status.OperationalStatus), StateSince(host)), false
	}
	switch state := host.Status.Provisioning.State; {
	case state != bmov1alpha1.StateAvailable && state != bmov1alpha1.StateReady:
		return fmt.Sprintf("server %s is %s: it stays claimed until Metal3 has removed its image and cleaned it, and its state is available",
			name, StateSince(host)), false
	case host.Status.Provisioning.Image.URL != "":
		return fmt.Sprintf("server %s still has an image", name), false
	case host.Status.PoweredOn && !host.Spec.DisablePowerOff:
		return fmt.Sprintf("server %s is being powered off", name), false
	}
	return "", false
}

// Reference returns the owner in the form that the API uses.
func (o Owner) Reference() v1alpha1.MachineReference {
	return v1alpha1.MachineReference{Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}

// Key returns the key under which clients read a host.
func Key(reference v1alpha1.HostReference) types.NamespacedName {
	return types.NamespacedName{Namespace: reference.Namespace, Name: reference.Name}
}

// hostsPerPage bounds the hosts in one answer of the API server.
const hostsPerPage = 500

// FindOwned finds the server that the owner has claimed, by live reads.
func FindOwned(ctx context.Context, live client.Reader, o Owner) (found *bmov1alpha1.BareMetalHost, err error) {
	page := &bmov1alpha1.BareMetalHostList{}
	for {
		if err := live.List(ctx, page, client.Limit(hostsPerPage), client.Continue(page.Continue)); err != nil {
			return nil, fmt.Errorf("looking for a server of Machine %s, %w", o, err)
		}
		if host := OwnedAmong(page.Items, o); host != nil && (found == nil || found.Spec.Image == nil) {
			found = host
		}
		if page.Continue == "" {
			return found, nil
		}
	}
}

// OwnedAmong returns the host that the owner has claimed, or nil. A crash can leave two: then it returns the host with
// an image.
func OwnedAmong(list []bmov1alpha1.BareMetalHost, o Owner) (found *bmov1alpha1.BareMetalHost) {
	for i := range list {
		if host := &list[i]; Owns(o, host) && (found == nil || found.Spec.Image == nil) {
			found = host
		}
	}
	if found == nil {
		return nil
	}
	return found.DeepCopy()
}

// RebootMark returns the mark that a reboot leaves on a host: the time, and a digest of the operation.
func RebootMark(operation string, moment time.Time) string {
	return moment.UTC().Format(time.RFC3339) + " " + digestOf(operation)
}

func digestOf(operation string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(operation)))
}

// RebootedAt returns the time of a reboot that is not recorded completely, and whether there is one.
func RebootedAt(host *bmov1alpha1.BareMetalHost) (metav1.Time, bool) {
	text, found := host.Annotations[v1alpha1.RebootedAnnotationKey]
	text, _, _ = strings.Cut(text, " ")
	lastReboot, _ := time.Parse(time.RFC3339, text) // zero if another client wrote something else
	return metav1.NewTime(lastReboot), found
}

// RebootedFor reports whether the mark on a host is for the operation. If the mark has no digest, another client wrote
// it and may have rebooted the host: then it counts for every operation, and the host is not rebooted again.
func RebootedFor(host *bmov1alpha1.BareMetalHost, operation string) bool {
	_, digest, known := strings.Cut(host.Annotations[v1alpha1.RebootedAnnotationKey], " ")
	return !known || digest == digestOf(operation)
}

// AwaitsReboot reports whether Metal3 has not yet rebooted a host as requested. Metal3 then removes the annotation.
func AwaitsReboot(host *bmov1alpha1.BareMetalHost) bool {
	_, asked := host.Annotations[bmov1alpha1.RebootAnnotationPrefix]
	return asked || WhyIgnored(host) != "" || ErrorOf(host) != ""
}

// imageOf converts the image of a plan for Metal3.
func imageOf(planned *plan.Plan) *bmov1alpha1.Image {
	image := &bmov1alpha1.Image{URL: planned.Image.URL, Checksum: planned.Image.Checksum,
		ChecksumType: bmov1alpha1.ChecksumType(planned.Image.ChecksumType)}
	if format := planned.Image.Format; format != "" {
		image.DiskFormat = &format
	}
	return image
}

const (
	// MaxNameLength is the maximum length of the name of a Secret, in bytes.
	MaxNameLength  = 253
	shortUIDLength = 8
)

// UserDataName returns the name of the Secret in the host's namespace. The UID separates Machines of the same name.
func UserDataName(o Owner) string {
	uid := string(o.UID)
	suffix := "-" + uid[:min(len(uid), shortUIDLength)] + "-user-data"
	return strings.TrimRight(o.Name[:min(len(o.Name), MaxNameLength-len(suffix))], "-.") + suffix
}
