// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// eligibility returns whether a Machine may have the server. If only the cleaning is missing, the NodeProvider decides
// whether that is a reason to refuse. It is a reason if the NodeProvider or the NodeType is gone.
func (w Writer) eligibility(
	ctx context.Context, host *bmov1alpha1.BareMetalHost, machine *v1alpha1.Machine,
) (inventory.Eligibility, error) {
	eligibility := inventory.EligibilityOf(host).For(machine.Namespace, false)
	if eligibility.Reason != inventory.ReasonNotCleaned {
		return eligibility, nil
	}
	nodeType, provider := &v1alpha1.NodeType{}, &v1alpha1.NodeProvider{}
	found, err := kube.Find(ctx, w.Client, types.NamespacedName{Name: machine.Status.NodeTypeRef.Name}, nodeType,
		client.UnsafeDisableDeepCopy)
	if err == nil && found {
		_, err = kube.Find(ctx, w.Client, types.NamespacedName{Name: nodeType.Spec.ProviderRef.Name}, provider)
	}
	if err != nil {
		return eligibility, fmt.Errorf("reading who may have host %s/%s, which was not cleaned, %w", host.Namespace, host.Name, err)
	}
	return eligibility.For(machine.Namespace, provider.Spec.Metal3.UncleanedServers == v1alpha1.UncleanedServersAnyTenant), nil
}

// markUncleaned records, on a host that is about to be installed, whose data its disks hold from now on. The record is
// part of the write of the image, so that no crash leaves a host without it.
func markUncleaned(host *bmov1alpha1.BareMetalHost) {
	if _, uncleaned := host.Annotations[v1alpha1.LastTenantAnnotationKey]; uncleaned {
		delete(host.Annotations, v1alpha1.CleaningAnnotationKey)
	} else {
		becomesClean(host) // if the Machine is deleted before Metal3 has begun to install it
		if NetworkOfHost(host) != "" {
			host.Annotations[v1alpha1.CleaningAnnotationKey] += " " + lastInstallation(host)
		}
	}
	metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.LastTenantAnnotationKey, host.Spec.ConsumerRef.Namespace)
}

// expectCleaning is part of the write that removes the image from a host. Metal3 then deprovisions the host if it has
// begun to install it, and cleans it unless cleaning is disabled by then. Cleaning in a tenant's network does not
// count: another machine there can answer Ironic in the place of the agent that erases.
func expectCleaning(host *bmov1alpha1.BareMetalHost) {
	if host.Spec.Image == nil { // taken off by a person, and Metal3 may have deprovisioned it already, or by us, and somebody has set others
		if follows(host) {
			awaitCleaning(host)
		}
		return
	}
	// Somebody may have removed the annotation.
	metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.LastTenantAnnotationKey, host.Spec.ConsumerRef.Namespace)
	clean := false
	switch host.Status.Provisioning.State {
	case bmov1alpha1.StatePreparing, bmov1alpha1.StateAvailable, bmov1alpha1.StateReady:
		// Metal3 has not begun the installation: firmware and RAID settings come before the image. If it had, the host
		// would have been cleaned in the network.
		_, before, networked := strings.Cut(host.Annotations[v1alpha1.CleaningAnnotationKey], " ")
		clean = isUnchanged(host) && (!networked || before == lastInstallation(host))
	case bmov1alpha1.StateProvisioning, bmov1alpha1.StateProvisioned:
		clean = host.Spec.AutomatedCleaningMode != bmov1alpha1.CleaningModeDisabled && NetworkOfHost(host) == ""
	}
	if delete(host.Annotations, v1alpha1.CleaningAnnotationKey); clean {
		awaitCleaning(host)
	}
}

// awaitCleaning is becomesClean for a host without an image. Later edits, one at a time, may change fields that do not
// matter for the cleaning.
func awaitCleaning(host *bmov1alpha1.BareMetalHost) {
	becomesClean(host)
	host.Annotations[v1alpha1.CleaningAnnotationKey] += awaited + cleaningOf(host)
}

// awaited separates the generation from the digest of cleaningOf in the annotation of a host.
const awaited = "/"

// cleaningOf returns a digest of the fields that identify a server and decide whether Metal3 cleans it.
func cleaningOf(host *bmov1alpha1.BareMetalHost) string {
	return digestOf(fmt.Sprint(host.Spec.AutomatedCleaningMode, host.Spec.ExternallyProvisioned, host.Spec.CustomDeploy != nil,
		host.Spec.BMC.Address, host.Spec.BootMACAddress))
}

// follows reports whether nothing that matters for the cleaning of a host has changed since awaitCleaning. Two edits
// are too many: the first may have disabled the cleaning, and the second may have enabled it again.
func follows(host *bmov1alpha1.BareMetalHost) bool {
	noted, cleaning, is := strings.Cut(host.Annotations[v1alpha1.CleaningAnnotationKey], awaited)
	generation, err := strconv.ParseInt(noted, 10, 64)
	edits := host.Generation - generation
	return is && err == nil && 0 <= edits && edits <= 1 && host.Spec.Image == nil && cleaning == cleaningOf(host)
}

// FollowEdit notes an edit of a host that is being cleaned, if the edit does not matter. The next edit is compared with
// this one.
func (w Writer) FollowEdit(ctx context.Context, host *bmov1alpha1.BareMetalHost) (*bmov1alpha1.BareMetalHost, error) {
	note := strconv.FormatInt(host.Generation, 10) + awaited + cleaningOf(host)
	if !follows(host) || host.Annotations[v1alpha1.CleaningAnnotationKey] == note {
		return host, nil
	}
	return w.write(ctx, host, "noting that others have edited", func(host *bmov1alpha1.BareMetalHost) {
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.CleaningAnnotationKey, note)
	})
}

// becomesClean is part of a write that changes the spec of a host. Each change is one generation: later ones show.
func becomesClean(host *bmov1alpha1.BareMetalHost) {
	metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.CleaningAnnotationKey, strconv.FormatInt(host.Generation+1, 10))
}

// isUnchanged reports whether the spec of a host is as becomesClean has left it. The cleaning mode is part of the spec.
func isUnchanged(host *bmov1alpha1.BareMetalHost) bool {
	generation, _, _ := strings.Cut(host.Annotations[v1alpha1.CleaningAnnotationKey], " ")
	return generation == strconv.FormatInt(host.Generation, 10)
}

// lastInstallation returns when Metal3 last began to install a host. It is only for comparing two of these times.
func lastInstallation(host *bmov1alpha1.BareMetalHost) string {
	return host.Status.OperationHistory.Provision.Start.UTC().Format(time.RFC3339)
}

// IsCleaned reports whether nothing of its tenant is left on an available host that was read past the cache: cleaning
// was on ever since the image was removed, and Metal3 has deprovisioned the last installation.
func IsCleaned(host *bmov1alpha1.BareMetalHost) bool {
	history := host.Status.OperationHistory
	return follows(host) && (history.Provision.Start.IsZero() ||
		!history.Deprovision.End.IsZero() && !history.Deprovision.Start.Before(&history.Provision.Start))
}
