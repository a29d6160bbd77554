// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
)

// hookPrefixes are those of the hooks that a Machine waits for.
var hookPrefixes = []string{v1alpha1.PreProvisionHookPrefix, v1alpha1.PreReturnHookPrefix}

// missingHooks are the hooks for the tenant's network that the Machine lacks, or has for another network: the network of
// the tenant may have changed while the Machine waited. They are written with the choice of a server, before it is claimed, so
// that no controller can be too late, and do not change afterwards.
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

// setHooks sets hooks on the Machine in memory.
func setHooks(machine *v1alpha1.Machine, hooks map[string]string) {
	for key, network := range hooks {
		annotate(machine, key, network)
	}
}

// waitForHooks waits until all hooks have been removed before anything is installed.
func (r *Reconciler) waitForHooks(_ context.Context, now *run) (result, error) {
	return result{facts: &facts{
		phase: v1alpha1.MachineClaimed, reason: v1alpha1.ReasonWaitingForHook, host: now.host,
		message: describeHooks(now.machine.Annotations, v1alpha1.PreProvisionHookPrefix) +
			"until then, nothing is installed on server " + now.host.Namespace + "/" + now.host.Name,
	}}, nil
}

// describeHooks lists the hooks that are left, with the messages of their owners.
func describeHooks(annotations map[string]string, prefix string) string {
	var parts []string
	for _, name := range v1alpha1.Hooks(annotations, prefix) {
		part := "waiting for the owner of hook " + v1alpha1.HookKey(prefix, name) + " to remove it"
		if message := annotations[v1alpha1.HookKey(v1alpha1.HookMessagePrefix, name)]; message != "" {
			part += fmt.Sprintf(" (%s)", message)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ") + "; "
}

// copyHooks copies the hooks for the release to the host. Without them, a server whose Machine is deleted by force would
// reach the next tenant while it is still in the network of the last.
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

// patch changes the Machine's metadata, if there is anything to change. It is a compare-and-swap on the resource version.
func (r *Reconciler) patch(ctx context.Context, now *run, doing string, change func(*v1alpha1.Machine)) error {
	after := now.machine.DeepCopy()
	if change(after); equality.Semantic.DeepEqual(after.ObjectMeta, now.machine.ObjectMeta) {
		return nil
	}
	if err := controllers.Patch(ctx, r.client, now.machine, doing, func() { change(now.machine) }); err != nil {
		return err
	}
	r.expectations.expect(now.machine, r.clock.Now())
	return nil
}
