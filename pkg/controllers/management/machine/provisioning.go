// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

func (r *Reconciler) watchProvisioning(_ context.Context, now *run) (result, error) {
	state := cmp.Or(string(now.host.Status.Provisioning.State), "not registered with Metal3")
	message := fmt.Sprintf("Metal3 is installing %s on server %s/%s, which is %s", properties.PublicURL(now.host.Spec.Image.URL),
		now.host.Namespace, now.host.Name, state)
	return result{facts: &facts{
		phase: v1alpha1.MachineProvisioning, reason: v1alpha1.ReasonProvisioning, host: now.host,
		message: cmp.Or(ignored(now.host), message),
	}}, nil
}

func (r *Reconciler) watchProvisioned(_ context.Context, now *run) (result, error) {
	f := &facts{
		phase: v1alpha1.MachineProvisioned, reason: v1alpha1.ReasonStandAlone, host: now.host,
		message: fmt.Sprintf("server %s/%s is provisioned; it joins no tenant", now.host.Namespace, now.host.Name),
	}
	if tenant := now.machine.Spec.TenantClusterRef; tenant != nil {
		f.reason = v1alpha1.ReasonWaitingForNode
		f.message = fmt.Sprintf("server %s/%s boots; its node has not registered with tenant %s yet", now.host.Namespace, now.host.Name,
			tenant.Name)
	}
	return result{facts: poweredOff(now, f)}, nil
}

// watchJoined blanks the user data before the status says Joined, so that a crash in between repeats it, and ends the quarantine
// of a server whose Machine was given up too early.
func (r *Reconciler) watchJoined(ctx context.Context, now *run) (result, error) {
	if quarantine, ours := inventory.QuarantineOf(now.host); ours && quarantine.Machine == client.ObjectKeyFromObject(now.machine) &&
		meta.IsStatusConditionTrue(now.machine.Status.Conditions, v1alpha1.ConditionGivenUp) {
		host, err := r.claims.EndQuarantine(ctx, now.host)
		if err != nil {
			return result{}, err
		}
		now.host = host
	}
	if !meta.IsStatusConditionTrue(now.machine.Status.Conditions, v1alpha1.ConditionJoined) {
		if err := r.blankUserData(ctx, ownerOf(now.machine), now.host.Namespace); err != nil {
			return result{}, err
		}
	}
	return result{facts: poweredOff(now, &facts{
		phase: v1alpha1.MachineJoined, reason: v1alpha1.ReasonJoined, host: now.host,
		message: fmt.Sprintf("server %s/%s is node %s", now.host.Namespace, now.host.Name,
			now.machine.ReportedNode().Name),
	})}, nil
}

// poweredOff replaces the facts of a server that is to be off.
func poweredOff(now *run, f *facts) *facts {
	switch {
	case wantsPower(now.machine):
		return f
	case now.host.Spec.Online:
		f.message += "; spec.power.state is Off, but its spec.disablePowerOff keeps it on"
		return f
	}
	f.reason = v1alpha1.ReasonPoweredOff
	f.message = fmt.Sprintf("server %s/%s is switched off, as spec.power.state says", now.host.Namespace, now.host.Name)
	if now.host.Status.PoweredOn {
		f.message = fmt.Sprintf("server %s/%s is being switched off, as spec.power.state says", now.host.Namespace, now.host.Name)
	}
	return f
}

// watchInError keeps a server in error with its Machine, so that it can be examined. The Machine recovers when the server
// does.
func (r *Reconciler) watchInError(_ context.Context, now *run) (result, error) {
	f := &facts{
		phase: v1alpha1.MachineFailed, reason: v1alpha1.ReasonHostError, host: now.host,
		message: hostError(now.host) + ". Metal3 keeps retrying; if that does not help, repair the server, or delete the Machine to release it",
	}
	if !now.host.DeletionTimestamp.IsZero() {
		f.reason = v1alpha1.ReasonHostDeleting
		f.message = strings.TrimSuffix(fmt.Sprintf("server %s/%s is lost: its BareMetalHost is being deleted. Delete the Machine; %s",
			now.host.Namespace, now.host.Name, hostError(now.host)), "; ")
	}
	return result{facts: f}, nil
}

// watchHostLost reports that the Machine has lost its server. It does not choose another: the workload is lost, and the
// owner of the Machine must see that.
func (r *Reconciler) watchHostLost(_ context.Context, now *run) (result, error) {
	reference := now.machine.Status.HostRef
	name, why := reference.Namespace+"/"+reference.Name, ""
	switch {
	case now.host == nil:
		why = "its BareMetalHost has been deleted"
	case now.host.UID != reference.UID:
		why = "its BareMetalHost has been deleted and created again"
	case !ownsHost(ownerOf(now.machine), now.host):
		why = "its consumer is now " + inventory.Consumer(now.host)
	default:
		why = "its image has been removed from the BareMetalHost"
	}
	return result{facts: &facts{
		phase: v1alpha1.MachineFailed, reason: v1alpha1.ReasonHostLost, host: now.host,
		message: fmt.Sprintf("server %s is lost: %s. Delete the Machine", name, why),
	}}, nil
}
