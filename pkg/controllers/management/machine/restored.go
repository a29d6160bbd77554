// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// recoverServer finds the claimed server of a Machine whose status does not name it, because the Machine was restored
// from a backup or a crash came between the claim and the status. The next state finds the claim on the server and
// continues, as if the server had just been chosen. A Machine without a claimed server gets one like any other.
func (r *Reconciler) recoverServer(ctx context.Context, v *visit) (result, error) {
	wait := func(message string) (result, error) {
		return result{observed: &observation{phase: v1alpha1.MachinePending, reason: v1alpha1.ReasonClaiming, message: message},
			hints: []scheduling.Event{objectChanged}}, nil
	}
	if !r.inventory.Synced() {
		return result{hints: []scheduling.Event{objectChanged}}, nil
	}
	machine := v.machine
	host, err := r.serverOf(ctx, machine)
	if err != nil {
		return result{}, err
	}
	if host == nil {
		return r.choose(ctx, v)
	}
	name, nodeType := host.Namespace+"/"+host.Name, host.Annotations[v1alpha1.NodeTypeAnnotationKey]
	choice, known := r.inventory.ChoiceOf(host, nodeType)
	if !known {
		return wait(fmt.Sprintf("server %s is claimed for this Machine as NodeType %q, and there is none of that name yet", name,
			nodeType))
	}
	f := &observation{
		phase: v1alpha1.MachineClaiming, reason: v1alpha1.ReasonClaiming, choice: &choice,
		message: fmt.Sprintf("server %s is claimed for this Machine already", name),
	}
	if host.Spec.Image == nil && hosts.NetworkOfHost(host) == "" {
		// The host was moved back, or the tenant had no network then. It is moved before it is installed.
		tenant, no, err := r.scheduler.tenant(ctx, machine)
		switch {
		case err != nil:
			return result{}, err
		case no != nil:
			return wait(fmt.Sprintf("server %s is claimed for this Machine already: %s", name, no.message))
		}
		f.network = networkFor(tenant)
	}
	if machine.Status.PropertiesHash == "" && host.Spec.Image != nil {
		// Nothing tells what was installed. Assume what would be installed now.
		installed := machine.DeepCopy()
		installed.Status.Network = hosts.NetworkOfHost(host)
		planned, err := plan.Resolve(ctx, r.objects, installed, nodeType)
		if err == nil {
			err = bootstrap.CheckPlan(planned, installed, host)
		}
		switch problem, wrong := plan.Problem(err); {
		case wrong:
			return wait(fmt.Sprintf("server %s is claimed for this Machine already: %s", name, problem))
		case err != nil:
			return result{}, err
		}
		f.properties, f.installed = planned.Set.Entries(), planned.Installed()
	}
	return result{again: true, observed: f}, nil
}

// serverOf finds the claimed server of a Machine whose status names none or a wrong one. It reads the chosen host live:
// a process that has crashed may have claimed it a moment ago. If the Machine was restored, it may name no host or use
// a former UID, and the choice may be unreadable. Then serverOf looks through all hosts, and reads them live if the
// cache has none. It does that once: only this process can claim for the Machine later, and otherwise a tenant could
// cause a read of all hosts with each patch of its Machine.
func (r *Reconciler) serverOf(ctx context.Context, machine *v1alpha1.Machine) (*bmov1alpha1.BareMetalHost, error) {
	o := hosts.OwnerOf(machine)
	chosen, unreadable := machine.ChosenHost()
	if chosen != nil {
		host := &bmov1alpha1.BareMetalHost{}
		if exists, err := kube.Find(ctx, r.live, hosts.Key(chosen.HostReference), host); err != nil {
			return nil, err
		} else if exists && hosts.Owns(o, host) {
			return host, nil
		}
	}
	if unreadable != nil {
		r.event(machine, corev1.EventTypeWarning, string(EventAnnotationIgnored),
			unreadable.Error()+": the manager looks for the host that is claimed for the Machine")
	} else if !machine.IsRestored() {
		return nil, nil
	}
	// The cache has no pages.
	all := &bmov1alpha1.BareMetalHostList{}
	if err := r.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("looking for a server of Machine %s, %w", o, err)
	}
	if found := hosts.OwnedAmong(all.Items, o); found != nil {
		return found, nil
	}
	if uid, searched := r.searched.Load(o.NamespacedName); searched && uid == machine.UID {
		return nil, nil
	}
	found, err := hosts.FindOwned(ctx, r.live, o)
	if err == nil && found == nil {
		r.searched.Store(o.NamespacedName, machine.UID)
	}
	return found, err
}
