// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package unschedulable

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/conditions"
	fleetcapacity "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// Reasons of the events on pods.
const (
	// ReasonNoServerAvailable: a NodeType fits, but none of its servers is free.
	ReasonNoServerAvailable = "NoServerAvailable"
	// ReasonInsufficientDomainCapacity: there are free servers, but not enough in one topology domain for all pods that must be
	// together.
	ReasonInsufficientDomainCapacity = "InsufficientDomainCapacity"
	// ReasonQuotaReached: the tenant has all servers that it may have.
	ReasonQuotaReached = "QuotaReached"
	// ReasonServerRefused: there are free servers, and they were refused lately.
	ReasonServerRefused = "ServerRefused"
	// ReasonWaitingForNodeClaim: Karpenter creates no NodeClaim while another has no answer.
	ReasonWaitingForNodeClaim = "WaitingForNodeClaim"
	// ReasonNoNodeTypeFits: no NodeType could ever serve the pod as it is.
	ReasonNoNodeTypeFits = "NoNodeTypeFits"
)

// Explanation is why no server is available for a pod.
type Explanation struct {
	// Reason is one of the reasons above.
	Reason string
	// Message has at most 1024 bytes: one clause per NodeType, the closest first.
	Message string
}

// Reasons that a NodeType does not serve a pod, besides those of the matcher.
const (
	NoneFree          matching.Reason = "NoneFree"
	requirementNotMet matching.Reason = "RequirementNotMet"
)

// closeness orders the reasons from the one that is closest to serving the pod.
var closeness = []matching.Reason{
	NoneFree, requirementNotMet, matching.TooSmall, missingResource, matching.Accelerated, matching.NotAllowed,
}

// missingResource is TooSmall where the type does not have the resource at all.
const missingResource matching.Reason = "MissingResource"

// Mismatch is why one NodeType does not serve a pod.
type Mismatch struct {
	NodeType string
	// Reason that the type does not fit; NoneFree if it does, and has no free server.
	Reason matching.Reason
	// Clause completes "NODETYPE: ".
	Clause string
}

// Explain returns why none of the NodeTypes can serve the pod now. It returns false if one of them can: the tenant may
// have it, it fits with one of the kubelets, and it has a free server. Allowed returns which types the tenant may have. Without
// kubelets, nodes have one that has no arguments.
func Explain(pod *corev1.Pod, nodeTypes []v1alpha1.NodeType, allowed func(nodeType, provider string) bool,
	kubelets ...fleetcapacity.Kubelet) (Explanation, bool) {
	if len(nodeTypes) == 0 {
		return Explanation{Reason: ReasonNoNodeTypeFits, Message: "no NodeType fits: there are no NodeTypes"}, true
	}
	mismatches, served := Mismatches(pod, nodeTypes, allowed, kubelets...)
	switch {
	case served != "":
		return Explanation{}, false
	case mismatches[0].Reason == NoneFree:
		return Explanation{Reason: ReasonNoServerAvailable, Message: message("no server available: ", mismatches)}, true
	}
	return Explanation{Reason: ReasonNoNodeTypeFits, Message: message("no NodeType fits: ", mismatches)}, true
}

// Mismatches returns, for each NodeType that does not serve the pod, the first reason why, the closest type first. Served is the first
// type that can serve the pod now; the types after it are then not looked at. The parameters are those of Explain.
func Mismatches(pod *corev1.Pod, nodeTypes []v1alpha1.NodeType, allowed func(nodeType, provider string) bool,
	kubelets ...fleetcapacity.Kubelet) (mismatches []Mismatch, served string) {
	request := &matching.Request{Resources: resources.RequestsForPods(pod), Allowed: allowed}
	if len(kubelets) == 0 {
		kubelets = []fleetcapacity.Kubelet{{}}
	}
	labels := newSelector(pod, serverLabels(nodeTypes))
	mismatches = make([]Mismatch, 0, len(nodeTypes))
	for i := range nodeTypes {
		reason, clause := explainType(&nodeTypes[i], request, kubelets, labels)
		if reason == matching.Fits {
			served = nodeTypes[i].Name
			break
		}
		mismatches = append(mismatches, Mismatch{NodeType: nodeTypes[i].Name, Reason: reason, Clause: clause})
	}
	slices.SortFunc(mismatches, func(a, b Mismatch) int {
		return cmp.Or(cmp.Compare(slices.Index(closeness, a.Reason), slices.Index(closeness, b.Reason)), cmp.Compare(a.NodeType, b.NodeType))
	})
	return mismatches, served
}

// explainType returns the first reason that a type does not serve the pod, and describes it in a clause.
func explainType(nodeType *v1alpha1.NodeType, request *matching.Request, kubelets []fleetcapacity.Kubelet,
	labels selector) (matching.Reason, string) {
	described := matching.TypeOf(nodeType)
	var found matching.Mismatch
	for _, request.Kubelet = range kubelets {
		if found = described.Check(request); found.Reason == matching.Fits {
			break
		}
	}
	if found.Reason != matching.Fits {
		if slices.ContainsFunc(found.Short, func(short matching.Shortage) bool { return short.Missing }) {
			return missingResource, found.Describe("pod")
		}
		return found.Reason, found.Describe("pod")
	}
	offered := matching.OfferedBy(nodeType)
	if unmet := labels.unmet(offered); len(unmet) > 0 {
		return requirementNotMet, "does not match nodeSelector/affinity " + strings.Join(unmet, " and ")
	}
	capacity, where := capacityFor(nodeType, offered, labels)
	// A free server is of no use when the type as a whole has reached its limit.
	if capacity.Available > 0 && nodeType.Status.Capacity.Available > 0 {
		return matching.Fits, ""
	}
	if nodeType.Spec.MaxCapacity != nil && capacity.Total > 0 {
		// Which servers are not ready does not matter then, and cannot be told from those above the limit.
		return NoneFree, fleetcapacity.Describe(capacity, 0, 0, where) + fmt.Sprintf(", limited to %d", *nodeType.Spec.MaxCapacity)
	}
	// A server can be claimed, in error, quarantined and too small at once, so this may be too few.
	notReady := capacity.Total - capacity.Claimed - capacity.Error - capacity.Quarantined - capacity.TooSmall - capacity.NotCleaned
	return NoneFree, fleetcapacity.Describe(capacity, 0, notReady, where)
}

// message joins as many clauses as an event can hold.
func message(prefix string, mismatches []Mismatch) string {
	// The last clause may need this much: "; and 1000000 more types".
	const reserve = 32
	var text strings.Builder
	text.WriteString(prefix)
	for i, one := range mismatches {
		clause := one.NodeType + ": " + one.Clause
		if i > 0 {
			clause = "; " + clause
		}
		if text.Len()+len(clause) > conditions.MaxEventNote-reserve {
			fmt.Fprintf(&text, "; and %d more types", len(mismatches)-i)
			break
		}
		text.WriteString(clause)
	}
	return text.String()
}

// capacityFor counts the servers of a type in the topology domains that the selector accepts. Where names these domains,
// such as " in rack r1". It is empty if they have all servers of the type.
func capacityFor(nodeType *v1alpha1.NodeType, offered matching.Offered, s selector) (capacity v1alpha1.Capacity, where string) {
	domains := domainsOf(nodeType)
	varying := map[string][]string{corev1.LabelTopologyZone: nil}
	for _, domain := range domains {
		for key := range domain.NodeLabels(nodeType.Name) {
			varying[key] = nil
		}
	}
	var accepted int
	var names []string
	for _, domain := range domains {
		// Here each of these labels has one value, or none.
		here := maps.Clone(offered)
		maps.DeleteFunc(here, func(key string, _ []string) bool { _, varies := varying[key]; return varies })
		here[corev1.LabelTopologyZone] = []string{domain.Zone}
		for key, value := range domain.NodeLabels(nodeType.Name) {
			here[key] = []string{value}
		}
		if len(s.unmet(here)) > 0 {
			continue
		}
		accepted++
		capacity = plus(capacity, domain.Capacity)
		if name := s.nameOf(nodeType.Name, domain); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	whole := nodeType.Status.Capacity
	switch {
	case accepted == len(domains), accepted > 0 && capacity.Total == whole.Total && capacity.Claimed == whole.Claimed:
		return whole, ""
	case accepted == 0:
		return capacity, " nodeSelector/affinity as a whole"
	}
	return capacity, " in " + list(names)
}

// domainsOf are the topology domains of a type: its zones, if its servers have no topology labels.
func domainsOf(nodeType *v1alpha1.NodeType) []v1alpha1.DomainCapacity {
	if len(nodeType.Status.Domains) > 0 {
		return nodeType.Status.Domains
	}
	domains := make([]v1alpha1.DomainCapacity, len(nodeType.Status.Zones))
	for i, zone := range nodeType.Status.Zones {
		domains[i] = v1alpha1.DomainCapacity{Zone: zone.Name, Capacity: zone.Capacity}
	}
	return domains
}

// nameOf names a domain by those of its labels that the selector mentions: "rack r1". A zone is named without its label, and
// another type that the servers match by its name.
func (s selector) nameOf(nodeType string, domain v1alpha1.DomainCapacity) string {
	var parts []string
	labels := domain.NodeLabels(nodeType)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		switch {
		case !s.names(key):
		case v1alpha1.IsTypeLabel(key):
			parts = append(parts, strings.TrimPrefix(key, v1alpha1.TypeLabelPrefix+"/"))
		default:
			parts = append(parts, key+" "+labels[key])
		}
	}
	if s.names(corev1.LabelTopologyZone) {
		parts = append(parts, domain.Zone)
	}
	return strings.Join(parts, " ")
}

func plus(a, b v1alpha1.Capacity) v1alpha1.Capacity {
	return v1alpha1.Capacity{
		Total: a.Total + b.Total, Claimed: a.Claimed + b.Claimed, Available: a.Available + b.Available, Error: a.Error + b.Error,
		Quarantined: a.Quarantined + b.Quarantined, TooSmall: a.TooSmall + b.TooSmall, NotCleaned: a.NotCleaned + b.NotCleaned,
	}
}

// listed is how many values or places a message names.
const listed = 3

// list joins names in their order, and leaves out those for which a message has no room.
func list(names []string) string {
	sorted := slices.Sorted(slices.Values(names))
	if len(sorted) > listed {
		sorted = append(sorted[:listed], "...")
	}
	return strings.Join(sorted, ", ")
}

// requirement is one requirement of a pod or a NodePool, with the words of its author.
type requirement struct {
	*labels.Requirement
	key, text string
}

// newRequirement converts a requirement. One that is not valid is met by no server.
func newRequirement(from corev1.NodeSelectorRequirement) requirement {
	one := requirement{key: from.Key, text: describe(from)}
	if current, deprecated := karpenterv1.NormalizedLabels[from.Key]; deprecated {
		one.key, from.Key = current, current
	}
	// Only NodePools have these two operators. Their values are whole numbers.
	if bound, err := strconv.Atoi(strings.Join(from.Values, ",")); err == nil {
		switch from.Operator {
		case karpenterv1.NodeSelectorOpGte:
			from.Operator, from.Values = corev1.NodeSelectorOpGt, []string{strconv.Itoa(bound - 1)}
		case karpenterv1.NodeSelectorOpLte:
			from.Operator, from.Values = corev1.NodeSelectorOpLt, []string{strconv.Itoa(bound + 1)}
		}
	}
	one.Requirement, _ = matching.Requirement(nil, from)
	return one
}

// describe writes a requirement as in YAML: "rack In [a, b]".
func describe(from corev1.NodeSelectorRequirement) string {
	if len(from.Values) == 0 {
		return fmt.Sprintf("%s %s", from.Key, from.Operator)
	}
	return fmt.Sprintf("%s %s [%s]", from.Key, from.Operator, list(from.Values))
}

// selector is what a pod requires of the labels of its node.
type selector struct {
	// required must all be met.
	required []requirement
	// terms are alternatives: all of one term must be met.
	terms [][]requirement
}

// newSelector leaves out the labels that are not known. Those are the ones that servers do not decide: NodePools can give any other
// label to their nodes, and Karpenter itself reports a label that no NodePool gives.
func newSelector(pod *corev1.Pod, known sets.Set[string]) selector {
	convert := func(from []corev1.NodeSelectorRequirement) []requirement {
		list := make([]requirement, 0, len(from))
		for _, one := range from {
			if one := newRequirement(one); known.Has(one.key) {
				list = append(list, one)
			}
		}
		return list
	}
	var byNodeSelector []corev1.NodeSelectorRequirement
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		byNodeSelector = append(byNodeSelector, corev1.NodeSelectorRequirement{
			Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{pod.Spec.NodeSelector[key]},
		})
	}
	s := selector{required: convert(byNodeSelector)}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return s
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		s.terms = append(s.terms, convert(term.MatchExpressions))
	}
	return s
}

// serverLabels are the labels that servers decide: those of the NodeTypes, and those that Karpenter has been told to leave
// to the servers, even if no server has them.
func serverLabels(nodeTypes []v1alpha1.NodeType) sets.Set[string] {
	known := sets.New(corev1.LabelInstanceTypeStable, v1alpha1.NodeTypeLabelKey, corev1.LabelTopologyZone, corev1.LabelOSStable)
	for key := range karpenterv1.WellKnownLabels {
		if instancetypes.Selectable(key) {
			known.Insert(key)
		}
	}
	for i := range nodeTypes {
		for _, offered := range nodeTypes[i].Status.Requirements {
			known.Insert(offered.Key)
		}
	}
	return known
}

// unmet returns the requirements that none of these servers meets, in the author's words. If no term is met it includes
// those of the term that is closest.
func (s selector) unmet(offered matching.Offered) []string {
	unmet := unmetOf(s.required, offered)
	var closest []string
	for i, term := range s.terms {
		missing := unmetOf(term, offered)
		if len(missing) == 0 {
			return unmet
		}
		if i == 0 || len(missing) < len(closest) {
			closest = missing
		}
	}
	return append(unmet, closest...)
}

func unmetOf(requirements []requirement, offered matching.Offered) (unmet []string) {
	for _, one := range requirements {
		if one.Requirement == nil || !offered.Meets(one.Requirement) {
			unmet = append(unmet, one.text)
		}
	}
	return unmet
}

// names returns whether the selector says anything about a label.
func (s selector) names(key string) bool {
	isKey := func(one requirement) bool { return one.key == key }
	return slices.ContainsFunc(s.required, isKey) ||
		slices.ContainsFunc(s.terms, func(term []requirement) bool { return slices.ContainsFunc(term, isKey) })
}
