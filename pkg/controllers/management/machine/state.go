// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// state is where a Machine is in its life.
type state string

const (
	// gone: the Machine is being deleted, and the manager has nothing left to do.
	gone state = "Gone"
	// unprotected: nothing keeps the Machine from vanishing with the server that it has, or had before it was restored.
	unprotected state = "Unprotected"
	// restored: the Machine comes from a backup, and names no server or a wrong one.
	restored state = "Restored"
	// interrupted: a server has been chosen, but a crash or a conflict came before the status named it.
	interrupted state = "Interrupted"
	// pending: no server has been chosen.
	pending state = "Pending"
	// claiming: a server has been chosen, but it is not known yet whether it is the Machine's.
	claiming state = "Claiming"
	// waitingForHooks: the Machine has the server, but nothing may be installed before hooks have been removed.
	waitingForHooks state = "WaitingForHooks"
	// claimed: the Machine has the server, which has no image.
	claimed state = "Claimed"
	// provisioning: the host has the image and user data.
	provisioning state = "Provisioning"
	// switching: Metal3 has installed the server, and its power is to be changed.
	switching state = "Switching"
	// provisioned: Metal3 has installed the server.
	provisioned state = "Provisioned"
	// joined: the node has registered with the tenant.
	joined state = "Joined"
	// errored: Metal3 reports an error for the server, or its BareMetalHost is being deleted.
	errored state = "Errored"
	// hostLost: the Machine has lost its server.
	hostLost state = "HostLost"
	// gaveUp: the Machine was given up, and waits for its deletion.
	gaveUp state = "GaveUp"
	// releasing: the Machine is being deleted and may have a server to release.
	releasing state = "Releasing"
)

// stateOf returns the state of a Machine from the API objects only. host is the one in status.hostRef, or nil.
func stateOf(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) state {
	switch protected := controllerutil.ContainsFinalizer(machine, v1alpha1.MachineFinalizer); {
	case !machine.DeletionTimestamp.IsZero() && !protected:
		return gone
	case !machine.DeletionTimestamp.IsZero():
		return releasing
	case !protected && (machine.Status.HostRef != nil || machine.IsRestored()):
		return unprotected
	case machine.IsRestored() && (machine.Status.HostRef == nil || machine.Status.NodeTypeRef == nil ||
		hosts.Owns(hosts.OwnerOf(machine), host) && host.UID != machine.Status.HostRef.UID):
		return restored
	case machine.Status.HostRef == nil && machine.HasHost():
		return interrupted
	case machine.Status.HostRef == nil:
		return pending
	case machine.Status.ProviderID == "":
		return claiming
	case meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionGivenUp) && !cameLate(machine, host):
		return gaveUp
	case !hosts.Owns(hosts.OwnerOf(machine), host) || host.UID != machine.Status.HostRef.UID || inventory.IsReleasing(host):
		return hostLost
	case hosts.ErrorOf(host) != "", !host.DeletionTimestamp.IsZero():
		return errored
	case host.Spec.Image == nil && meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionProvisioned):
		// Installing it again would make a second machine of the same name, with a join token that is long used up.
		return hostLost
	case host.Spec.Image == nil && len(v1alpha1.Hooks(host.Annotations, v1alpha1.PreProvisionHookPrefix)) > 0:
		return waitingForHooks
	case host.Spec.Image == nil:
		return claimed
	case !hosts.IsProvisioned(host):
		return provisioning
	case needsPowerChange(machine, host):
		return switching
	case machine.Spec.TenantClusterRef != nil && machine.ReportedNode().Name != "":
		return joined
	}
	return provisioned
}

// cameLate reports whether a node has registered although its Machine was given up for lack of progress: the provider
// was down and could not report it in time.
func cameLate(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) bool {
	return condition(machine, v1alpha1.ConditionGivenUp).Reason == v1alpha1.ReasonDeadlineExceeded &&
		machine.ReportedNode().Name != "" && hosts.Owns(hosts.OwnerOf(machine), host) && hosts.IsProvisioned(host)
}
