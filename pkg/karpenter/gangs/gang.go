// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gangs plans servers for pods that need each other: all at one time, or all in one topology domain.
//
// A gang is pods with a required affinity to each other by nvlink-domain, rack or the like, a PodGroup, a pod group of
// Kueue, or pods whose annotation says how many must run at one time. For the first of several pods with affinity,
// Karpenter's core takes any domain that has a server. The others must follow it, whether or not there is capacity.
// Core also plans as many of them as there are servers.
//
// So this package changes the pending pods that core reads, in memory only. The pods of a gang get a requirement for a
// domain that all of them fit into: the cheapest, and among equals the one with the least capacity left over. A gang
// with a stated size (size.go) is hidden from core until that many pods exist and core would plan that many. Once the
// gang has a server, core sees its pods, in the domain of that server: NodeClaims record the gangs that they were
// planned for (mark.go). Running pods fix the domain, and core follows them by itself.
//
// Core decides whether all pods fit: its scheduler plans the pending pods with the requirement, and creates nothing
// (choose.go). The estimate of this package only sets the order of the questions and the text of messages. It knows no
// classes, limits, DaemonSets or volumes.
//
// A gang without a stated size follows Kubernetes' affinity. If core can plan all pods in no domain, as many as
// possible get a server, in the first domain where core plans no fewer than without a requirement. The rest waits.
package gangs

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
)

// gang is pending pods that need each other.
type gang struct {
	// id is the same for all pods of a gang, and differs between gangs.
	id, namespace string
	// affinity of the pods to each other, as text. If they differ within a gang, core follows each by itself.
	affinity string
	// keys are the labels that define the domain, sorted; empty if the pods may run anywhere.
	keys []string
	// selectors select the pods that fix the domain once they run.
	selectors []labels.Selector
	pods      []*corev1.Pod
	// running are the gang's pods with a node. done counts succeeded pods of the same controller, unless it is a Job.
	running []*corev1.Pod
	done    int
	size
	// group is the PodGroup of the pods; unread is the error if it could not be read.
	group  podGroup
	unread error
	// fixed are the domain labels of the gang's running pods, nil if none runs.
	fixed map[string]string
	// servers are the NodeClaims that were planned for these pods.
	servers []*karpv1.NodeClaim
	// domains are the domains that could hold the gang, the best estimate first.
	domains []*domain
	// impossible says what would be missing even if all servers were free, empty if nothing would.
	impossible string
	decision
}

// need returns how many of the pending pods must be planned. Without a minCount, that is all that are to have room.
func (g *gang) need() int {
	if g.minCount == 0 {
		return max(len(g.pods), g.whole)
	}
	return max(0, g.minCount-len(g.running)-g.done)
}

// members returns how many pods of the gang exist or have existed.
func (g *gang) members() int { return len(g.pods) + len(g.running) + g.done }

// lacksCapacity reports whether the gang waits because core does not plan all that it needs.
func (g *gang) lacksCapacity() bool {
	return g.waits.Reason == explain.ReasonInsufficientDomainCapacity
}

// started reports whether the gang has a server.
func (g *gang) started() bool { return len(g.running) > 0 || g.fixed != nil || len(g.servers) > 0 }

// require adds to a pod the requirement for the chosen domain, and the others. It removes the affinity that the
// requirement fulfils, which would only cost core time (BenchmarkSchedulingPass).
func (g *gang) require(pod *corev1.Pod, others ...corev1.NodeSelectorRequirement) {
	if g.chosen != nil {
		others = append(g.chosen.requirements(), others...)
	}
	if len(others) > 0 {
		pod.Spec.Affinity = interceptor.WithNodeRequirements(pod.Spec.Affinity, others...)
	}
	if g.chosen != nil && len(g.selectors) > 0 {
		affinity := *pod.Spec.Affinity.PodAffinity
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = lo.Reject(requiredAffinity(pod),
			func(term corev1.PodAffinityTerm, _ int) bool {
				_, own := ownTerm(pod, term)
				return own
			})
		pod.Spec.Affinity.PodAffinity = &affinity
	}
}

// find returns the gangs among the pods, the oldest first. Others of a gang may already run.
func find(pods []corev1.Pod) []*gang {
	byID := map[string]*gang{}
	var found []*gang
	for i := range pods {
		if !podutils.IsProvisionable(&pods[i]) {
			continue
		}
		candidate := gangOf(&pods[i])
		if candidate == nil {
			continue
		}
		known, again := byID[candidate.id]
		if !again {
			known = candidate
			byID[candidate.id] = known
			found = append(found, known)
		}
		if known.affinity != candidate.affinity {
			known.keys, known.selectors = nil, nil
		}
		known.pods = append(known.pods, &pods[i])
	}
	for _, gang := range found {
		slices.SortFunc(gang.pods, older)
	}
	slices.SortFunc(found, func(a, b *gang) int { return cmp.Or(older(a.pods[0], b.pods[0]), cmp.Compare(a.id, b.id)) })
	return found
}

func older(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// ID returns the ID of the pod's gang, as in the annotation of NodeClaims. It returns "" if the pod has no gang.
func ID(pod *corev1.Pod) string {
	if gang := gangOf(pod); gang != nil {
		return gang.id
	}
	return ""
}

// PodGroupID returns the ID of a PodGroup's gang.
func PodGroupID(podGroup client.ObjectKey) string {
	return podGroup.Namespace + "/PodGroup " + podGroup.Name
}

// gangOf returns the gang of a pod, without its pods, or nil if the pod has no gang.
func gangOf(pod *corev1.Pod) *gang {
	result := &gang{namespace: pod.Namespace}
	var ids []string
	for _, term := range requiredAffinity(pod) {
		selector, own := ownTerm(pod, term)
		if !own {
			continue
		}
		result.keys = append(result.keys, term.TopologyKey)
		result.selectors = append(result.selectors, selector)
		ids = append(ids, term.TopologyKey+" "+selector.String())
	}
	slices.Sort(ids)
	slices.Sort(result.keys)
	result.keys = slices.Compact(result.keys)
	result.affinity = strings.Join(ids, ";")
	name := result.affinity
	switch group := PodGroupOf(pod); {
	case group != "":
		result.id = PodGroupID(client.ObjectKey{Namespace: pod.Namespace, Name: group})
		return result
	case pod.Labels[kueueGroup] != "":
		name = "pod group " + pod.Labels[kueueGroup]
	case name != "":
	case pod.Annotations[v1alpha1.GangMinCountAnnotationKey] != "":
		name = "Pod " + pod.Name
		if owner := metav1.GetControllerOf(pod); owner != nil {
			name = owner.Kind + " " + owner.Name
		}
	default:
		return nil
	}
	result.id = pod.Namespace + "/" + name
	return result
}

// ownTerm reports whether a term makes the pod a member of a gang, and returns the selector of the gang.
func ownTerm(pod *corev1.Pod, term corev1.PodAffinityTerm) (labels.Selector, bool) {
	selector, itself := selectsItself(pod, term)
	return selector, itself && term.TopologyKey != corev1.LabelHostname
}

func requiredAffinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// selectsItself reports whether a term of a pod selects the pod itself. Core handles pods that follow others.
func selectsItself(pod *corev1.Pod, term corev1.PodAffinityTerm) (labels.Selector, bool) {
	if term.NamespaceSelector != nil && len(term.NamespaceSelector.MatchLabels)+len(term.NamespaceSelector.MatchExpressions) > 0 {
		return nil, false
	}
	if len(term.Namespaces) > 0 && term.NamespaceSelector == nil && !slices.Contains(term.Namespaces, pod.Namespace) {
		return nil, false
	}
	selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
		return nil, false
	}
	return selector, true
}

// needs returns what one pod of the gang needs of a server: the largest request of any pod, for each resource.
func (g *gang) needs() corev1.ResourceList {
	most := corev1.ResourceList{}
	for _, pod := range g.pods {
		for name, quantity := range resources.RequestsForPods(pod) {
			if known, found := most[name]; !found || quantity.Cmp(known) > 0 {
				most[name] = quantity
			}
		}
	}
	return most
}

// oneEach reports whether pods of the gang may be unable to share a server: they have anti-affinity to each other, use
// ports of the host, or request devices, which this package does not count.
func (g *gang) oneEach() bool {
	for _, pod := range g.pods {
		if len(pod.Spec.ResourceClaims) > 0 {
			return true
		}
		for _, container := range pod.Spec.Containers {
			if slices.ContainsFunc(container.Ports, func(port corev1.ContainerPort) bool { return port.HostPort != 0 }) {
				return true
			}
		}
		if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
			continue
		}
		for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			if _, itself := selectsItself(pod, term); itself && term.TopologyKey == corev1.LabelHostname {
				return true
			}
		}
	}
	return false
}

// domain is a topology domain that a gang could run in.
type domain struct {
	// keys of the gang, and the value of each. A PodGroup's key is known only while the provisioner lists pods.
	keys, values []string
	// pods counts the pods of the gang that fit, on nodes and free servers together.
	pods int64
	// cost of new servers for the pods that fit.
	cost float64

	nodes []fit[*node]
	free  []fit[instancetypes.FreeServers]
}

// fit is a server, or several equal ones, and the number of a gang's pods that fit on each.
type fit[T any] struct {
	server T
	each   int64
}

// place chooses the domain for a gang: of the domains that all pods fit into the cheapest, then the one with the least
// capacity left over. If there is none, the one that most pods fit into. Running pods fix the domain. place returns all
// domains, the chosen one first, and assumes in the snapshot what the gang will use there. There may be none.
func (s *snapshot) place(g *gang) []*domain {
	request, count := s.request(g), int64(max(len(g.pods), g.whole))
	domains := s.domains(g, request)
	for _, domain := range domains {
		domain.add(s, count)
	}
	domains = slices.DeleteFunc(domains, func(domain *domain) bool { return domain.pods == 0 })
	slices.SortFunc(domains, func(a, b *domain) int {
		if a.pods >= count && b.pods >= count {
			return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.pods, b.pods), slices.Compare(a.values, b.values))
		}
		return cmp.Or(cmp.Compare(b.pods, a.pods), cmp.Compare(a.cost, b.cost), slices.Compare(a.values, b.values))
	})
	if len(domains) > 0 {
		s.assume(domains[0], request, count)
	}
	return domains
}

// domains returns the topology domains of the gang's keys.
func (s *snapshot) domains(g *gang, request podRequest) []*domain {
	byPlace := map[string]*domain{}
	domainAt := func(labels map[string]string) *domain {
		var values []string
		for _, key := range g.keys {
			if labels[key] == "" || g.fixed != nil && labels[key] != g.fixed[key] {
				return nil
			}
			values = append(values, labels[key])
		}
		id := strings.Join(values, "/")
		if byPlace[id] == nil {
			byPlace[id] = &domain{keys: g.keys, values: values}
		}
		return byPlace[id]
	}
	for _, existing := range s.nodes {
		if each := existing.fits(request); each > 0 {
			if place := domainAt(existing.labels); place != nil {
				place.nodes = append(place.nodes, fit[*node]{existing, each})
			}
		}
	}
	for _, servers := range s.free {
		place := domainAt(servers.Labels)
		if place == nil {
			continue
		}
		if each := request.fits(servers); each > 0 {
			place.free = append(place.free, fit[instancetypes.FreeServers]{servers, each})
		}
	}
	domains := make([]*domain, 0, len(byPlace))
	for _, domain := range byPlace {
		// The cheapest for one pod first, and small servers before big ones.
		slices.SortFunc(domain.free, func(a, b fit[instancetypes.FreeServers]) int {
			return cmp.Or(cmp.Compare(price(a.server)/float64(a.each), price(b.server)/float64(b.each)), cmp.Compare(a.each, b.each),
				cmp.Compare(a.server.InstanceType.Name, b.server.InstanceType.Name), cmp.Compare(a.server.ID, b.server.ID))
		})
		domains = append(domains, domain)
	}
	return domains
}

// add computes the pods that fit, and the cost of new servers for count pods.
func (d *domain) add(s *snapshot, count int64) {
	for _, fit := range d.nodes {
		d.pods += fit.each
	}
	missing := max(0, count-d.pods)
	counted := map[string]bool{}
	for _, fit := range d.free {
		if counted[fit.server.ID] {
			continue // the same servers as another type
		}
		counted[fit.server.ID] = true
		free := int64(fit.server.Count - s.assumed[fit.server.ID])
		d.pods += free * fit.each
		servers := min(free, ceil(missing, fit.each))
		d.cost += float64(servers) * price(fit.server)
		missing = max(0, missing-servers*fit.each)
	}
}

// count returns how many free servers of these types the domain has.
func (d *domain) count(types sets.Set[string]) (servers int) {
	counted := sets.New[string]()
	for _, fit := range d.free {
		if types.Has(fit.server.InstanceType.Name) && !counted.Has(fit.server.ID) {
			counted.Insert(fit.server.ID)
			servers += int(fit.server.Count)
		}
	}
	return servers
}

// assume reserves what a gang will use in a domain.
func (s *snapshot) assume(d *domain, request podRequest, count int64) {
	for _, fit := range d.nodes {
		pods := min(count, fit.each)
		fit.server.subtract(request.needs, pods)
		count -= pods
	}
	for _, fit := range d.free {
		free := int64(fit.server.Count - s.assumed[fit.server.ID])
		servers := min(free, ceil(count, fit.each))
		s.assumed[fit.server.ID] += int32(servers)
		count = max(0, count-servers*fit.each)
	}
}

func ceil(count, each int64) int64 { return (count + each - 1) / each }

// price of one of the servers. All offerings of a type have the same price.
func price(servers instancetypes.FreeServers) float64 {
	if len(servers.InstanceType.Offerings) == 0 {
		return math.MaxFloat64
	}
	return servers.InstanceType.Offerings[0].Price
}

// requirements keep a pod in the domain.
func (d *domain) requirements() []corev1.NodeSelectorRequirement {
	var result []corev1.NodeSelectorRequirement
	for i, key := range d.keys {
		result = append(result, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{d.values[i]}})
	}
	return result
}

// snapshot is the capacity for gangs. Placing a gang reduces it.
type snapshot struct {
	free []instancetypes.FreeServers
	// assumed is how many of the free servers the gangs placed so far will use, by FreeServers.ID.
	assumed map[string]int32
	pools   []karpv1.NodePool
	// nodes are the servers that the tenant already has, registered or not.
	nodes []*node
}

// text describes which servers are free.
func (s *snapshot) text() string {
	var free []string
	for _, servers := range s.free {
		free = append(free, fmt.Sprint(servers.ID, " ", servers.Count))
	}
	slices.Sort(free)
	return strings.Join(free, ",")
}

// node is a server of the tenant: a NodeClaim, with its Node once that exists.
type node struct {
	name      string
	labels    map[string]string
	taints    []corev1.Taint
	remaining corev1.ResourceList
	// booting is true until the server has become a node.
	booting bool
}

// subtract reserves what pods use, or will use, of the node.
func (n *node) subtract(requests corev1.ResourceList, times int64) {
	for range times {
		n.remaining = resources.Subtract(n.remaining, requests)
	}
}

// fits returns how many pods of a gang fit on the server.
func (n *node) fits(request podRequest) int64 {
	if scheduling.Taints(n.taints).ToleratesPod(request.pod) != nil ||
		scheduling.NewLabelRequirements(n.labels).Compatible(request.requirements) != nil {
		return 0
	}
	return request.perServer(n.remaining)
}

// podRequest is what each pod of a gang needs of a server.
type podRequest struct {
	pod          *corev1.Pod
	requirements scheduling.Requirements
	// wanted are the requirements of the pod and a NodePool, for each NodePool that could have a node for it.
	wanted  []scheduling.Requirements
	needs   corev1.ResourceList
	oneEach bool
}

func (s *snapshot) request(g *gang) podRequest {
	pod := g.pods[0]
	request := podRequest{
		pod: pod, requirements: scheduling.NewStrictPodRequirements(pod), needs: g.needs(), oneEach: g.oneEach(),
	}
	for i := range s.pools {
		wanted, _ := instancetypes.PoolFits(&s.pools[i], pod, karpv1.WellKnownLabels)
		request.wanted = append(request.wanted, wanted...)
	}
	return request
}

// perServer returns how many pods fit into allocatable.
func (r podRequest) perServer(allocatable corev1.ResourceList) int64 {
	fit := int64(math.MaxInt32)
	if r.oneEach {
		fit = 1
	}
	for name, quantity := range r.needs {
		if quantity.Sign() <= 0 {
			continue
		}
		available := allocatable[name]
		if available.Cmp(quantity) < 0 {
			return 0
		}
		// The addition compensates for rounding errors of floating point.
		fit = min(fit, int64(available.AsApproximateFloat64()/quantity.AsApproximateFloat64()+1e-6))
	}
	return fit
}

// fits returns how many pods fit on each of the free servers, zero if no NodePool allows them there.
func (r podRequest) fits(free instancetypes.FreeServers) int64 {
	for _, wanted := range r.wanted {
		if free.Meet(wanted) {
			return r.perServer(free.InstanceType.Allocatable())
		}
	}
	return 0
}
