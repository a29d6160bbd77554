// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain says why pods get no server. For a pending pod it says which NodeTypes fit and which servers are
// free, in the words of the pod's requests and requirements. The provider's events and kubectl's plugin agree.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	fleetcapacity "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Reasons of the events on pods.
const (
	// ReasonNoServerAvailable: a NodeType fits, but none of its servers is free.
	ReasonNoServerAvailable = "NoServerAvailable"
	// ReasonInsufficientDomainCapacity: servers are free, but no domain has enough for all pods that must be together.
	ReasonInsufficientDomainCapacity = "InsufficientDomainCapacity"
	// ReasonGangIncomplete: pods of the gang do not exist yet, or its size cannot be read.
	ReasonGangIncomplete = "GangIncomplete"
	// ReasonQuotaReached: the tenant has all servers that it may have.
	ReasonQuotaReached = "QuotaReached"
	// ReasonServerRefused: there are free servers, but they were refused to the tenant lately.
	ReasonServerRefused = "ServerRefused"
	// ReasonWaitingForNodeClaim: Karpenter creates no NodeClaim while another has no answer.
	ReasonWaitingForNodeClaim = "WaitingForNodeClaim"
	// ReasonNoNodeTypeFits: no NodeType could ever serve the pod as it is.
	ReasonNoNodeTypeFits = "NoNodeTypeFits"
	// ReasonDevicesNotDeclared: the pod is planned with devices of drivers. A NodeType with a free server has its
	// resources by a device plugin, and is not used.
	ReasonDevicesNotDeclared = "DevicesNotDeclared"
	// ReasonNoCapacityType: no NodePool has the capacity type that the pod selects. On a NodePool: it allows no
	// capacity type that servers can have.
	ReasonNoCapacityType = "NoCapacityType"
)

// notLaunchedYet is core's reason for the condition Launched until the first attempt fails.
const notLaunchedYet = "AwaitingReconciliation"

// Explanation is why no server is available for a pod.
type Explanation struct {
	// Reason is one of the reasons above.
	Reason string
	// Message has at most 1024 bytes: one clause per NodeType, the closest first.
	Message string
}

// Check looks for another reason that a pod gets no server although a NodeType that fits has a free one. It returns the
// zero Explanation if it finds none.
type Check func(ctx context.Context, pod *corev1.Pod) (Explanation, error)

// Because makes a check from a reason and the function for its message, which is empty if the reason does not apply.
func Because(reason string, why func(context.Context, *corev1.Pod) (string, error)) Check {
	return func(ctx context.Context, pod *corev1.Pod) (Explanation, error) {
		message, err := why(ctx, pod)
		if message == "" || err != nil {
			return Explanation{}, err
		}
		return Explanation{Reason: reason, Message: message}, nil
	}
}

// Fleet is what a tenant's pods can get nodes from. The package modifies none of it.
type Fleet struct {
	Tenant      *v1alpha1.TenantCluster
	NodeTypes   []v1alpha1.NodeType
	NodePools   []karpv1.NodePool
	NodeClasses []v1alpha1.MetalNodeClass
	NodeClaims  []karpv1.NodeClaim
	// ServerLabels are the labels that a NodePool may leave to the servers. Default: all that Karpenter knows here.
	ServerLabels sets.Set[string]
}

// Pending reports whether a pod waits for a node that Karpenter could create, and can be explained. It excludes pods
// with ResourceClaims: their devices are not among the resources of NodeTypes.
func Pending(pod *corev1.Pod) bool {
	return podutils.IsProvisionable(pod) && podutils.IsActive(pod) && len(pod.Spec.ResourceClaims) == 0
}

// Pod returns why a pending pod gets no server. If a server fits, it runs the checks, and the first one with a reason
// decides. It returns the zero Explanation if there is no reason.
func (f Fleet) Pod(ctx context.Context, pod *corev1.Pod, checks ...Check) (Explanation, error) {
	// Free servers do not change this, so it comes first.
	if explanation := f.noCapacityType(pod); explanation != (Explanation{}) {
		return explanation, nil
	}
	if explanation := f.unfit(pod); explanation != (Explanation{}) {
		return explanation, nil
	}
	if message := waitingForNodeClaim(f.NodeClaims); message != "" {
		return Explanation{Reason: ReasonWaitingForNodeClaim, Message: message}, nil
	}
	for _, check := range checks {
		if explanation, err := check(ctx, pod); err != nil || explanation != (Explanation{}) {
			return explanation, err
		}
	}
	return Explanation{}, nil
}

// waitingForNodeClaim names a NodeClaim whose launch failed and is retried, "" if there is none. Meanwhile Karpenter
// creates no NodeClaim for any pod, and says so only in its log.
func waitingForNodeClaim(nodeClaims []karpv1.NodeClaim) string {
	for i := range nodeClaims {
		nodeClaim := &nodeClaims[i]
		launched := conditions.Find(nodeClaim.Status.Conditions, karpv1.ConditionTypeLaunched)
		if nodeClaim.Status.ProviderID != "" || !nodeClaim.DeletionTimestamp.IsZero() ||
			launched.Status != metav1.ConditionUnknown || launched.Reason == "" || launched.Reason == notLaunchedYet {
			continue
		}
		return conditions.Truncate(fmt.Sprintf("Karpenter creates no NodeClaim for any pod while NodeClaim %s has no "+
			"server: %s: %s", nodeClaim.Name, launched.Reason, launched.Message), conditions.MaxEventNote)
	}
	return ""
}

// Reasons that a NodeType does not serve a pod, in addition to the reasons of package matching.
const (
	NoneFree matching.Reason = "NoneFree"
	// NoNodePool: no NodePool that takes the pod may have the type.
	NoNodePool        matching.Reason = "NoNodePool"
	requirementNotMet matching.Reason = "RequirementNotMet"
)

// closeness orders the reasons; the closest to serving the pod comes first.
var closeness = []matching.Reason{
	matching.Fits, NoneFree, requirementNotMet, matching.TooSmall, missingResource, matching.Accelerated, matching.NotAllowed, NoNodePool,
}

// missingResource is TooSmall for a type that does not have the resource at all.
const missingResource matching.Reason = "MissingResource"

// Candidate says how a NodeType suits a pod.
type Candidate struct {
	NodeType string
	// Reason is why the type does not fit. Fits: it can serve the pod now. NoneFree: it fits, but has no free server.
	Reason matching.Reason
	// Clause completes "NODETYPE: ". It is empty if the type fits.
	Clause string
	// Foreign: the tenant may not have the type. Its events only count these types.
	Foreign bool
}

func (c *Candidate) closer(other *Candidate) int {
	return cmp.Or(slices.Index(closeness, c.Reason)-slices.Index(closeness, other.Reason), cmp.Compare(c.NodeType, other.NodeType))
}

// unfit says why none of the NodeTypes can serve the pod now. It returns the zero Explanation if one can, or if only
// the NodePools keep the pod from the NodeTypes: then Karpenter's own event names each NodePool.
func (f Fleet) unfit(pod *corev1.Pod) Explanation {
	if len(f.NodeTypes) == 0 {
		return Explanation{Reason: ReasonNoNodeTypeFits, Message: "no NodeType fits: there are no NodeTypes"}
	}
	candidates := f.Candidates(pod)
	switch candidates[0].Reason {
	case matching.Fits, NoNodePool:
		return Explanation{}
	case NoneFree:
		return Explanation{Reason: ReasonNoServerAvailable, Message: message("no server available: ", candidates)}
	}
	return Explanation{Reason: ReasonNoNodeTypeFits, Message: message("no NodeType fits: ", candidates)}
}

// Candidates returns how each NodeType suits the pod, the closest type first. It looks at a type once for each NodePool
// that takes the pod, with the requirements and the kubelet of that NodePool. The closest answer counts.
func (f Fleet) Candidates(pod *corev1.Pod) []Candidate {
	known := instancetypes.ServerLabels(f.NodeTypes)
	wanted, byType := newSelector(pod, known), map[string]Candidate{}
	request := &matching.Request{Resources: resources.RequestsForPods(pod)}
	if f.Tenant != nil {
		request.Allowed = f.Tenant.Allows
	}
	look := func(nodeType *v1alpha1.NodeType, s selector, pool string, alternatives []scheduling.Requirements) {
		candidate := Candidate{NodeType: nodeType.Name, Foreign: request.Allowed != nil && !request.Allowed(nodeType.Name, nodeType.MadeBy())}
		candidate.Reason, candidate.Clause = explainType(nodeType, request, s)
		if pool != "" && fits(candidate) && !meetsAny(matching.OfferedBy(nodeType), alternatives, known) {
			candidate.Reason, candidate.Clause = requirementNotMet, "does not match nodeSelector/affinity together with NodePool "+pool
		}
		if before, looked := byType[nodeType.Name]; !looked || candidate.closer(&before) < 0 {
			byType[nodeType.Name] = candidate
		}
	}
	for i := range f.NodePools {
		pool := &f.NodePools[i]
		alternatives, why := instancetypes.PoolFits(pool, pod, f.serverLabels())
		if why != nil {
			continue
		}
		class, _ := lo.Find(f.NodeClasses, func(class v1alpha1.MetalNodeClass) bool {
			ref := pool.Spec.Template.Spec.NodeClassRef
			return ref != nil && class.Name == ref.Name
		})
		filter, ofPool := instancetypes.NewFilter(nil, &class), ofNodePool(pool, known)
		request.Kubelet = filter.Kubelet()
		both := selector{required: append(ofPool, wanted.required...), terms: wanted.terms}
		for j := range f.NodeTypes {
			if filter.Allows(&f.NodeTypes[j]) && len(unmetOf(ofPool, matching.OfferedBy(&f.NodeTypes[j]))) == 0 &&
				pool.Spec.Limits.ExceededBy(resources.Merge(pool.Status.Resources, fleetcapacity.Declared(&f.NodeTypes[j]).Resources)) == nil {
				look(&f.NodeTypes[j], both, pool.Name, alternatives)
			}
		}
	}
	// Without a NodePool, say at least what keeps the pod from the type itself.
	request.Kubelet = fleetcapacity.Kubelet{}
	for i := range f.NodeTypes {
		nodeType := &f.NodeTypes[i]
		if _, looked := byType[nodeType.Name]; looked {
			continue
		}
		look(nodeType, wanted, "", nil)
		if candidate := byType[nodeType.Name]; fits(candidate) {
			candidate.Reason, candidate.Clause = NoNodePool, "no NodePool that takes the pod may have it"
			byType[nodeType.Name] = candidate
		}
	}
	return slices.SortedFunc(maps.Values(byType), func(a, b Candidate) int { return a.closer(&b) })
}

func fits(c Candidate) bool { return c.Reason == matching.Fits || c.Reason == NoneFree }

// meetsAny reports whether servers with these labels can meet one of the alternatives, the ways in which Karpenter's
// scheduler reads a pod for a NodePool.
func meetsAny(offered matching.Offered, alternatives []scheduling.Requirements, known sets.Set[string]) bool {
	return slices.ContainsFunc(alternatives, func(wanted scheduling.Requirements) bool {
		for key := range wanted {
			if known.Has(key) && len(offered[key]) > 0 && !slices.ContainsFunc(offered[key], wanted.Get(key).Has) {
				return false
			}
		}
		return true
	})
}

func (f Fleet) serverLabels() sets.Set[string] {
	if f.ServerLabels == nil {
		return karpv1.WellKnownLabels
	}
	return f.ServerLabels
}

// ofNodePool returns the requirements and labels of a NodePool, restricted to known labels.
func ofNodePool(pool *karpv1.NodePool, known sets.Set[string]) []Requirement {
	var all []Requirement
	for _, from := range pool.Spec.Template.Spec.Requirements {
		all = append(all, NewRequirement(corev1.NodeSelectorRequirement{Key: from.Key, Operator: from.Operator, Values: from.Values}))
	}
	for key, value := range pool.Spec.Template.Labels {
		all = append(all, NewRequirement(corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}))
	}
	return slices.DeleteFunc(all, func(requirement Requirement) bool { return !known.Has(requirement.Name) })
}

// explainType returns the first reason that a type does not serve the pod, and describes it in a clause.
func explainType(nodeType *v1alpha1.NodeType, request *matching.Request, labels selector) (matching.Reason, string) {
	described := matching.TypeOf(nodeType)
	if found := described.Check(request); found.Reason != matching.Fits {
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
	// A free server does not help if the type as a whole has reached its limit.
	if capacity.Available > 0 && nodeType.Status.Capacity.Available > 0 {
		return matching.Fits, ""
	}
	if nodeType.Spec.MaxCapacity != nil && capacity.Total > 0 {
		// The servers that are not ready do not matter in this case, and cannot be told from the ones above the limit.
		return NoneFree, fleetcapacity.Describe(capacity, 0, 0, where) + fmt.Sprintf(", limited to %d", *nodeType.Spec.MaxCapacity)
	}
	// A server that is claimed, in error or quarantined can also be too small, so this number may be too low.
	notReady := max(0, fleetcapacity.Rest(capacity)-capacity.TooSmall)
	return NoneFree, fleetcapacity.Describe(capacity, 0, notReady, where)
}

// message joins as many clauses as fit into an event.
func message(prefix string, candidates []Candidate) string {
	// The last clauses may need this much: "; and 1000000 more types; 1000000 NodeTypes are not for this tenant".
	const reserve = 80
	var text strings.Builder
	text.WriteString(prefix)
	// NodeTypes that the pod's NodePools may not have would only crowd out the others.
	ours := lo.Reject(candidates, func(c Candidate, _ int) bool { return c.Reason == NoNodePool })
	named := lo.Reject(ours, func(c Candidate, _ int) bool { return c.Foreign })
	foreign := len(ours) - len(named)
	for i, candidate := range named {
		clause := candidate.NodeType + ": " + candidate.Clause
		if i > 0 {
			clause = "; " + clause
		}
		if text.Len()+len(clause) > conditions.MaxEventNote-reserve {
			fmt.Fprintf(&text, "; and %d more types", len(named)-i)
			break
		}
		text.WriteString(clause)
	}
	if foreign > 0 {
		if len(named) > 0 {
			text.WriteString("; ")
		}
		text.WriteString(matching.Foreign(foreign))
	}
	return text.String()
}

// capacityFor counts the servers of a type in the topology domains that the selector accepts. The second result names
// these domains, such as " in rack r1". It is empty if they have all servers of the type.
func capacityFor(nodeType *v1alpha1.NodeType, offered matching.Offered, s selector) (capacity v1alpha1.Capacity, where string) {
	domains := instancetypes.Domains(nodeType)
	varying := map[string][]string{corev1.LabelTopologyZone: nil}
	for _, domain := range domains {
		for key := range domain.NodeLabels(nodeType.Name) {
			varying[key] = nil
		}
	}
	var accepted int
	var names []string
	for _, domain := range domains {
		// In one domain each of these labels has one value, or none.
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

// nameOf names a domain by the labels that the selector mentions: "rack r1". It names a zone without its label, and
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
		Quarantined: a.Quarantined + b.Quarantined, Maintenance: a.Maintenance + b.Maintenance, TooSmall: a.TooSmall + b.TooSmall,
		NotCleaned: a.NotCleaned + b.NotCleaned,
	}
}

// listed is how many values or places a message names.
const listed = 3

// list names the first of several in sorted order, and counts the others.
func list(names []string) string { return conditions.List(slices.Sorted(slices.Values(names)), listed) }

// Requirement is one requirement of a pod or a NodePool, in the words of its author.
type Requirement struct {
	// Requirement is nil if it is not valid. No server meets an invalid requirement.
	*labels.Requirement
	// Name is the label key that Karpenter uses, which may differ from the author's.
	Name string
	// Text is the requirement as the author wrote it: "rack In [a, b]".
	Text string
}

// NewRequirement converts a requirement.
func NewRequirement(from corev1.NodeSelectorRequirement) Requirement {
	result := Requirement{Name: from.Key, Text: describe(from)}
	if current, deprecated := karpv1.NormalizedLabels[from.Key]; deprecated {
		result.Name, from.Key = current, current
	}
	result.Requirement, _ = matching.Requirement(nil, instancetypes.WithCoreOperator(from))
	return result
}

// describe writes a requirement as in YAML: "rack In [a, b]".
func describe(from corev1.NodeSelectorRequirement) string {
	if len(from.Values) == 0 {
		return fmt.Sprintf("%s %s", from.Key, from.Operator)
	}
	return fmt.Sprintf("%s %s [%s]", from.Key, from.Operator, list(from.Values))
}

// selector holds what a pod requires of the labels of its node.
type selector struct {
	// required must all be met.
	required []Requirement
	// terms are alternatives: all of one term must be met.
	terms [][]Requirement
}

// newSelector ignores labels that are not known: servers do not decide them. NodePools can give any other label to
// their nodes, and Karpenter itself reports a label that no NodePool gives.
func newSelector(pod *corev1.Pod, known sets.Set[string]) selector {
	convert := func(from []corev1.NodeSelectorRequirement) []Requirement {
		list := make([]Requirement, 0, len(from))
		for _, requirement := range from {
			if converted := NewRequirement(requirement); known.Has(converted.Name) {
				list = append(list, converted)
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

// unmet returns the requirements that none of these servers meets, in the author's words. If no term is met, it
// includes the unmet requirements of the closest term.
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

func unmetOf(requirements []Requirement, offered matching.Offered) (unmet []string) {
	for _, requirement := range requirements {
		if requirement.Requirement == nil || !offered.Meets(requirement.Requirement) {
			unmet = append(unmet, requirement.Text)
		}
	}
	return unmet
}

// names reports whether the selector mentions a label.
func (s selector) names(key string) bool {
	isKey := func(requirement Requirement) bool { return requirement.Name == key }
	return slices.ContainsFunc(s.required, isKey) ||
		slices.ContainsFunc(s.terms, func(term []Requirement) bool { return slices.ContainsFunc(term, isKey) })
}
