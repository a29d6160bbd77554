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

func (r *Reconciler) watchProvisioning(_ context.Context, now *run) (result, error) {
	state := cmp.Or(inventory.Word(now.host.Status.Provisioning.State), "not registered with Metal3")
	message := fmt.Sprintf("Metal3 is installing %s on server %s, which is %s", properties.PublicURL(now.host.Spec.Image.URL),
		client.ObjectKeyFromObject(now.host), state)
	return now.reports(v1alpha1.MachineProvisioning, v1alpha1.ReasonProvisioning, "%s", cmp.Or(hosts.WhyIgnored(now.host), message)), nil
}

func (r *Reconciler) watchProvisioned(_ context.Context, now *run) (result, error) {
	server := client.ObjectKeyFromObject(now.host)
	if tenant := now.machine.Spec.TenantClusterRef; tenant != nil {
		return poweredOff(now, now.reports(v1alpha1.MachineProvisioned, v1alpha1.ReasonWaitingForNode,
			"server %s boots; its node has not registered with tenant %s yet", server, tenant.Name)), nil
	}
	return poweredOff(now, now.reports(v1alpha1.MachineProvisioned, v1alpha1.ReasonStandAlone,
		"server %s is provisioned; it joins no tenant", server)), nil
}

// watchJoined blanks the user data before the status becomes Joined, so that a crash in between repeats it. It ends the
// quarantine if the Machine was given up too early, and the fault if the node has run for provenAfter.
func (r *Reconciler) watchJoined(ctx context.Context, now *run) (result, error) {
	if quarantine, ours := inventory.QuarantineOf(now.host); ours && quarantine.Machine == client.ObjectKeyFromObject(now.machine) &&
		meta.IsStatusConditionTrue(now.machine.Status.Conditions, v1alpha1.ConditionGivenUp) {
		host, err := r.hosts.EndQuarantine(ctx, now.host)
		if err != nil {
			return result{}, err
		}
		now.host = host
	}
	if !meta.IsStatusConditionTrue(now.machine.Status.Conditions, v1alpha1.ConditionJoined) {
		if err := r.blankUserData(ctx, hosts.OwnerOf(now.machine), now.host.Namespace); err != nil {
			return result{}, err
		}
	}
	joined := condition(now.machine, v1alpha1.ConditionJoined)
	if _, faulty := now.host.Annotations[v1alpha1.FaultAnnotationKey]; faulty && joined.Status == metav1.ConditionTrue &&
		now.machine.ReportedNode().Unhealthy == nil && r.clock.Since(joined.LastTransitionTime.Time) >= provenAfter {
		host, err := r.hosts.EndFault(ctx, now.host)
		if err != nil {
			return result{}, err
		}
		now.host = host
	}
	return poweredOff(now, now.reports(v1alpha1.MachineJoined, v1alpha1.ReasonJoined, "server %s is node %s",
		client.ObjectKeyFromObject(now.host), now.machine.ReportedNode().Name)), nil
}

// poweredOff changes the report of a server that is to be off.
func poweredOff(now *run, outcome result) result {
	verb := "is"
	switch {
	case wantsPower(now.machine):
		return outcome
	case now.host.Spec.DisablePowerOff:
		outcome.facts.message += "; spec.power.state is Off, but its spec.disablePowerOff keeps it on"
		return outcome
	case now.host.Status.PoweredOn || now.host.Spec.Online:
		verb = "is being"
	}
	return now.reports(outcome.facts.phase, v1alpha1.ReasonPoweredOff, "server %s %s switched off, as spec.power.state says",
		client.ObjectKeyFromObject(now.host), verb)
}

// watchInError keeps a server in error with its Machine, for examination. The Machine recovers when the server does.
func (r *Reconciler) watchInError(_ context.Context, now *run) (result, error) {
	if !now.host.DeletionTimestamp.IsZero() {
		message := fmt.Sprintf("server %s is lost: its BareMetalHost is being deleted. Delete the Machine; %s",
			client.ObjectKeyFromObject(now.host), hosts.ErrorOf(now.host))
		return now.reports(v1alpha1.MachineFailed, v1alpha1.ReasonHostDeleting, "%s", strings.TrimSuffix(message, "; ")), nil
	}
	return now.reports(v1alpha1.MachineFailed, v1alpha1.ReasonHostError,
		"%s. Metal3 keeps retrying; if that does not help, repair the server, or delete the Machine to release it", hosts.ErrorOf(now.host)), nil
}

// watchHostLost reports that the Machine has lost its server. It does not choose another: the workload is lost, and the
// owner of the Machine must see that.
func (r *Reconciler) watchHostLost(_ context.Context, now *run) (result, error) {
	reference := now.machine.Status.HostRef
	why := ""
	switch {
	case now.host == nil:
		why = "its BareMetalHost has been deleted"
	case now.host.UID != reference.UID:
		why = "its BareMetalHost has been deleted and created again"
	case !hosts.Owns(hosts.OwnerOf(now.machine), now.host):
		why = "its consumer is now " + inventory.Consumer(now.host)
	case inventory.IsReleasing(now.host):
		why = "it is switched off, and being released"
	default:
		why = "its image has been removed from the BareMetalHost"
	}
	return now.reports(v1alpha1.MachineFailed, v1alpha1.ReasonHostLost, "server %s is lost: %s. Delete the Machine",
		hosts.Key(*reference), why), nil
}
