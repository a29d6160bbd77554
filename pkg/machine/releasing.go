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
)

// done has nothing to do: the Machine waits for finalizers of others.
func (r *Reconciler) done(context.Context, *run) (result, error) { return result{}, nil }

// release gives the server back and lets the Machine go.
func (r *Reconciler) release(ctx context.Context, now *run) (result, error) {
	owner, outcome := ownerOf(now.machine), "no server was claimed"
	// It will not take an address any more, and cleaning takes long.
	r.addressForgotten(r.promises.Forget(owner.NamespacedName))
	reference := now.machine.Status.HostRef
	if reference == nil && now.machine.IsRestored() {
		host, err := r.serverOf(ctx, owner)
		if err != nil {
			return result{}, err
		}
		if host != nil {
			reference = &v1alpha1.HostReference{Namespace: host.Namespace, Name: host.Name, UID: host.UID}
		}
	}
	if reference != nil {
		unclean, what, err := r.releaseHost(ctx, now.machine, hostKey(*reference))
		if err != nil {
			return result{}, err
		}
		if unclean != nil {
			return result{facts: unclean}, nil
		}
		outcome = fmt.Sprintf("server %s %s", hostKey(*reference), what)
		// Not before the server is off and clean: it would still be using the address.
		if err := r.addresses.Release(ctx, owner.machineReference()); err != nil {
			return result{}, err
		}
	}
	before := now.machine.DeepCopy()
	controllerutil.RemoveFinalizer(now.machine, v1alpha1.MachineFinalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, now.machine, patch); client.IgnoreNotFound(err) != nil {
		return result{}, fmt.Errorf("removing the finalizer from Machine %s, %w", owner, err)
	}
	r.event(before, corev1.EventTypeNormal, string(EventReleased), outcome)
	return result{}, nil
}

// releaseHost gives a host back if it is the owner's, which only a live read can tell. It returns what the status has
// to say as long as it is under way, or else what became of the host.
func (r *Reconciler) releaseHost(ctx context.Context, machine *v1alpha1.Machine, key types.NamespacedName) (unclean *facts, outcome string, err error) {
	o, host := ownerOf(machine), &bmov1alpha1.BareMetalHost{}
	err = r.live.Get(ctx, key, host)
	switch {
	case err != nil && !isGone(err):
		return nil, "", fmt.Errorf("reading host %s to release it, %w", key, err)
	case err == nil && ownsHost(o, host):
		if host, err = r.quarantineUnhealthy(ctx, machine, host); err != nil {
			return nil, "", err
		}
		if unclean, err = r.giveBack(ctx, o, host, machine.Annotations, true); err != nil || unclean != nil {
			return unclean, "", err
		}
		outcome = "is back in the pool"
	default:
		outcome = "was not claimed any more"
		if err != nil {
			outcome = "does not exist any more"
		}
		if err := r.deleteUserData(ctx, o, key.Namespace); err != nil {
			return nil, "", err
		}
	}
	r.inventory.Forget(key, machine.UID)
	return nil, outcome, nil
}

// giveBack takes a host of the owner a step further on its way to the pool. It returns what the status has to say as
// long as the host is not there yet, and nil once it is. The Secret goes before the claim does: the next owner of the
// host must not find it, and nobody would look for it afterwards. hooks are the annotations that may hold the host.
func (r *Reconciler) giveBack(ctx context.Context, o owner, host *bmov1alpha1.BareMetalHost, hooks map[string]string, withUserData bool) (*facts, error) {
	var err error
	if !isEmptied(host) {
		if host, err = r.claims.Empty(ctx, host); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
	}
	if why, stuck := unclean(host); why != "" {
		f := &facts{phase: v1alpha1.MachineReleasing, reason: v1alpha1.ReasonDeprovisioning, message: why, host: host}
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
	if len(v1alpha1.Hooks(hooks, v1alpha1.PreReturnHookPrefix)) > 0 {
		return &facts{
			phase: v1alpha1.MachineReleasing, reason: v1alpha1.ReasonWaitingForHook, host: host,
			message: holding(hooks, v1alpha1.PreReturnHookPrefix) + "nobody else can claim server " + host.Namespace + "/" + host.Name + " before that",
		}, nil
	}
	return nil, client.IgnoreNotFound(r.claims.Release(ctx, host))
}
