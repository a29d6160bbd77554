// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

func (r *Reconciler) watchProvisioning(_ context.Context, v *visit) (result, error) {
	state := cmp.Or(inventory.Word(v.host.Status.Provisioning.State), "not registered with Metal3")
	message := fmt.Sprintf("Metal3 is installing %s on server %s, which is %s", properties.PublicURL(v.host.Spec.Image.URL),
		client.ObjectKeyFromObject(v.host), state)
	return v.reports(v1alpha1.MachineProvisioning, v1alpha1.ReasonProvisioning, "%s", cmp.Or(hosts.WhyIgnored(v.host), message)), nil
}

func (r *Reconciler) watchProvisioned(_ context.Context, v *visit) (result, error) {
	server := client.ObjectKeyFromObject(v.host)
	if tenant := v.machine.Spec.TenantClusterRef; tenant != nil {
		return poweredOff(v, v.reports(v1alpha1.MachineProvisioned, v1alpha1.ReasonWaitingForNode,
			"server %s boots; its node has not registered with tenant %s yet", server, tenant.Name)), nil
	}
	return poweredOff(v, v.reports(v1alpha1.MachineProvisioned, v1alpha1.ReasonStandAlone,
		"server %s is provisioned; it joins no tenant", server)), nil
}

// watchJoined blanks the user data before the status becomes Joined, so that a crash in between repeats it. It ends the
// quarantine if the Machine was given up too early, and the fault if the node has run for provenAfter.
func (r *Reconciler) watchJoined(ctx context.Context, v *visit) (result, error) {
	if quarantine, ours := inventory.QuarantineOf(v.host); ours && quarantine.Machine == client.ObjectKeyFromObject(v.machine) &&
		meta.IsStatusConditionTrue(v.machine.Status.Conditions, v1alpha1.ConditionGivenUp) {
		host, err := r.hosts.EndQuarantine(ctx, v.host)
		if err != nil {
			return result{}, err
		}
		v.host = host
	}
	if !meta.IsStatusConditionTrue(v.machine.Status.Conditions, v1alpha1.ConditionJoined) {
		if err := r.blankUserData(ctx, hosts.OwnerOf(v.machine), v.host.Namespace); err != nil {
			return result{}, err
		}
	}
	joined := condition(v.machine, v1alpha1.ConditionJoined)
	if _, faulty := v.host.Annotations[v1alpha1.FaultAnnotationKey]; faulty && joined.Status == metav1.ConditionTrue &&
		v.machine.ReportedNode().Unhealthy == nil && r.clock.Since(joined.LastTransitionTime.Time) >= provenAfter {
		host, err := r.hosts.EndFault(ctx, v.host)
		if err != nil {
			return result{}, err
		}
		v.host = host
	}
	return poweredOff(v, v.reports(v1alpha1.MachineJoined, v1alpha1.ReasonJoined, "server %s is node %s",
		client.ObjectKeyFromObject(v.host), v.machine.ReportedNode().Name)), nil
}

// poweredOff changes the report of a server that is to be off.
func poweredOff(v *visit, outcome result) result {
	verb := "is"
	switch {
	case wantsPower(v.machine):
		return outcome
	case v.host.Spec.DisablePowerOff:
		outcome.observed.message += "; spec.power.state is Off, but its spec.disablePowerOff keeps it on"
		return outcome
	case v.host.Status.PoweredOn || v.host.Spec.Online:
		verb = "is being"
	}
	return v.reports(outcome.observed.phase, v1alpha1.ReasonPoweredOff, "server %s %s switched off, as spec.power.state says",
		client.ObjectKeyFromObject(v.host), verb)
}

// watchInError keeps a server in error with its Machine, for examination. The Machine recovers when the server does.
func (r *Reconciler) watchInError(_ context.Context, v *visit) (result, error) {
	if !v.host.DeletionTimestamp.IsZero() {
		message := fmt.Sprintf("server %s is lost: its BareMetalHost is being deleted. Delete the Machine; %s",
			client.ObjectKeyFromObject(v.host), hosts.ErrorOf(v.host))
		return v.reports(v1alpha1.MachineFailed, v1alpha1.ReasonHostDeleting, "%s", strings.TrimSuffix(message, "; ")), nil
	}
	return v.reports(v1alpha1.MachineFailed, v1alpha1.ReasonHostError,
		"%s. Metal3 keeps retrying; if that does not help, repair the server, or delete the Machine to release it", hosts.ErrorOf(v.host)), nil
}

// watchHostLost reports that the Machine has lost its server. It does not choose another: the workload is lost, and the
// owner of the Machine must see that.
func (r *Reconciler) watchHostLost(_ context.Context, v *visit) (result, error) {
	reference := v.machine.Status.HostRef
	why := ""
	switch {
	case v.host == nil:
		why = "its BareMetalHost has been deleted"
	case v.host.UID != reference.UID:
		why = "its BareMetalHost has been deleted and created again"
	case !hosts.Owns(hosts.OwnerOf(v.machine), v.host):
		why = "its consumer is now " + inventory.Consumer(v.host)
	case inventory.IsReleasing(v.host):
		why = "it is switched off, and being released"
	default:
		why = "its image has been removed from the BareMetalHost"
	}
	return v.reports(v1alpha1.MachineFailed, v1alpha1.ReasonHostLost, "server %s is lost: %s. Delete the Machine",
		hosts.Key(*reference), why), nil
}
