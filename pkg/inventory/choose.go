// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
)

// Choice is the host that a request gets.
type Choice struct {
	Host     v1alpha1.HostReference
	NodeType string
	Cost     int64
	// Labels that the node has from its type and its host. The caller owns them.
	Labels map[string]string
	// Tenant is the namespace of the Machine that gets the host.
	Tenant string
}

// Choose gives the request a host of the cheapest type that fits, among types of the same cost the first by name. Among
// hosts, it prefers in this order: no fault at the end of the last use; not cleaned after the same tenant; the
// preference of its domains; the first by zone, architecture, topology and name. A Machine with an assumed host gets
// the same host again, as long as that can be claimed and fits; if not, the assumption ends. Without a host, the error
// is a *NoHostError.
func (i *Inventory) Choose(request Request) (Choice, error) {
	requirements, err := i.parse(request.Requirements)
	if err != nil {
		return Choice{}, err
	}
	var choice Choice
	i.update(func(changed changed) { choice, err = i.choose(request, requirements, changed) })
	return choice, err
}

// ChooseWithin gives the request a host of the cheapest type that fits and is within a quota. choose finds the host.
// within returns a *quota.ExceededError for a type if the quota leaves none of its servers. If the quota leaves no
// server of any type that has a host, ChooseWithin returns the error of the cheapest type.
func ChooseWithin(request Request, choose func(Request) (Choice, error),
	within func(nodeType string) error) (Choice, error) {
	allowed, tried := request.Allowed, map[string]bool{}
	request.Allowed = func(nodeType, madeBy string) bool {
		return !tried[nodeType] && (allowed == nil || allowed(nodeType, madeBy))
	}
	var first *quota.ExceededError
	for {
		choice, err := choose(request)
		if err == nil {
			err = within(choice.NodeType)
		}
		var exceeded *quota.ExceededError
		var none *NoHostError
		switch {
		case errors.As(err, &exceeded):
			first = cmp.Or(first, exceeded)
		case errors.As(err, &none) && first != nil:
			return Choice{}, first
		default:
			return choice, err
		}
		// No other type exists, or it would exceed the quota too. A host that was chosen before may be claimed.
		if exceeded.Total || request.NodeType != "" || request.ServerName != "" || request.ChosenHost.Name != "" {
			return Choice{}, first
		}
		tried[choice.NodeType] = true
	}
}

// Assume gives a chosen host to a Machine and to no other, until SetHost shows a consumer on it or Forget is called. It
// returns false if the host is no longer available.
func (i *Inventory) Assume(choice Choice, machine types.UID) (assumed bool) {
	i.update(func(changed changed) { assumed = i.assume(choice, machine, changed) })
	return assumed
}

func (i *Inventory) assume(choice Choice, machine types.UID, changed changed) bool {
	h, t := i.hosts[types.NamespacedName{Namespace: choice.Host.Namespace, Name: choice.Host.Name}], i.types[choice.NodeType]
	if h == nil || t == nil || h.uid != choice.Host.UID {
		return false
	}
	if h.assumedBy == machine && h.assumedAs == choice.NodeType {
		return true
	}
	if _, member := h.buckets[t.profile.Name]; !member || t.remaining(i.used[t.profile.Name]) == 0 {
		return false
	}
	if _, free := h.freeFor(h.countedAs(t.profile.Name, h.counts())); !free || !isOpen(h.domains, choice.Tenant) {
		return false // if only its last tenant may have it, the claim finds that out
	}
	i.change(h, changed, func() { i.reserve(h, choice, machine) })
	i.claims++
	h.claim = claim{machine: machine, number: i.claims}
	i.count(h, t.profile.Name, i.claims, changed)
	return true
}

// ClaimNumber returns the number of a Machine's claim of a host, as that type. Numbers follow the order of decisions. A
// claim that an earlier process decided gets a number now.
func (i *Inventory) ClaimNumber(key types.NamespacedName, machine types.UID, nodeType string) (number int64) {
	i.update(func(changed changed) {
		h := i.hosts[key]
		if h != nil && h.claim.machine == machine {
			number = h.claim.number
			return
		}
		i.claims++
		if number = i.claims; h != nil {
			h.claim = claim{machine: machine, number: number}
		}
		i.count(h, nodeType, number, changed)
	})
	return number
}

// ResumeClaims takes in the number of a claim that an earlier process decided or counted, maybe of an unknown host.
func (i *Inventory) ResumeClaims(key types.NamespacedName, nodeType string, number int64) {
	i.update(func(changed changed) {
		i.claims = max(i.claims, number)
		i.count(i.hosts[key], nodeType, number, changed)
	})
}

// count records that a claim is in the counts of all types that the host matches, and of the type it is claimed as.
func (i *Inventory) count(h *host, nodeType string, number int64, changed changed) {
	names := []string{nodeType}
	if h != nil {
		names = append(names, h.matches...)
	}
	for _, name := range names {
		if t := i.types[name]; t != nil {
			t.lastClaim = max(t.lastClaim, number)
			changed.add(name)
		}
	}
}

func (i *Inventory) choose(request Request, requirements requirements, changed changed) (Choice, error) {
	chosen := i.hosts[types.NamespacedName{Namespace: request.ChosenHost.Namespace, Name: request.ChosenHost.Name}]
	if t := i.types[request.ChosenAs]; t != nil && chosen != nil && chosen.uid == request.ChosenHost.UID &&
		i.stillFits(chosen, t, request, requirements) {
		return choiceOf(chosen, t, request, requirements), nil
	}
	if h, found := i.assumed[request.Machine]; found {
		if t := i.types[h.assumedAs]; t != nil && t.eligibility(h, request).Claimable && i.stillFits(h, t, request, requirements) {
			return choiceOf(h, t, request, requirements), nil
		}
		i.change(h, changed, func() { i.release(h) })
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
	matched := request.matched()
	i.considered = i.considered[:0]
	for _, t := range candidates {
		candidate := t.fits(matched, requirements)
		if candidate.Outcome == "" {
			if found := i.find(t, request, requirements, &candidate); found != nil {
				return choiceOf(found, t, request, requirements), nil
			}
		}
		candidate.Foreign = request.NodeType == "" && request.Allowed != nil && !request.Allowed(t.profile.Name, t.profile.MadeBy)
		i.considered = append(i.considered, candidate)
	}
	return Choice{}, &NoHostError{Reason: reasonOf(i.considered), ServerName: request.ServerName, Considered: slices.Clone(i.considered)}
}

// stillFits reports whether the host that was given to a Machine before is still right for it, if it is available.
func (i *Inventory) stillFits(h *host, t *nodeType, request Request, requirements requirements) bool {
	b, member := h.buckets[t.profile.Name]
	used := i.used[t.profile.Name]
	if h.usedAs() == t.profile.Name {
		used--
	}
	return member && h.lacks[t.profile.Name] == "" &&
		(request.NodeType == "" || request.NodeType == t.profile.Name) &&
		(request.ServerName == "" || request.ServerName == h.key.Name) &&
		used < t.remaining(0) &&
		isOpen(h.domains, request.Tenant) &&
		t.fits(request.matched(), requirements).Outcome == "" &&
		requirements.unmet(t, b) == nil
}

// eligibility returns the eligibility of a host for the tenant of a request.
func (t *nodeType) eligibility(h *host, request Request) Eligibility {
	return h.eligibility.For(request.Tenant, t.profile.AnyTenant)
}

// fits compares the request with what all hosts of the type share. The outcome is empty if the type fits so far.
func (t *nodeType) fits(request *matching.Request, requirements requirements) Candidate {
	candidate := Candidate{NodeType: t.profile.Name, Cost: t.profile.Cost}
	if requirement := t.unmet(requirements.ofType); requirement != nil {
		candidate.Outcome, candidate.Requirement = RequirementNotMet, requirement.String()
		return candidate
	}
	candidate.Mismatch = t.matched.Check(request)
	candidate.Outcome = Outcome(candidate.Mismatch.Reason)
	return candidate
}

// find returns a fitting host of a type. If there is none, it records the reason in the candidate.
func (i *Inventory) find(t *nodeType, request Request, requirements requirements, candidate *Candidate) *host {
	if request.ServerName != "" {
		return i.findPinned(t, request, requirements, candidate)
	}
	full := t.remaining(i.used[t.profile.Name]) == 0
	meets := func(b *bucket) bool {
		return requirements.unmet(t, b) == nil && isOpen(b.domains, request.Tenant)
	}
	// Hosts that only this tenant can have come first: other tenants can use the rest. A host whose last use ended in a
	// fault comes only if no other host is free.
	var faulty *host
	for _, tenant := range [...]string{request.Tenant, ""} {
		var best *bucket
		for _, b := range t.free[tenant] {
			if full || best != nil && b.preference() >= best.preference() || !meets(b) {
				continue
			}
			if first := b.free[tenant][0]; first.faulty {
				faulty = cmp.Or(faulty, first)
				continue
			}
			if best = b; len(i.exclusive[t.profile.Namespace]) == 0 {
				break
			}
		}
		if best != nil {
			return best.free[tenant][0]
		}
	}
	if faulty != nil {
		return faulty
	}
	*candidate = t.explain(request.Tenant, requirements, *candidate)
	if full && candidate.Outcome == NoneFree {
		candidate.Outcome, candidate.MaxCapacity = AtMaxCapacity, *t.profile.MaxCapacity
	}
	return nil
}

// explain counts the hosts that meet the requirements, after find could claim none of them.
func (t *nodeType) explain(tenant string, requirements requirements, candidate Candidate) Candidate {
	candidate.Outcome, candidate.Counts, candidate.TooSmall = NoneFree, t.counts, t.tooSmall(requirements)
	candidate.Closed = t.closed(tenant, requirements)
	if len(requirements.ofHost) == 0 {
		return candidate
	}
	candidate.Counts = Counts{}
	var unmet []*labels.Requirement // few, and their texts take longer than all else
	for _, b := range t.buckets {
		requirement := requirements.unmet(t, b)
		if requirement == nil {
			candidate.Counts = candidate.Counts.plus(b.counts)
		} else if !slices.Contains(unmet, requirement) {
			unmet = append(unmet, requirement)
		}
	}
	if candidate.Counts.Total == 0 && len(unmet) > 0 {
		candidate.Outcome = RequirementNotMet
		candidate.Requirement = slices.Min(lo.Map(unmet, func(r *labels.Requirement, _ int) string { return r.String() }))
	}
	return candidate
}

// closed returns the domains of other tenants that have free hosts which meet the requirements, sorted.
func (t *nodeType) closed(tenant string, requirements requirements) (domains []string) {
	for _, b := range t.free[""] {
		if closed := closedTo(b.domains, tenant); closed != "" && !slices.Contains(domains, closed) &&
			requirements.unmet(t, b) == nil {
			domains = append(domains, closed)
		}
	}
	slices.Sort(domains)
	return domains
}

// findPinned considers only the pinned host. If that cannot be claimed, it records the reason in the candidate.
func (i *Inventory) findPinned(t *nodeType, request Request, requirements requirements, candidate *Candidate) *host {
	key := types.NamespacedName{Namespace: t.profile.Namespace, Name: request.ServerName}
	candidate.Server = key.String()
	h, known := i.hosts[key]
	if !known {
		candidate.Outcome, candidate.Eligibility = NoneFree, Eligibility{Reason: ReasonUnknown, Message: "does not exist"}
		return nil
	}
	b, member := h.buckets[t.profile.Name]
	if !member {
		candidate.Outcome = WrongServer
		return nil
	}
	if requirement := requirements.unmet(t, b); requirement != nil {
		candidate.Outcome, candidate.Requirement = RequirementNotMet, requirement.String()
		return nil
	}
	switch {
	case h.lacks[t.profile.Name] != "":
		candidate.Outcome, candidate.Lacks = ServerTooSmall, h.lacks[t.profile.Name]
	case h.assumedBy != "":
		candidate.Outcome, candidate.Eligibility = NoneFree, Eligibility{Reason: ReasonAssumed, Message: "is being claimed by another Machine"}
	case !t.eligibility(h, request).Claimable:
		candidate.Outcome, candidate.Eligibility = NoneFree, h.eligibility
	case h.hardware.unknown(t.profile.LeftOut):
		candidate.Outcome, candidate.Eligibility = NoneFree, Eligibility{Reason: ReasonNotInspected,
			Message: "has not been inspected by Metal3, and its type leaves out cpu or memory"}
	case t.remaining(i.used[t.profile.Name]) == 0:
		candidate.Outcome, candidate.MaxCapacity, candidate.Counts = AtMaxCapacity, *t.profile.MaxCapacity, h.counts()
	case !isOpen(h.domains, request.Tenant):
		candidate.Outcome, candidate.Eligibility = NoneFree, Eligibility{Reason: ReasonDomainHeld,
			Message: inClosedDomain(closedTo(h.domains, request.Tenant))}
	default:
		return h
	}
	return nil
}

func choiceOf(h *host, t *nodeType, request Request, requirements requirements) Choice {
	return Choice{
		Tenant:   request.Tenant,
		Host:     h.reference(),
		NodeType: t.profile.Name,
		Cost:     t.profile.Cost,
		Labels:   t.nodeLabels(h.buckets[t.profile.Name].labels, requirements.ofType),
	}
}

// ChoiceOf describes a host that was claimed long ago as a choice of today, and reports whether the type exists. It
// assumes nothing. A host keeps its type even if its labels say by now that it is of another.
func (i *Inventory) ChoiceOf(host *bmov1alpha1.BareMetalHost, nodeType string) (Choice, bool) {
	i.lock.Lock()
	defer i.lock.Unlock()
	t, known := i.types[nodeType]
	if !known {
		return Choice{}, false
	}
	choice := Choice{
		Host:     v1alpha1.HostReference{Namespace: host.Namespace, Name: host.Name, UID: host.UID},
		NodeType: nodeType, Cost: t.profile.Cost, Labels: t.nodeLabels(nil, nil),
	}
	if h, known := i.hosts[types.NamespacedName{Namespace: host.Namespace, Name: host.Name}]; known {
		if b, member := h.buckets[nodeType]; member {
			choice.Labels = t.nodeLabels(b.labels, nil)
		}
	}
	return choice, true
}

// Request asks for one host: either of a named type, or of the cheapest type that meets requirements and resources.
type Request struct {
	// Machine that gets the host. The host that is assumed for it counts as free. Empty for no Machine in particular.
	Machine types.UID
	// Tenant is the namespace of the Machine. If it is empty, the request gets no host that was not cleaned.
	Tenant string
	// NodeType by name. If set, the resources and the rule about accelerators do not apply: a named type wins.
	NodeType string
	// Requirements that the labels of the node would have to meet.
	Requirements []corev1.NodeSelectorRequirement
	// Resources that the node must have for pods.
	Resources corev1.ResourceList
	// KubeletArgs of the node. Other code checks them.
	KubeletArgs v1alpha1.KubeletArgs
	// Drivers are the DRA drivers whose devices are requested.
	Drivers []string
	// Allowed says whether the tenant may have a type. madeBy is its NodeProvider, empty if the type was made by hand.
	// Nil allows all. It runs with the inventory locked and must not call the inventory.
	Allowed func(typeName, madeBy string) bool
	// ChosenHost and ChosenAs are the host and the type that an earlier run chose for the Machine, without learning
	// whether it got the host. They are chosen again if they still fit, even if the host is not available, so that no
	// other host is claimed meanwhile. Empty for none.
	ChosenHost v1alpha1.HostReference
	ChosenAs   string
	// ServerName pins the request to the host of that name, in the namespace of the type's provider. It gets no other.
	ServerName string
}

// RequestOf returns a Machine's request. tenant is the TenantCluster that the Machine is charged to, nil for none.
func RequestOf(machine *v1alpha1.Machine, tenant *v1alpha1.TenantCluster) Request {
	request := Request{
		Machine:      machine.UID,
		Tenant:       machine.Namespace,
		Requirements: machine.Spec.Requirements,
		Resources:    machine.Spec.Resources,
		KubeletArgs:  machine.Spec.KubeletArgs,
		Drivers:      machine.Spec.RequestedDrivers,
		ServerName:   machine.Spec.Properties[v1alpha1.PropertyServerName],
	}
	if tenant != nil {
		request.Allowed = tenant.Allows
	}
	if machine.Status.HostRef == nil {
		if chosen, _ := machine.ChosenHost(); chosen != nil {
			request.ChosenHost, request.ChosenAs = chosen.HostReference, chosen.NodeType
		}
	}
	if machine.Spec.NodeTypeRef != nil {
		request.NodeType = machine.Spec.NodeTypeRef.Name
	}
	return request
}

// requirements are parsed requirements, split by their labels: ofType if all hosts of a type share the label, ofHost if
// it differs from host to host.
type requirements struct {
	ofType []labels.Requirement
	ofHost []*labelRequirements
}

// labelRequirements are about one label of hosts or, with an empty key, about the labels of the types that a host
// matches. Hosts are many, and the values of a label few: each value is compared once.
type labelRequirements struct {
	key   string
	all   []labels.Requirement
	unmet map[string]*labels.Requirement
}

// unmet returns the first requirement that hosts of a type and a bucket do not meet, or nil.
func (r requirements) unmet(t *nodeType, b *bucket) *labels.Requirement {
	set := nodeLabels{b.labels, t.labels}
	for _, about := range r.ofHost {
		value, has := b.shared, true
		if about.key != "" {
			value, has = set.Lookup(about.key)
		}
		if !has {
			value = "/" // in no label value
		}
		unmet, known := about.unmet[value]
		if !known {
			unmet = matching.Unmet(about.all, set)
			about.unmet[value] = unmet
		}
		if unmet != nil {
			return unmet
		}
	}
	return nil
}

func (r *Request) matched() *matching.Request {
	kubelet, _ := capacity.ParseKubelet(r.KubeletArgs)
	return &matching.Request{NodeType: r.NodeType, Resources: r.Resources, Kubelet: kubelet, Drivers: r.Drivers, Allowed: r.Allowed}
}

func (i *Inventory) parse(from []corev1.NodeSelectorRequirement) (requirements, error) {
	valid, wrong := matching.Requirements(field.NewPath("spec", "requirements"), from)
	if len(wrong) > 0 {
		return requirements{}, &NoHostError{Reason: v1alpha1.ReasonInvalidSpec, Detail: wrong.ToAggregate().Error() + ": correct it"}
	}
	ofHost, ofType := lo.FilterReject(valid, func(r labels.Requirement, _ int) bool { return i.differs(r.Key()) })
	// Few hosts meet an In, and most a NotIn: after an In, fewer hosts are left to compare.
	ins, others := lo.FilterReject(ofHost, func(r labels.Requirement, _ int) bool { return r.Operator() == selection.In })
	parsed := requirements{ofType: ofType}
	for _, requirement := range slices.Concat(ins, others) {
		key := requirement.Key()
		if v1alpha1.IsTypeLabel(key) {
			key = ""
		}
		index := slices.IndexFunc(parsed.ofHost, func(about *labelRequirements) bool { return about.key == key })
		if index < 0 {
			index = len(parsed.ofHost)
			parsed.ofHost = append(parsed.ofHost, &labelRequirements{key: key, unmet: map[string]*labels.Requirement{}})
		}
		parsed.ofHost[index].all = append(parsed.ofHost[index].all, requirement)
	}
	return parsed, nil
}

// differs reports whether a label differs from host to host of one type.
func (i *Inventory) differs(key string) bool {
	return key == corev1.LabelTopologyZone || key == corev1.LabelArchStable || slices.Contains(i.topology.Keys(), key) ||
		v1alpha1.IsTypeLabel(key)
}
