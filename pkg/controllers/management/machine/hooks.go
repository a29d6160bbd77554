// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// networkFor returns the network that a tenant's servers are moved into, or "" if they stay where they are.
func networkFor(tenant *v1alpha1.TenantCluster) string {
	if tenant == nil || tenant.Spec.Network == nil {
		return ""
	}
	return tenant.Spec.Network.String()
}

// setNetworkHooks makes the copies of our hooks on the Machine match the decision. It replaces what others have written
// there. The write of the choice includes the hooks, so that no controller sees them too late.
func setNetworkHooks(machine *v1alpha1.Machine, network string) {
	for _, prefix := range hosts.HookPrefixes {
		key := v1alpha1.HookKey(prefix, v1alpha1.NetworkHook)
		if network == "" {
			delete(machine.Annotations, key)
		} else {
			metav1.SetMetaDataAnnotation(&machine.ObjectMeta, key, network)
		}
	}
}

// recoverNetwork reads the network from the host if the status lacks it, because the Machine was restored. It is not
// known whether an empty server is in that network, so recoverNetwork has it moved once more.
func (r *Reconciler) recoverNetwork(ctx context.Context, v *visit) (err error) {
	if v.machine.Status.Network != "" || !hosts.Owns(hosts.OwnerOf(v.machine), v.host) || hosts.NetworkOfHost(v.host) == "" {
		return nil
	}
	if v.host.Spec.Image == nil {
		if v.host, err = r.hosts.Move(ctx, v.host); err != nil {
			return err
		}
	}
	v.changeStatus(func(status *v1alpha1.MachineStatus) { status.Network = hosts.NetworkOfHost(v.host) })
	return nil
}

// waitForHooks waits until all hooks have been removed, before anything is installed. It corrects their copies on the
// Machine for controllers that read them there.
func (r *Reconciler) waitForHooks(ctx context.Context, v *visit) (result, error) {
	names, annotations := v1alpha1.Hooks(v.host.Annotations, v1alpha1.PreProvisionHookPrefix), v.machine.Annotations
	correct := func(machine *v1alpha1.Machine) {
		for _, name := range names {
			key := v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, name)
			metav1.SetMetaDataAnnotation(&machine.ObjectMeta, key, v.host.Annotations[key])
		}
	}
	outcome := v.reports(v1alpha1.MachineClaimed, v1alpha1.ReasonWaitingForHook, "%suntil then, nothing is installed on server %s",
		describeHooks(names, annotations, v1alpha1.PreProvisionHookPrefix), client.ObjectKeyFromObject(v.host))
	return outcome, r.patch(ctx, v, "correcting the hooks of", correct)
}

// describeHooks lists the remaining hooks, with the messages of their owners.
func describeHooks(names []string, messages map[string]string, prefix string) string {
	var parts []string
	for _, name := range names {
		part := "waiting for the owner of hook " + v1alpha1.HookKey(prefix, name) + " to remove it"
		if message := messages[v1alpha1.HookKey(v1alpha1.HookMessagePrefix, name)]; message != "" {
			part += fmt.Sprintf(" (%s)", message)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ") + "; "
}

// reportIgnored publishes events about annotations without effect on a Machine that is about to get a server.
func (r *Reconciler) reportIgnored(machine *v1alpha1.Machine) {
	if text := machine.Annotations[v1alpha1.ClaimUIDAnnotationKey]; text != "" && text != string(machine.ClaimUID()) {
		r.event(machine, corev1.EventTypeWarning, string(EventAnnotationIgnored),
			fmt.Sprintf("annotation %s is %.40q, which is no UID: it is replaced by the Machine's own", v1alpha1.ClaimUIDAnnotationKey, text))
	}
	for _, prefix := range hosts.HookPrefixes {
		for _, name := range v1alpha1.Hooks(machine.Annotations, prefix) {
			if name != v1alpha1.NetworkHook && !r.hosts.Hooks.Has(name) {
				r.event(machine, corev1.EventTypeWarning, string(EventAnnotationIgnored),
					fmt.Sprintf("hook %s holds nothing: the manager does not have it in its flag --hooks", v1alpha1.HookKey(prefix, name)))
				return // one event is enough: a tenant may set any number of hooks
			}
		}
	}
}

// patch changes the Machine's metadata, unless the change does nothing. It is a compare-and-swap.
func (r *Reconciler) patch(ctx context.Context, v *visit, doing string, change func(*v1alpha1.Machine)) error {
	after := v.machine.DeepCopy()
	if change(after); equality.Semantic.DeepEqual(after, v.machine) {
		return nil
	}
	if err := r.flush(ctx, v); err != nil { // the answer of the API server replaces the status
		return err
	}
	if err := kube.Patch(ctx, r.client, v.machine, doing, func() { change(v.machine) }); err != nil {
		return err
	}
	r.expectations.Expect(v.machine, r.clock.Now())
	return nil
}
