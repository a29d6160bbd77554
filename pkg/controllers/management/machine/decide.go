// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// assignment is what a Machine gets.
type assignment struct {
	choice inventory.Choice
	plan   *plan
}

// decide assigns a server, a share of the quota and an address together, and assumes them, or returns why the Machine
// is unschedulable. It reads caches and writes nothing. scheduler.deciding must be held.
func (r *Reconciler) decide(ctx context.Context, of *candidate) (*assignment, *unschedulable, error) {
	for {
		assigned, no, err := r.assign(ctx, of)
		if err != nil || no != nil {
			r.scheduler.forgetLocked(client.ObjectKeyFromObject(of.machine), r.inventory)
			return nil, no, err
		}
		// A host that was chosen before may be assumed for another Machine by now. The claim decides.
		if r.inventory.Assume(assigned.choice, of.machine.UID) || assigned.choice.Host == of.request.ChosenHost {
			key := client.ObjectKeyFromObject(of.machine)
			r.scheduler.assumed[key] = assumption{
				uid: of.machine.UID, host: hostKey(assigned.choice.Host), nodeType: assigned.choice.NodeType,
				owner: ownerOf(of.machine).machineReference(), pool: assigned.plan.pool,
			}
			return assigned, nil, nil
		}
		// A watch event has taken the server in between.
	}
}

// assign looks for a server of the cheapest type that the Machine may have, can be installed as, and has an address for. If it
// fits several types and cannot have any of them, it is refused for the cheapest.
func (r *Reconciler) assign(ctx context.Context, of *candidate) (*assignment, *unschedulable, error) {
	request, tried := of.request, map[string]bool{}
	request.Allowed = func(nodeType, provider string) bool {
		return !tried[nodeType] && (of.request.Allowed == nil || of.request.Allowed(nodeType, provider))
	}
	var first *unschedulable
	for {
		choice, err := r.inventory.Choose(request)
		var none *inventory.NoHostError
		switch {
		case errors.As(err, &none) && first != nil:
			first.hints = append(first.hints, hostChanged) // one of another type may become free
			return nil, first, nil
		case errors.As(err, &none):
			return nil, &unschedulable{reason: none.Reason, message: none.Error(), alike: true, hostless: true,
				hints: []scheduling.Event{objectChanged, hostChanged}}, nil
		case err != nil:
			return nil, nil, fmt.Errorf("choosing a server for Machine %s, %w", client.ObjectKeyFromObject(of.machine), err)
		}
		assigned, no, err := r.assignAs(ctx, of, choice)
		if no == nil || err != nil {
			return assigned, nil, err
		}
		if first == nil {
			first = no
		} else {
			first.hints = append(first.hints, no.hints...)
		}
		if request.NodeType != "" || request.ServerName != "" || no.reason == v1alpha1.ReasonQuotaExceeded {
			return nil, first, nil // there is no other, or it would not be within the quota either
		}
		tried[choice.NodeType] = true
	}
}

// assignAs checks whether the Machine may have the server that has been chosen, and has an address for it.
func (r *Reconciler) assignAs(ctx context.Context, of *candidate, choice inventory.Choice) (*assignment, *unschedulable, error) {
	// Another server, of another type, may be within the quota, have addresses, and be described without a mistake.
	no := func(reason, message string, hints ...scheduling.Event) *unschedulable {
		return &unschedulable{reason: reason, message: message, hints: append(hints, objectChanged, choiceChanged)}
	}
	err := r.checkQuota(ctx, of, choice.NodeType)
	var exceeded *quota.ExceededError
	if errors.As(err, &exceeded) {
		refused := no(v1alpha1.ReasonQuotaExceeded, exceeded.Message, usageShrank(of.machine.Namespace))
		refused.alike = true
		return nil, refused, nil
	}
	if err != nil {
		return nil, nil, err
	}
	planned, err := r.planFor(ctx, of.machine, choice)
	if problem, wrong := whatIsInvalid(err); wrong {
		return nil, no(v1alpha1.ReasonInvalidSpec, problem), nil
	}
	if err != nil {
		return nil, nil, err
	}
	err = r.checkAddress(ctx, of.machine, planned.pool)
	var exhausted *ipam.ExhaustedError
	if errors.As(err, &exhausted) {
		return nil, no(v1alpha1.ReasonNoAddress, exhausted.Error(), addressFreed(planned.pool.Network())), nil
	}
	return &assignment{choice: choice, plan: planned}, nil, err
}

// checkQuota compares the servers that the Machine's tenant has or is about to get, and one of the type more, with its
// quota. The error is a *quota.ExceededError if that is too much.
func (r *Reconciler) checkQuota(ctx context.Context, of *candidate, nodeType string) error {
	if of.tenant == nil || of.tenant.Spec.Quota == nil {
		return nil
	}
	machines := &v1alpha1.MachineList{}
	if err := r.client.List(ctx, machines, client.InNamespace(of.tenant.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("counting the servers of TenantCluster %s, %w", client.ObjectKeyFromObject(of.tenant), err)
	}
	tenants, err := r.tenantsOf(ctx, of.tenant.Namespace)
	if err != nil {
		return err
	}
	used := quota.Used(quota.Charged(of.tenant.Name, tenants, machines.Items), of.machine.UID, func(machine *v1alpha1.Machine) string {
		if assumed := r.scheduler.assumed[client.ObjectKeyFromObject(machine)]; assumed.uid == machine.UID {
			return assumed.nodeType
		}
		return ""
	})
	suspects := r.inventory.Suspects(of.tenant.Namespace)
	err = quota.Check(of.tenant, append(used, suspects...), nodeType, func(name string) (int64, error) {
		one := &v1alpha1.NodeType{} // one that does not exist has none
		_, err := controllers.Find(ctx, r.client, types.NamespacedName{Name: name}, one)
		return one.Spec.CountAccelerators(), err
	})
	return quota.NameSuspects(err, len(suspects))
}

// checkAddress looks for an address of the pool that is neither taken nor assumed. A Machine needs none if the pool is
// nil. The error is an *ipam.ExhaustedError if there is none.
func (r *Reconciler) checkAddress(ctx context.Context, machine *v1alpha1.Machine, pool *ipam.Pool) error {
	if pool == nil {
		return nil
	}
	taken := &v1alpha1.IPAddressList{}
	if err := r.client.List(ctx, taken, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("reading which addresses of pool %s are taken, %w", pool, err)
	}
	owner := ownerOf(machine).machineReference()
	return pool.Check(owner, taken.Items, r.scheduler.assumedPools(owner))
}

// forget ends what is assumed for a Machine.
func (r *Reconciler) forget(machine *v1alpha1.Machine) {
	r.scheduler.forget(client.ObjectKeyFromObject(machine), r.inventory)
}

// planFor makes the plan for the server that has been chosen.
func (r *Reconciler) planFor(ctx context.Context, machine *v1alpha1.Machine, choice inventory.Choice) (*plan, error) {
	host := &bmov1alpha1.BareMetalHost{}
	if err := r.client.Get(ctx, hostKey(choice.Host), host); err != nil {
		return nil, fmt.Errorf("reading host %s, which has been chosen, %w", hostKey(choice.Host), err)
	}
	return r.resolve(ctx, machine, choice.NodeType, host)
}
