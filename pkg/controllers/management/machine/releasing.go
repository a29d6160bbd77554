// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// done ends all assumptions for a Machine without a server. Only finalizers of others are left.
func (r *Reconciler) done(_ context.Context, v *visit) (result, error) {
	r.scheduler.forget(client.ObjectKeyFromObject(v.machine))
	return result{}, nil
}

// release cleans and releases the server and removes the finalizer.
func (r *Reconciler) release(ctx context.Context, v *visit) (result, error) {
	owner, outcome := hosts.OwnerOf(v.machine), "no server was claimed"
	// The Machine gets no server or address any more, because cleaning takes long. It still owns its server.
	r.scheduler.assumePool(v.machine, nil)
	reference := v.machine.Status.HostRef
	if reference == nil {
		r.scheduler.forget(client.ObjectKeyFromObject(v.machine))
		host, err := r.serverOf(ctx, v.machine)
		if err != nil {
			return result{}, err
		}
		if host != nil {
			reference = &v1alpha1.HostReference{Namespace: host.Namespace, Name: host.Name, UID: host.UID}
		}
	}
	if reference != nil {
		unclean, what, err := r.releaseHost(ctx, v.machine, hosts.Key(*reference))
		if err != nil {
			return result{}, err
		}
		if unclean != nil {
			return result{observed: unclean}, nil
		}
		outcome = fmt.Sprintf("server %s %s", hosts.Key(*reference), what)
		// The address stays until the server is off and clean: the server would still use it.
		if err := r.addresses.Release(ctx, owner.Reference()); err != nil {
			return result{}, err
		}
	}
	before := v.machine.DeepCopy()
	if err := kube.Patch(ctx, r.client, v.machine, "removing the finalizer from", func() {
		controllerutil.RemoveFinalizer(v.machine, v1alpha1.MachineFinalizer)
	}); client.IgnoreNotFound(err) != nil {
		return result{}, err
	}
	r.event(before, corev1.EventTypeNormal, string(EventReleased), outcome)
	return result{}, nil
}

// releaseHost releases the host of a Machine, after a live read has shown that the Machine owns it. It returns the
// observation while the release is under way, and a message once it is done.
func (r *Reconciler) releaseHost(
	ctx context.Context, machine *v1alpha1.Machine, key types.NamespacedName,
) (unclean *observation, outcome string, err error) {
	o, host := hosts.OwnerOf(machine), &bmov1alpha1.BareMetalHost{}
	found, err := kube.Find(ctx, r.live, key, host)
	switch {
	case err != nil:
		return nil, "", err
	case found && hosts.Owns(o, host):
		if host, err = r.quarantineUnhealthy(ctx, machine, host); err != nil {
			return nil, "", err
		}
		outcome = "is available again"
		if _, soiled := host.Annotations[v1alpha1.LastTenantAnnotationKey]; soiled && !hosts.IsCleaned(host) {
			outcome = "is released, and only Machines of namespace " + o.Namespace + " get it again: Metal3 was not seen to clean it"
		}
		if unclean, err = r.cleanAndRelease(ctx, o, host, machine.Annotations, true); err != nil || unclean != nil {
			return unclean, "", err
		}
	default:
		outcome = "was no longer claimed by the Machine"
		if !found {
			outcome = "no longer exists"
		}
		if err := r.deleteUserData(ctx, o, key.Namespace); err != nil {
			return nil, "", err
		}
	}
	r.inventory.Forget(key, machine.UID)
	return nil, outcome, nil
}

// servers writes on servers, and on the Secrets that they boot with.
type servers struct {
	client client.Client
	live   client.Reader
	hosts  hosts.Writer
}

// cleanAndRelease takes the release of an owner's host a step further. It returns the observation while the release is
// under way, and nil once the host is released. It deletes the Secret before the claim: without the claim nobody would
// find the Secret, and the next owner of the host must not find it. annotations are the Machine's: hooks and messages.
func (r servers) cleanAndRelease(ctx context.Context, o hosts.Owner, host *bmov1alpha1.BareMetalHost, annotations map[string]string,
	withUserData bool) (*observation, error) {
	var err error
	if !hosts.IsEmptied(host) {
		if leavesFirst(host) {
			f, err := r.leaveNetwork(ctx, host, annotations)
			return f, client.IgnoreNotFound(err)
		}
		if host, err = r.hosts.Empty(ctx, host); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
	}
	if host, err = r.hosts.FollowEdit(ctx, host); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if why, stuck := hosts.WhyUnclean(host); why != "" {
		f := &observation{phase: v1alpha1.MachineReleasing, reason: v1alpha1.ReasonDeprovisioning, message: why, host: host}
		if stuck {
			f.reason = v1alpha1.ReasonHostError
		}
		return f, nil
	}
	if withUserData {
		if err := r.deleteUserData(ctx, o, host.Namespace); err != nil {
			return nil, err
		}
	}
	if hooks := r.hosts.ReturnHooks(host, annotations); len(hooks) > 0 {
		return heldBy(hooks, annotations, host, "cannot be claimed"), nil
	}
	return nil, client.IgnoreNotFound(r.hosts.Release(ctx, host))
}

// heldBy returns the observation while hooks hold the release of a host.
func heldBy(hooks []string, annotations map[string]string, host *bmov1alpha1.BareMetalHost, until string) *observation {
	return &observation{
		phase: v1alpha1.MachineReleasing, reason: v1alpha1.ReasonWaitingForHook, host: host,
		message: fmt.Sprintf("%suntil then, server %s/%s %s", describeHooks(hooks, annotations, v1alpha1.PreReturnHookPrefix), host.Namespace,
			host.Name, until),
	}
}

// isInstalling reports whether Metal3 is installing a host. Metal3 does not switch the host off before that has ended.
// After an error, Metal3 deprovisions the host by itself.
func isInstalling(host *bmov1alpha1.BareMetalHost) bool {
	return host.Status.Provisioning.State == bmov1alpha1.StateProvisioning && hosts.ErrorOf(host) == ""
}

// leavesFirst reports whether a host leaves its tenant's network before its image is removed, because the removal
// erases its disks. Any other host in a network is cleaned there, and does not count as clean (expectCleaning): it
// cannot be switched off, or Metal3 cleans it already because its installation has failed.
func leavesFirst(host *bmov1alpha1.BareMetalHost) bool {
	return hosts.NetworkOfHost(host) != "" && host.Spec.Image != nil && !host.Spec.DisablePowerOff &&
		(isInstalling(host) || host.Status.Provisioning.State == bmov1alpha1.StateProvisioned)
}

// leaveNetwork switches a host off, with its image on, and then waits until it has been moved. It switches the host off
// only after Metal3 has seen it on: Metal3's report of the power may be older than the installation.
func (r servers) leaveNetwork(ctx context.Context, host *bmov1alpha1.BareMetalHost, annotations map[string]string) (*observation, error) {
	var err error
	idle, seen := hosts.WhyIgnored(host), host.Status.PoweredOn || !host.Spec.Online
	if idle == "" && seen && !isInstalling(host) && (host.Spec.Online || !inventory.IsReleasing(host)) {
		if host, err = r.hosts.SwitchOff(ctx, host); err != nil {
			return nil, err
		}
	}
	f := &observation{phase: v1alpha1.MachineReleasing, reason: v1alpha1.ReasonDeprovisioning, host: host}
	name := host.Namespace + "/" + host.Name
	switch message := hosts.ErrorOf(host); {
	case idle != "":
		f.reason, f.message = v1alpha1.ReasonHostError, idle
	case inventory.IsOff(host):
		return heldBy([]string{v1alpha1.NetworkHook}, annotations, host, "stays switched off, and is not cleaned"), nil
	case message != "":
		f.reason = v1alpha1.ReasonHostError
		f.message = message + ". The server stays claimed, in its tenant's network, until Metal3 has switched it off"
	case isInstalling(host):
		f.message = fmt.Sprintf("server %s is %s: it is switched off, moved and cleaned once that has ended", name, hosts.StateSince(host))
	default:
		f.message = fmt.Sprintf("server %s is being switched off, to leave its tenant's network before it is cleaned", name)
	}
	return f, nil
}
