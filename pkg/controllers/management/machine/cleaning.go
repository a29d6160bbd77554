// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// eligibility of a server for a Machine. Where only the cleaning is missing, the NodeProvider says whether that is a reason. If it
// or the NodeType has gone, it is.
func (c hostClaims) eligibility(
	ctx context.Context, host *bmov1alpha1.BareMetalHost, machine *v1alpha1.Machine,
) (inventory.Eligibility, error) {
	eligibility := inventory.EligibilityOf(host).For(machine.Namespace, false)
	if eligibility.Reason != inventory.ReasonNotCleaned {
		return eligibility, nil
	}
	nodeType, provider := &v1alpha1.NodeType{}, &v1alpha1.NodeProvider{}
	found, err := kube.Find(ctx, c.client, types.NamespacedName{Name: machine.Status.NodeTypeRef.Name}, nodeType,
		client.UnsafeDisableDeepCopy)
	if err == nil && found {
		_, err = kube.Find(ctx, c.client, types.NamespacedName{Name: nodeType.Spec.ProviderRef.Name}, provider)
	}
	if err != nil {
		return eligibility, fmt.Errorf("reading who may have host %s/%s, which was not cleaned, %w", host.Namespace, host.Name, err)
	}
	return eligibility.For(machine.Namespace, provider.Spec.Metal3.UncleanedServers == v1alpha1.UncleanedServersAnyTenant), nil
}

// markUncleaned records, on a host that is about to be installed, whose data its disks hold from now on. The record is part of the
// write of the image, so that no crash leaves a host without it.
func markUncleaned(host *bmov1alpha1.BareMetalHost) {
	if _, uncleaned := host.Annotations[v1alpha1.LastTenantAnnotationKey]; uncleaned {
		delete(host.Annotations, v1alpha1.CleaningAnnotationKey)
	} else {
		becomesClean(host) // if the Machine is deleted before Metal3 has begun to install it
		if networkOfHost(host) != "" {
			host.Annotations[v1alpha1.CleaningAnnotationKey] += " " + lastInstallation(host)
		}
	}
	annotate(host, v1alpha1.LastTenantAnnotationKey, host.Spec.ConsumerRef.Namespace)
}

// expectCleaning is part of the write that takes the image off a host, upon which Metal3 deprovisions what it has begun to install,
// and cleans it unless that is disabled by then. What is erased in a tenant's network does not count as clean: another machine there
// can answer Ironic in the place of the agent that erases.
func expectCleaning(host *bmov1alpha1.BareMetalHost) {
	if host.Spec.Image == nil { // taken off by a person, and Metal3 may have deprovisioned it already, or by us, and somebody has set others
		if follows(host) {
			awaitCleaning(host)
		}
		return
	}
	annotate(host, v1alpha1.LastTenantAnnotationKey, host.Spec.ConsumerRef.Namespace) // somebody may have removed it
	clean := false
	switch host.Status.Provisioning.State {
	case bmov1alpha1.StatePreparing, bmov1alpha1.StateAvailable, bmov1alpha1.StateReady:
		// It has not begun: firmware and RAID settings come before the image. If it had, it would have been cleaned in the network.
		_, before, networked := strings.Cut(host.Annotations[v1alpha1.CleaningAnnotationKey], " ")
		clean = isUnchanged(host) && (!networked || before == lastInstallation(host))
	case bmov1alpha1.StateProvisioning, bmov1alpha1.StateProvisioned:
		clean = host.Spec.AutomatedCleaningMode != bmov1alpha1.CleaningModeDisabled && networkOfHost(host) == ""
	}
	if delete(host.Annotations, v1alpha1.CleaningAnnotationKey); clean {
		awaitCleaning(host)
	}
}

// awaitCleaning is becomesClean for a host whose image is off. Others may change, one edit after the other, what does not matter for its
// cleaning.
func awaitCleaning(host *bmov1alpha1.BareMetalHost) {
	becomesClean(host)
	host.Annotations[v1alpha1.CleaningAnnotationKey] += awaited + cleaningOf(host)
}

// awaited is before what matters for the cleaning of a host, in its annotation.
const awaited = "/"

// cleaningOf is a digest of what decides whether Metal3 cleans a host that has no image, and which server that is.
func cleaningOf(host *bmov1alpha1.BareMetalHost) string {
	return digestOf(fmt.Sprint(host.Spec.AutomatedCleaningMode, host.Spec.ExternallyProvisioned, host.Spec.CustomDeploy != nil,
		host.Spec.BMC.Address, host.Spec.BootMACAddress))
}

// follows returns whether nothing that matters for the cleaning of a host has changed since awaitCleaning. Two edits since then are too
// many: the first may have disabled the cleaning, and the second may have enabled it again.
func follows(host *bmov1alpha1.BareMetalHost) bool {
	noted, cleaning, is := strings.Cut(host.Annotations[v1alpha1.CleaningAnnotationKey], awaited)
	generation, err := strconv.ParseInt(noted, 10, 64)
	edits := host.Generation - generation
	return is && err == nil && 0 <= edits && edits <= 1 && host.Spec.Image == nil && cleaning == cleaningOf(host)
}

// followEdit notes that a host which is being cleaned has been edited, if that does not matter. The next edit is compared with this one.
func (c hostClaims) followEdit(ctx context.Context, host *bmov1alpha1.BareMetalHost) (*bmov1alpha1.BareMetalHost, error) {
	note := strconv.FormatInt(host.Generation, 10) + awaited + cleaningOf(host)
	if !follows(host) || host.Annotations[v1alpha1.CleaningAnnotationKey] == note {
		return host, nil
	}
	return c.write(ctx, host, "noting that others have edited", func(host *bmov1alpha1.BareMetalHost) {
		annotate(host, v1alpha1.CleaningAnnotationKey, note)
	})
}

// becomesClean is part of a write that changes the spec of a host. Every such change is one generation, so that another one shows.
func becomesClean(host *bmov1alpha1.BareMetalHost) {
	annotate(host, v1alpha1.CleaningAnnotationKey, strconv.FormatInt(host.Generation+1, 10))
}

// isUnchanged returns whether the spec of a host is as becomesClean has left it. The cleaning mode is part of it.
func isUnchanged(host *bmov1alpha1.BareMetalHost) bool {
	generation, _, _ := strings.Cut(host.Annotations[v1alpha1.CleaningAnnotationKey], " ")
	return generation == strconv.FormatInt(host.Generation, 10)
}

// lastInstallation is when Metal3 has last begun to install a host, to be compared with itself.
func lastInstallation(host *bmov1alpha1.BareMetalHost) string {
	return host.Status.OperationHistory.Provision.Start.UTC().Format(time.RFC3339)
}

// isCleaned returns whether nothing of its tenant is left on a host, which is read past the cache and available again: cleaning was
// on all the time since the image was taken off, and what was installed last has been deprovisioned.
func isCleaned(host *bmov1alpha1.BareMetalHost) bool {
	history := host.Status.OperationHistory
	return follows(host) && (history.Provision.Start.IsZero() ||
		!history.Deprovision.End.IsZero() && !history.Deprovision.Start.Before(&history.Provision.Start))
}
