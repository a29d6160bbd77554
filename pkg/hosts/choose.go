// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Choice is the host that a request gets.
type Choice struct {
	// Host to claim.
	Host v1alpha1.HostReference
	// NodeType to claim it as.
	NodeType string
	// Cost of the type.
	Cost int64
	// Labels that the node has from its type and its host. The caller owns them.
	Labels map[string]string
	// Considered are the types that were considered, cheapest first. Empty when the Machine is given the host again that it
	// has been given before.
	Considered []Candidate
}

// Choose gives the request a host of the cheapest type that fits; among types of the same cost the first by name, among
// hosts the first by zone, architecture, topology and name. The host is then assumed to be the Machine's, and given to
// no other, until SetHost shows a consumer on it or Forget is called. The same Machine gets the same host again, as
// long as that can be claimed and fits. If there is none, the error is a *NoHostError.
func (i *Inventory) Choose(request Request) (Choice, error) {
	requirements, err := i.parse(request.Requirements)
	if err != nil {
		return Choice{}, err
	}
	touched := newTouched()
	i.lock.Lock()
	choice, err := i.choose(request, requirements, touched)
	i.lock.Unlock()
	i.tell(touched)
	return choice, err
}

func (i *Inventory) choose(request Request, requirements requirements, touched *touched) (Choice, error) {
	if h, found := i.assumed[request.Machine]; found {
		if t := i.types[h.assumedAs]; t != nil && i.stillFits(h, t, request, requirements) {
			return choiceOf(h, t, nil), nil
		}
		i.change(h, touched, func() { i.release(h) })
	}
	candidates := i.byCost
	if request.NodeType != "" {
		t, known := i.types[request.NodeType]
		if !known {
			return Choice{}, &NoHostError{
				Reason: v1alpha1.ReasonNoMatchingType,
				Detail: fmt.Sprintf("NodeType %q does not exist: create it, or name one that does", request.NodeType),
			}
		}
		candidates = []*nodeType{t}
	}
	considered := make([]Candidate, 0, len(candidates))
	var chosen *host
	var as *nodeType
	var awaits []string
	for _, t := range candidates {
		candidate := t.fits(request, requirements)
		if candidate.Outcome == "" && as != nil {
			candidate.Outcome = Dearer
		}
		if candidate.Outcome == "" {
			if chosen = i.find(t, request, requirements, &candidate); chosen != nil {
				candidate.Outcome, as = Chosen, t
			} else {
				awaits = append(awaits, t.profile.Name)
			}
		}
		considered = append(considered, candidate)
	}
	if as == nil {
		return Choice{}, &NoHostError{Reason: reasonOf(considered), ServerName: request.ServerName, Considered: considered,
			Awaits: awaits, OfHost: requirements.describeOfHost()}
	}
	if request.Machine != "" {
		i.assume(chosen, as, request, touched)
	}
	return choiceOf(chosen, as, considered), nil
}

// stillFits tells whether the host that a Machine has been given before is still right for it.
func (i *Inventory) stillFits(h *host, t *nodeType, request Request, requirements requirements) bool {
	b, member := h.buckets[t.profile.Name]
	return h.verdict.Claimable && member && h.lacks[t.profile.Name] == "" &&
		(request.NodeType == "" || request.NodeType == t.profile.Name) &&
		(request.ServerName == "" || request.ServerName == h.key.Name) &&
		i.used[t.profile.Name]-1 < t.remaining(0) &&
		t.fits(request, requirements).Outcome == "" &&
		unmet(requirements.ofHost, nodeLabels{b.labels, t.labels}) == nil
}

// fits looks at what is true of all hosts of the type. The outcome is empty if the type fits so far.
func (t *nodeType) fits(request Request, requirements requirements) Candidate {
	candidate := Candidate{NodeType: t.profile.Name, Cost: t.profile.Cost}
	if requirement := unmet(requirements.ofType, t.labels); requirement != nil {
		candidate.Outcome, candidate.Detail = RequirementNotMet, requirement.String()
		return candidate
	}
	if request.NodeType == "" {
		if resource := tooSmall(request.Resources, t.profile.Allocatable); resource != "" {
			candidate.Outcome, candidate.Detail = TooSmall, resource
			return candidate
		}
		if accelerator := t.unasked(request); accelerator != "" {
			candidate.Outcome, candidate.Detail = Accelerated, accelerator
			return candidate
		}
	}
	if request.Allowed != nil && !request.Allowed(t.profile.Name, t.profile.Provider) {
		candidate.Outcome = NotAllowed
	}
	return candidate
}

// find looks for a host of a type that fits. If there is none, it writes why into the candidate.
func (i *Inventory) find(t *nodeType, request Request, requirements requirements, candidate *Candidate) *host {
	if request.ServerName != "" {
		return i.findPinned(t, request, requirements, candidate)
	}
	full := t.remaining(i.used[t.profile.Name]) == 0
	var found *host
	if !full {
		t.free.Ascend(func(b *bucket) bool {
			if unmet(requirements.ofHost, nodeLabels{b.labels, t.labels}) == nil {
				found, _ = b.free.Min()
			}
			return found == nil
		})
	}
	if found != nil {
		return found
	}
	*candidate = t.explain(requirements, *candidate)
	if full && candidate.Outcome == NoneFree {
		candidate.atMaxCapacity(t)
	}
	return nil
}

func (c *Candidate) atMaxCapacity(t *nodeType) {
	c.Outcome, c.Detail = AtMaxCapacity, fmt.Sprintf("maxCapacity %d is reached", *t.profile.MaxCapacity)
}

// explain counts the hosts that meet the requirements. That there is none to claim is known already.
func (t *nodeType) explain(requirements requirements, candidate Candidate) Candidate {
	candidate.Outcome, candidate.Counts, candidate.TooSmall = NoneFree, t.counts, t.tooSmall(requirements.ofHost)
	if len(requirements.ofHost) == 0 {
		return candidate
	}
	candidate.Counts = Counts{}
	detail := ""
	for _, b := range t.buckets {
		requirement := unmet(requirements.ofHost, nodeLabels{b.labels, t.labels})
		if requirement == nil {
			candidate.Counts = candidate.Counts.plus(b.counts)
		} else if text := requirement.String(); detail == "" || text < detail {
			detail = text
		}
	}
	if candidate.Counts.Total == 0 && t.counts.Total > 0 {
		candidate.Outcome, candidate.Detail = RequirementNotMet, detail
	}
	return candidate
}

// findPinned looks at one host and no other.
func (i *Inventory) findPinned(t *nodeType, request Request, requirements requirements, candidate *Candidate) *host {
	key := types.NamespacedName{Namespace: t.profile.Namespace, Name: request.ServerName}
	server := fmt.Sprintf("server %s", key)
	h, known := i.hosts[key]
	if !known {
		candidate.Outcome, candidate.Detail = NoneFree, server+" does not exist"
		return nil
	}
	b, member := h.buckets[t.profile.Name]
	if !member {
		candidate.Outcome, candidate.Detail = WrongServer, server+" is not of this type"
		return nil
	}
	if requirement := unmet(requirements.ofHost, nodeLabels{b.labels, t.labels}); requirement != nil {
		candidate.Outcome, candidate.Detail = RequirementNotMet, requirement.String()
		return nil
	}
	switch lacks := h.lacks[t.profile.Name]; {
	case lacks != "":
		candidate.Outcome, candidate.Detail = ServerTooSmall, server+" is too small for this type ("+lacks+")"
	case h.assumedBy != "":
		candidate.Outcome, candidate.Detail = NoneFree, server+" is being claimed by another Machine"
	case !h.verdict.Claimable:
		candidate.Outcome, candidate.Detail = NoneFree, server+" "+h.verdict.Message
	case t.remaining(i.used[t.profile.Name]) == 0:
		candidate.Counts = h.counts()
		candidate.atMaxCapacity(t)
	default:
		return h
	}
	return nil
}

func choiceOf(h *host, t *nodeType, considered []Candidate) Choice {
	return Choice{
		Host:       h.reference(),
		NodeType:   t.profile.Name,
		Cost:       t.profile.Cost,
		Labels:     nodeLabels{h.buckets[t.profile.Name].labels, t.labels}.merged(),
		Considered: considered,
	}
}
