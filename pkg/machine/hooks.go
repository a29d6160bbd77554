// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// hookPrefixes are those of the hooks that hold a Machine.
var hookPrefixes = []string{v1alpha1.PreProvisionHookPrefix, v1alpha1.PreReturnHookPrefix}

// missingHooks are the hooks of the network that a tenant's servers are moved into and that the Machine does not have, or
// has for another network: while it waited, the tenant may have been given another. They are set before a server is
// chosen, so that no controller can be too slow to hold it, and stay as they are once one has been.
func missingHooks(machine *v1alpha1.Machine, tenant *v1alpha1.TenantCluster) map[string]string {
	if tenant == nil || tenant.Spec.Network == nil {
		return nil
	}
	missing := map[string]string{}
	for _, prefix := range hookPrefixes {
		key := v1alpha1.HookKey(prefix, v1alpha1.NetworkHook)
		if network := tenant.Spec.Network.String(); machine.Annotations[key] != network {
			missing[key] = network
		}
	}
	return missing
}

// setHooks writes hooks on the Machine.
func (r *Reconciler) setHooks(ctx context.Context, now *run, hooks map[string]string) (result, error) {
	return result{again: true}, r.patch(ctx, now, "setting the network hooks of", func(machine *v1alpha1.Machine) {
		if machine.Annotations == nil {
			machine.Annotations = map[string]string{}
		}
		for key, network := range hooks {
			machine.Annotations[key] = network
		}
	})
}

// waitForHooks holds a Machine that has its server and may not use it yet.
func (r *Reconciler) waitForHooks(_ context.Context, now *run) (result, error) {
	return result{facts: &facts{
		phase: v1alpha1.MachineClaimed, reason: v1alpha1.ReasonWaitingForHook, host: now.host,
		message: holding(now.machine.Annotations, v1alpha1.PreProvisionHookPrefix) + "nothing is installed on server " + now.host.Namespace + "/" + now.host.Name + " before that",
	}}, nil
}

// holding says which hooks hold a Machine or a host, and what their owners have to say.
func holding(annotations map[string]string, prefix string) string {
	var parts []string
	for _, name := range v1alpha1.Hooks(annotations, prefix) {
		part := "the owner of hook " + v1alpha1.HookKey(prefix, name) + " has not taken it away yet"
		if message := annotations[v1alpha1.HookKey(v1alpha1.HookMessagePrefix, name)]; message != "" {
			part += fmt.Sprintf(" (%s)", message)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ") + "; "
}

// copyHooks puts the hooks that hold a server before it goes back to the pool on the server itself: if the Machine is
// deleted by force, the server must still not reach the next tenant from within the network of the last.
func copyHooks(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) {
	for _, name := range v1alpha1.Hooks(machine.Annotations, v1alpha1.PreReturnHookPrefix) {
		key := v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, name)
		annotate(host, key, machine.Annotations[key])
	}
}

func annotate(object client.Object, key, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	object.SetAnnotations(annotations)
}

// patch writes what change does to the Machine's metadata. It is a compare-and-swap on the Machine's version.
func (r *Reconciler) patch(ctx context.Context, now *run, doing string, change func(*v1alpha1.Machine)) error {
	before := now.machine.DeepCopy()
	change(now.machine)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, now.machine, patch); err != nil {
		return fmt.Errorf("%s Machine %s, %w", doing, client.ObjectKeyFromObject(before), err)
	}
	r.echoes.expect(now.machine, r.clock.Now())
	return nil
}
