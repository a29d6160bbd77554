// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
)

// recall finds the server that a Machine had before it was restored from a backup, and writes it into the status as if it
// had just been chosen: what comes after finds its own claim on it, and goes on from there. A Machine that had none is given
// one like any other.
func (r *Reconciler) recall(ctx context.Context, now *run) (result, error) {
	wait := func(message string) (result, error) {
		return result{facts: &facts{phase: v1alpha1.MachinePending, reason: v1alpha1.ReasonClaiming, message: message}, wants: wish{need: correction}}, nil
	}
	if !r.inventory.Synced() {
		return result{wants: wish{need: correction}}, nil
	}
	machine := now.machine
	host, err := r.serverOf(ctx, ownerOf(machine))
	if err != nil {
		return result{}, err
	}
	if host == nil {
		return r.choose(ctx, now)
	}
	name, nodeType := host.Namespace+"/"+host.Name, host.Annotations[hosts.NodeTypeAnnotationKey]
	choice, known := r.inventory.Recall(host, nodeType)
	if !known {
		return wait(fmt.Sprintf("server %s was claimed as NodeType %q before this Machine was restored, and there is none of that name yet", name, nodeType))
	}
	f := &facts{
		phase: v1alpha1.MachineClaiming, reason: v1alpha1.ReasonClaiming, choice: &choice,
		message: fmt.Sprintf("server %s is the one that the Machine had before it was restored", name),
	}
	if machine.Status.PropertiesHash == "" && host.Spec.Image != nil {
		// What was installed is not known any more. From now on, it counts as what would be.
		planned, err := r.resolve(ctx, machine, nodeType, host)
		switch problem, wrong := whatIsInvalid(err); {
		case wrong:
			return wait(fmt.Sprintf("server %s is the one that the Machine had before it was restored: %s", name, problem))
		case err != nil:
			return result{}, err
		}
		f.properties, f.installed = planned.effective(), planned.installed()
	}
	return result{again: true, facts: f}, nil
}

// serverOf finds the server that the owner has claimed, past the cache before it says that there is none. It looks at all
// hosts, which is why it is for Machines that were restored without their status, and for nothing else.
func (r *Reconciler) serverOf(ctx context.Context, o owner) (*bmov1alpha1.BareMetalHost, error) {
	// The cache knows no pages.
	all := &bmov1alpha1.BareMetalHostList{}
	if err := r.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("looking for a server of Machine %s, %w", o, err)
	}
	if found := ownedAmong(all.Items, o); found != nil {
		return found, nil
	}
	return findServer(ctx, r.live, o)
}

// findServer looks for the server that the owner has claimed, past every cache.
func findServer(ctx context.Context, live client.Reader, o owner) (found *bmov1alpha1.BareMetalHost, err error) {
	page := &bmov1alpha1.BareMetalHostList{}
	for {
		if err := live.List(ctx, page, client.Limit(hostsPerPage), client.Continue(page.Continue)); err != nil {
			return nil, fmt.Errorf("looking for a server of Machine %s, %w", o, err)
		}
		if host := ownedAmong(page.Items, o); host != nil && (found == nil || found.Spec.Image == nil) {
			found = host
		}
		if page.Continue == "" {
			return found, nil
		}
	}
}

// ownedAmong is the host that the owner has claimed, nil if there is none. Of two, which a crash can leave behind, it is the
// one that was told to install something.
func ownedAmong(list []bmov1alpha1.BareMetalHost, o owner) (found *bmov1alpha1.BareMetalHost) {
	for i := range list {
		if host := &list[i]; ownsHost(o, host) && (found == nil || found.Spec.Image == nil) {
			found = host
		}
	}
	if found == nil {
		return nil
	}
	return found.DeepCopy()
}
