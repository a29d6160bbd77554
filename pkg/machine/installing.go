// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/properties"
)

// install waits for everything that the installation needs, writes it down, and then tells Metal3 in a single write.
func (r *Reconciler) install(ctx context.Context, now *run) (result, error) {
	machine, host := now.machine, now.host
	// What is wrong, and the want of an address, is mended in objects that no watch maps to this Machine. User data comes
	// with the Machine itself or with its Secret.
	hold := func(reason, message string, wants wish) (result, error) {
		return result{facts: &facts{phase: v1alpha1.MachineClaimed, reason: reason, message: message, host: host}, wants: wants}, nil
	}
	planned, err := r.resolve(ctx, machine, machine.Status.NodeTypeRef.Name, host)
	if problem, wrong := whatIsInvalid(err); wrong {
		return hold(v1alpha1.ReasonInvalidSpec, problem, wish{need: correction})
	}
	if err != nil {
		return result{}, err
	}
	join, missing, err := r.join(ctx, machine)
	if err != nil {
		return result{}, err
	}
	if missing != "" {
		// After a restart, nobody else knows that it is going to need an address.
		r.keepAddress(machine, planned)
		return hold(v1alpha1.ReasonWaitingForBootstrapData, missing, wish{})
	}
	if err := r.flush(ctx, now); err != nil {
		return result{}, err
	}
	// They may have changed since the choice. What the status says is what is installed.
	installed := planned.installed()
	if effective := planned.effective(); !equality.Semantic.DeepEqual(machine.Status.Properties, effective) || machine.Status.PropertiesHash != hashOf(installed) {
		ready := condition(machine, v1alpha1.ConditionReady)
		return result{again: true, facts: &facts{
			phase: v1alpha1.MachineClaimed, reason: ready.Reason, message: ready.Message, host: host, properties: effective, installed: installed,
		}}, nil
	}
	r.leaveOtherPools(machine, planned)
	address, err := r.address(ctx, machine, planned)
	var exhausted *ipam.ExhaustedError
	if errors.As(err, &exhausted) {
		// The next address is for whoever ties up a server already, also after a restart.
		r.keepAddress(machine, planned)
		return hold(v1alpha1.ReasonNoAddress, exhausted.Error(), wishForAddress(*planned.pool))
	}
	if err != nil {
		return result{}, err
	}
	boot, err := planned.compose(machine, host, address, join)
	if problem, wrong := whatIsInvalid(err); wrong {
		return hold(v1alpha1.ReasonInvalidSpec, problem, wish{need: correction})
	}
	if err != nil {
		return result{}, err
	}
	what := Installation{Image: planned.image, Address: address}
	if boot.userData != nil || boot.networkData != nil {
		if err := r.writeUserData(ctx, ownerOf(machine), host.Namespace, boot); err != nil {
			return result{}, err
		}
	}
	if boot.userData != nil {
		what.UserData = userDataName(ownerOf(machine))
	}
	if boot.networkData != nil {
		what.NetworkData = userDataName(ownerOf(machine))
	}
	if now.host, err = r.claims.Install(ctx, host, what); err != nil {
		return result{}, err
	}
	return result{again: true, facts: &facts{
		phase: v1alpha1.MachineProvisioning, reason: v1alpha1.ReasonProvisioning, host: now.host,
		message: fmt.Sprintf("Metal3 has been told to install %s on server %s/%s", properties.PublicURL(planned.image.URL), host.Namespace, host.Name),
	}}, nil
}

// join returns the user data that the Machine brings with it: the join, for one with a tenant. Without it, it returns
// what is missing, for people. A Machine that stands alone needs none.
func (r *Reconciler) join(ctx context.Context, machine *v1alpha1.Machine) (data []byte, missing string, err error) {
	switch tenant := machine.Spec.TenantClusterRef; {
	case machine.Spec.Bootstrap.DataSecretName != "":
		return r.readUserData(ctx, machine)
	case tenant != nil:
		return nil, "the provider of tenant " + tenant.Name + " has not set spec.bootstrap.dataSecretName yet", nil
	}
	return nil, "", nil
}

// address returns the Machine's address, nil if it gets none from us.
func (r *Reconciler) address(ctx context.Context, machine *v1alpha1.Machine, planned *plan) (*Address, error) {
	if planned.pool == nil {
		return nil, nil
	}
	allocation, err := r.addresses.Ensure(ctx, ownerOf(machine).machineReference(), *planned.pool)
	if err != nil {
		return nil, err
	}
	overlaps, err := r.promises.Overlaps(ctx, *planned.pool)
	if err != nil {
		return nil, err
	}
	if len(overlaps) > 0 {
		r.event(machine, corev1.EventTypeWarning, string(EventPoolsOverlap), overlapping(*planned.pool, overlaps))
	}
	return &Address{Allocation: allocation, DNS: planned.dns}, nil
}
