// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// assignment is the server and the plan that a Machine gets.
type assignment struct {
	choice inventory.Choice
	plan   *plan.Plan
}

// decide assigns and assumes a server, a share of the quota and an address together, or returns why the Machine is
// unschedulable. It reads caches and writes nothing. The caller must hold scheduler.deciding.
func (s *scheduler) decide(ctx context.Context, c *candidate) (*assignment, *unschedulable, error) {
	if c.machine.Spec.Gang != nil && !c.machine.HasHost() {
		return s.decideTogether(ctx, c)
	}
	return s.decideAlone(ctx, c)
}

func (s *scheduler) decideAlone(ctx context.Context, c *candidate) (*assignment, *unschedulable, error) {
	key, now := client.ObjectKeyFromObject(c.machine), s.clock.Now()
	for {
		var assigned *assignment
		no, err := s.claimRate.check(key, c.machine.UID, now, s.allowance(ctx, key.Namespace))
		if err == nil && no == nil {
			assigned, no, err = s.assign(ctx, c)
		}
		if err != nil || no != nil {
			s.forgetLocked(key)
			return nil, no, err
		}
		// A host that was chosen before may be assumed for another Machine by now. The claim decides.
		if s.inventory.Assume(assigned.choice, c.machine.UID) || assigned.choice.Host == c.request.ChosenHost {
			s.claimRate.claimed(key, c.machine.UID, now)
			s.assumed[key] = assumption{
				uid: c.machine.UID, host: hosts.Key(assigned.choice.Host), nodeType: assigned.choice.NodeType,
				claimable: c.claimable(now), owner: hosts.OwnerOf(c.machine).Reference(), pool: assigned.plan.Pool,
			}
			return assigned, nil, nil
		}
		// A watch event has taken the server in between.
	}
}

// assign looks for a server of the cheapest type that the Machine may have, that is within the quota, that can be
// installed and that has an address. If it can have none of several types, the refusal is for the cheapest.
func (s *scheduler) assign(ctx context.Context, c *candidate) (*assignment, *unschedulable, error) {
	request, tried := c.request, map[string]bool{}
	// It counts only when it is first called: most waiting Machines find no server.
	rest := sync.OnceValues(func() (quota.Rest, error) { return s.restOfQuota(ctx, c) })
	request.Allowed = func(nodeType, provider string) bool {
		return !tried[nodeType] && (c.request.Allowed == nil || c.request.Allowed(nodeType, provider))
	}
	var first *unschedulable
	for {
		choice, no, err := s.chooseServer(c, request, rest)
		last := no != nil || request.NodeType != "" || request.ServerName != "" // there is no other
		var assigned *assignment
		if err == nil && no == nil {
			assigned, no, err = s.assignAs(ctx, c, choice, rest)
		}
		switch {
		case err != nil || no == nil:
			return assigned, nil, err
		case first != nil:
			first.hints, first.alike = append(first.hints, no.hints...), first.alike && no.alike
		default:
			if first, err = s.unlessInvalid(ctx, c.machine, no); err != nil || first != no {
				return nil, first, err
			}
		}
		if last {
			return nil, first, nil
		}
		tried[choice.NodeType] = true
	}
}

// chooseServer chooses a server, or returns why there is none.
func (s *scheduler) chooseServer(c *candidate, request inventory.Request, rest func() (quota.Rest, error),
) (inventory.Choice, *unschedulable, error) {
	choice, err := inventory.ChooseWithin(request, s.inventory.Choose, func(nodeType string) error {
		left, err := rest()
		if err != nil {
			return err
		}
		return left.Check(nodeType)
	})
	var none *inventory.NoHostError
	var exceeded *quota.ExceededError
	switch {
	case errors.As(err, &none):
		no := refuse(none.Reason, none.Error(), hostChanged)
		no.alike, no.hostless = true, true
		return choice, no, nil
	case errors.As(err, &exceeded):
		// Another server, of another type, may be within the quota.
		no := refuse(v1alpha1.ReasonQuotaExceeded, exceeded.Message, usageShrank(c.machine.Namespace), choiceChanged)
		no.alike = true
		return choice, no, nil
	case err != nil:
		return choice, nil, fmt.Errorf("choosing a server for Machine %s, %w", client.ObjectKeyFromObject(c.machine), err)
	}
	return choice, nil, nil
}

// unlessInvalid returns the refusal of a Machine, unless the Machine's own settings are invalid. An invalid Machine
// gets no server of any type until it is corrected.
func (s *scheduler) unlessInvalid(
	ctx context.Context, machine *v1alpha1.Machine, no *unschedulable,
) (*unschedulable, error) {
	_, err := plan.Resolve(ctx, s.objects, machine, "")
	if problem, invalid := plan.Problem(err); invalid {
		return refuse(v1alpha1.ReasonInvalidSpec, problem), nil
	}
	return no, err
}

// assignAs resolves the plan of the Machine on the chosen server. It checks the server's domains and a free address.
func (s *scheduler) assignAs(
	ctx context.Context, c *candidate, choice inventory.Choice, rest func() (quota.Rest, error),
) (*assignment, *unschedulable, error) {
	// Another server, of another type, may have addresses, and be described without a mistake.
	no := func(reason, message string, hints ...scheduling.Event) *unschedulable {
		return refuse(reason, message, append(hints, choiceChanged)...)
	}
	if refused, err := s.checkOpenings(c, choice, rest); err != nil || refused != nil {
		return nil, refused, err
	}
	host := &bmov1alpha1.BareMetalHost{}
	if err := s.objects.cache.Get(ctx, hosts.Key(choice.Host), host); err != nil {
		return nil, nil, fmt.Errorf("reading host %s, which has been chosen, %w", hosts.Key(choice.Host), err)
	}
	planned, err := plan.Resolve(ctx, s.objects, c.machine, choice.NodeType)
	if err == nil {
		err = bootstrap.CheckPlan(planned, c.machine, host)
	}
	if problem, invalid := plan.Problem(err); invalid {
		return nil, no(v1alpha1.ReasonInvalidSpec, problem), nil
	}
	if err != nil {
		return nil, nil, err
	}
	err = s.checkAddress(ctx, c.machine, planned.Pool)
	var exhausted *ipam.ExhaustedError
	if errors.As(err, &exhausted) {
		return nil, no(v1alpha1.ReasonNoAddress, exhausted.Error(), addressFreed(planned.Pool.Network())), nil
	}
	return &assignment{choice: choice, plan: planned}, nil, err
}

// checkOpenings refuses a server that would give the tenant one domain too many.
func (s *scheduler) checkOpenings(
	c *candidate, choice inventory.Choice, rest func() (quota.Rest, error),
) (*unschedulable, error) {
	for _, opening := range s.inventory.Opens(choice) {
		left, err := rest()
		if err != nil {
			return nil, err
		}
		var exceeded *quota.ExceededError
		if errors.As(left.CheckOpening(choice.NodeType, opening), &exceeded) {
			no := refuse(v1alpha1.ReasonNoCapacity, "no server available: "+exceeded.Message, usageShrank(c.machine.Namespace),
				choiceChanged)
			no.alike = true
			return no, nil
		}
	}
	return nil, nil
}

// restOfQuota computes the free part of the tenant's quota, beside the servers that the tenant has or is about to get.
func (s *scheduler) restOfQuota(ctx context.Context, c *candidate) (quota.Rest, error) {
	if c.tenant == nil || c.tenant.Spec.Quota == nil {
		return quota.Rest{}, nil
	}
	machines := &v1alpha1.MachineList{}
	if err := s.objects.cache.List(ctx, machines, client.InNamespace(c.tenant.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return quota.Rest{}, fmt.Errorf("counting the servers of TenantCluster %s, %w",
			client.ObjectKeyFromObject(c.tenant), err)
	}
	tenants, err := s.objects.tenants(ctx, c.tenant.Namespace)
	if err != nil {
		return quota.Rest{}, err
	}
	accelerators := map[string]int64{}
	if c.tenant.Spec.Quota.GPUs != nil {
		nodeTypes, _, err := s.objects.Types(ctx)
		if err != nil {
			return quota.Rest{}, err
		}
		for _, nodeType := range nodeTypes {
			accelerators[nodeType.Name] = nodeType.Spec.CountAccelerators()
		}
	}
	used := quota.Used(quota.Charged(c.tenant.Name, tenants, machines.Items), c.machine.UID, func(machine *v1alpha1.Machine) string {
		if assumed := s.assumed[client.ObjectKeyFromObject(machine)]; assumed.uid == machine.UID {
			return assumed.nodeType
		}
		return ""
	})
	return quota.RestOf(c.tenant, used, func(nodeType string) int64 { return accelerators[nodeType] }), nil
}

// checkAddress looks for an address of the pool that is neither taken nor assumed. If pool is nil, the Machine needs
// none. The error is an *ipam.ExhaustedError if no address is free.
func (s *scheduler) checkAddress(ctx context.Context, machine *v1alpha1.Machine, pool *ipam.Pool) error {
	if pool == nil {
		return nil
	}
	taken := &v1alpha1.IPAddressList{}
	if err := s.objects.cache.List(ctx, taken, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("reading which addresses of pool %s are taken, %w", pool, err)
	}
	owner := hosts.OwnerOf(machine).Reference()
	return pool.Check(owner, taken.Items, s.assumedPools(owner))
}
