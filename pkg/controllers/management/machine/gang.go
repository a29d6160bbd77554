// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// gangField indexes the cache of Machines by the name of the gang.
const gangField = "spec.gang.name"

func gangOf(machine *v1alpha1.Machine) []string {
	if machine.Spec.Gang == nil {
		return nil
	}
	return []string{machine.Spec.Gang.Name}
}

// refusedMember is a Machine whose gang was refused, with the reason.
type refusedMember struct {
	uid types.UID
	no  *unschedulable
}

// decideTogether decides on all Machines of a gang that have no server: each gets one, or none does. Otherwise two
// tenants that want the same servers for their gangs could get half of them each, and neither could work. It leaves the
// decisions about the other Machines in the queue for their workers, as the loop does. If the binding of a Machine
// fails later, it is decided on again, with the members that have no server by then. Bound servers stay bound.
func (s *scheduler) decideTogether(ctx context.Context, c *candidate) (*assignment, *unschedulable, error) {
	key, version := client.ObjectKeyFromObject(c.machine), s.queue.Version()
	if decided, found := s.queue.Value(key); found && decided.assigned != nil && s.stands(&decided, c.machine) {
		return decided.assigned, nil, nil
	}
	s.forgetLocked(key)
	others, count, err := s.othersOf(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	if gang := c.machine.Spec.Gang; count < int(gang.MinCount) {
		if refused := s.refused[key]; refused.uid == c.machine.UID {
			return nil, refused.no, nil // others are gone already, for the same reason
		}
		return nil, refuse(v1alpha1.ReasonGangIncomplete, fmt.Sprintf("%d of the %d Machines of gang %s exist: none gets a server before all do",
			count, gang.MinCount, gang.Name)), nil
	}
	members := append(others, c)
	var no *unschedulable
	for i, member := range members {
		if no = member.no; no == nil {
			member.assigned, no, err = s.decideAlone(ctx, member)
		}
		if err == nil && no == nil {
			continue
		}
		for _, assigned := range members[:i] {
			s.undo(assigned)
		}
		if err != nil {
			return nil, nil, err
		}
		// The undone assignments count as a change of the inventory. Without this filter the gang would be decided on
		// again at once, without end.
		no = &unschedulable{reason: no.reason, hints: slices.DeleteFunc(append(no.hints, choiceChanged),
			func(event scheduling.Event) bool { return event == hostChanged }),
			message: fmt.Sprintf("there is a server for %d of the %d Machines of gang %s that have none, and each would get one or none: %s", i,
				len(members), c.machine.Spec.Gang.Name, no.message)}
		break
	}
	for _, member := range members {
		delete(s.refused, client.ObjectKeyFromObject(member.machine))
		if no != nil {
			s.refused[client.ObjectKeyFromObject(member.machine)] = refusedMember{member.machine.UID, no}
		}
	}
	for _, other := range others {
		other.no = no
		waiting := scheduling.Machine[candidate]{Key: client.ObjectKeyFromObject(other.machine), Created: other.machine.CreationTimestamp.Time,
			Hints: []scheduling.Event{objectChanged}, Value: *other}
		if no != nil {
			waiting.Hints = no.hints
		} else {
			s.queue.Served(waiting.Key.Namespace)
		}
		s.queue.Park(waiting, version)
		s.notify(waiting.Key, false)
	}
	return c.assigned, no, nil
}

// othersOf returns the other Machines of the gang that have no server, and how many Machines the gang has in all.
func (s *scheduler) othersOf(ctx context.Context, c *candidate) (others []*candidate, count int, err error) {
	machines := &v1alpha1.MachineList{}
	if err := s.objects.cache.List(ctx, machines, client.InNamespace(c.machine.Namespace),
		client.MatchingFields{gangField: c.machine.Spec.Gang.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("listing the Machines of gang %s, %w", c.machine.Spec.Gang.Name, err)
	}
	count = 1
	for i := range machines.Items {
		machine := &machines.Items[i]
		key := client.ObjectKeyFromObject(machine)
		if machine.Name == c.machine.Name || !machine.DeletionTimestamp.IsZero() ||
			!ptr.Equal(machine.Spec.TenantClusterRef, c.machine.Spec.TenantClusterRef) {
			continue
		}
		count++
		if assumed := s.assumed[key]; machine.HasHost() || assumed.uid == machine.UID && assumed.nodeType != "" {
			continue
		}
		tenant, no, err := s.tenant(ctx, machine)
		if err != nil {
			return nil, 0, err
		}
		other := newCandidate(machine.DeepCopy(), tenant, inventory.RequestOf(machine, tenant))
		other.no, other.machine.Status.Network = no, c.machine.Status.Network
		if known, found := s.queue.Value(key); found {
			other.reason, other.message = known.reason, known.message
		}
		others = append(others, &other)
	}
	return others, count, nil
}

// undo ends a new assumption for a Machine. Nobody has seen the assumption, so undo is no event for waiting Machines.
func (s *scheduler) undo(c *candidate) {
	key := client.ObjectKeyFromObject(c.machine)
	delete(s.assumed, key)
	s.inventory.Forget(hosts.Key(c.assigned.choice.Host), c.machine.UID)
	s.claimRate.uncount(key, c.machine.UID, s.clock.Now())
	c.assigned = nil
}
