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
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// done ends what may be assumed for a Machine without a server. Nothing else is left to do: the Machine waits for finalizers of
// others.
func (r *Reconciler) done(_ context.Context, now *run) (result, error) {
	r.forget(now.machine)
	return result{}, nil
}

// release cleans and releases the server and removes the finalizer.
func (r *Reconciler) release(ctx context.Context, now *run) (result, error) {
	owner, outcome := ownerOf(now.machine), "no server was claimed"
	// It must not get a server or an address any more, because cleaning takes long. It still owns its server.
	r.scheduler.assumePool(now.machine, nil)
	reference := now.machine.Status.HostRef
	if reference == nil {
		r.forget(now.machine)
		host, err := r.serverOf(ctx, now.machine)
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
		// The address stays until the server is off and clean: it would still use it.
		if err := r.addresses.Release(ctx, owner.machineReference()); err != nil {
			return result{}, err
		}
	}
	before := now.machine.DeepCopy()
	if err := kube.Patch(ctx, r.client, now.machine, "removing the finalizer from", func() {
		controllerutil.RemoveFinalizer(now.machine, v1alpha1.MachineFinalizer)
	}); client.IgnoreNotFound(err) != nil {
		return result{}, err
	}
	r.event(before, corev1.EventTypeNormal, string(EventReleased), outcome)
	return result{}, nil
}

// releaseHost releases a host that the Machine owns, which only a live read can tell. It returns the facts while that is
// under way, and a message once it is done.
func (r *Reconciler) releaseHost(
	ctx context.Context, machine *v1alpha1.Machine, key types.NamespacedName,
) (unclean *facts, outcome string, err error) {
	o, host := ownerOf(machine), &bmov1alpha1.BareMetalHost{}
	found, err := kube.Find(ctx, r.live, key, host)
	switch {
	case err != nil:
		return nil, "", err
	case found && ownsHost(o, host):
		if host, err = r.quarantineUnhealthy(ctx, machine, host); err != nil {
			return nil, "", err
		}
		outcome = "is available again"
		if _, soiled := host.Annotations[v1alpha1.LastTenantAnnotationKey]; soiled && !isCleaned(host) {
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
	claims hostClaims
}

// cleanAndRelease takes the release of an owner's host a step further. It returns the facts while that is under way,
// and nil once the host is released. The Secret is deleted before the claim: afterwards it would not be found, and the
// next owner of the host must not find it. annotations are those of the Machine, if it exists: hooks, and messages of their owners.
func (r servers) cleanAndRelease(ctx context.Context, o owner, host *bmov1alpha1.BareMetalHost, annotations map[string]string,
	withUserData bool) (*facts, error) {
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
	if hooks := r.claims.returnHooks(host, annotations); len(hooks) > 0 {
		return &facts{
			phase: v1alpha1.MachineReleasing, reason: v1alpha1.ReasonWaitingForHook, host: host,
			message: describeHooks(hooks, annotations, v1alpha1.PreReturnHookPrefix) + "until then, server " + host.Namespace + "/" + host.Name +
				" cannot be claimed",
		}, nil
	}
	return nil, client.IgnoreNotFound(r.claims.Release(ctx, host))
}
