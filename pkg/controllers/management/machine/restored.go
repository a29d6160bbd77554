// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
)

// recoverServer finds the server that a Machine had before it was restored from a backup, and writes it into the status as
// if it had just been chosen. The next state finds the claim on it and continues. A Machine that had none gets one as any
// other does.
func (r *Reconciler) recoverServer(ctx context.Context, now *run) (result, error) {
	wait := func(message string) (result, error) {
		return result{facts: &facts{phase: v1alpha1.MachinePending, reason: v1alpha1.ReasonClaiming, message: message},
			hints: []scheduling.Event{objectChanged}}, nil
	}
	if !r.inventory.Synced() {
		return result{hints: []scheduling.Event{objectChanged}}, nil
	}
	machine := now.machine
	host, err := r.serverOf(ctx, ownerOf(machine))
	if err != nil {
		return result{}, err
	}
	if host == nil {
		return r.choose(ctx, now)
	}
	name, nodeType := host.Namespace+"/"+host.Name, host.Annotations[v1alpha1.NodeTypeAnnotationKey]
	choice, known := r.inventory.ChoiceOf(host, nodeType)
	if !known {
		return wait(fmt.Sprintf("server %s was claimed as NodeType %q before this Machine was restored, and there is none of that name yet", name,
			nodeType))
	}
	f := &facts{
		phase: v1alpha1.MachineClaiming, reason: v1alpha1.ReasonClaiming, choice: &choice,
		message: fmt.Sprintf("server %s is the one that the Machine had before it was restored", name),
	}
	if machine.Status.PropertiesHash == "" && host.Spec.Image != nil {
		// What was installed is unknown. It is taken to be what would be installed now.
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

// serverOf finds the server that the owner has claimed. If the cache has none, it reads live. It reads all hosts, so it is
// only for Machines that were restored without their status.
func (r *Reconciler) serverOf(ctx context.Context, o owner) (*bmov1alpha1.BareMetalHost, error) {
	// The cache has no pages.
	all := &bmov1alpha1.BareMetalHostList{}
	if err := r.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("looking for a server of Machine %s, %w", o, err)
	}
	if found := ownedAmong(all.Items, o); found != nil {
		return found, nil
	}
	return findServer(ctx, r.live, o)
}

// findServer finds the server that the owner has claimed, by live reads.
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

// ownedAmong is the host that the owner has claimed, nil if there is none. A crash can leave two; then it is the one with an
// image.
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
