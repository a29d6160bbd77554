// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// byNode is the index of pods by their node. Core uses it, too.
const byNode = "spec.nodeName"

// DefaultIdleDuration is how long a gang without a size waits for pods. kube-controller-manager makes 20 a second.
const DefaultIdleDuration = 10 * time.Second

// Dependencies of a Placer.
type Dependencies struct {
	// Client reads the tenant cluster, from a cache with an index of pods by spec.nodeName.
	Client client.Client
	// FreeServers returns the servers that the tenant could get. After an error the pods stay as they are.
	FreeServers func(context.Context) ([]instancetypes.FreeServers, error)
	// AllServers returns the same as FreeServers would if all servers were free and no quota were used.
	AllServers func(context.Context) ([]instancetypes.FreeServers, error)
	// Live reads the Jobs of gangs from the tenant cluster.
	Live  client.Reader
	Clock clock.PassiveClock
	// IdleDuration is how long a gang without a stated size waits for more pods after the last one came.
	IdleDuration time.Duration
	// NodeClaimOf returns the NodeClaim that core has created for a pending pod, "" if there is none.
	NodeClaimOf func(pod types.NamespacedName) string
	// Plan returns how core would plan these pods now. It creates nothing.
	Plan func(ctx context.Context, pods []*corev1.Pod) (scheduling.Results, error)
}

// Placer chooses topology domains for gangs.
type Placer struct {
	Dependencies

	mu sync.Mutex
	// last are the decisions from the last time that the provisioner listed the pods, by gang ID.
	last map[string]decision
	// marks maps marks to the IDs of these gangs.
	marks map[string]string
}

// decision is the decision on a gang, with its history.
type decision struct {
	// chosen is the domain, nil if core is left to choose.
	chosen *domain
	// waits says why the gang's pods are hidden from core; the zero value if they are not.
	waits explain.Explanation
	// short says which capacity is missing, "" if none is.
	short string
	// most is the largest number of pods that it has had, and since when.
	most  int
	since time.Time
	// together is the number of new servers in its plan if it claims all in one decision, else 0.
	together int32
	// asked is when core was last asked about a waiting gang; free describes the free servers at that time.
	asked time.Time
	free  string
	// stuck is when core began to plan no server for some pods of a gang that has servers.
	stuck time.Time
	// moved is when the gang's servers were last given back; stays is how long the next ones stay.
	moved time.Time
	stays time.Duration
	// measured is true once the metrics include its wait.
	measured bool
}

// isWaiting reports whether the pods of the gang are hidden from core.
func (d decision) isWaiting() bool { return d.waits != (explain.Explanation{}) }

// NewPlacer returns a Placer.
func NewPlacer(dependencies Dependencies) *Placer { return &Placer{Dependencies: dependencies} }

// PendingPods adds requirements to the pods of gangs when core lists the pending pods, and removes waiting pods.
func (p *Placer) PendingPods() interceptor.Interceptor {
	return interceptor.OnList(func(ctx context.Context, pods *corev1.PodList, opts []client.ListOption) error {
		if !interceptor.SelectsPending(opts) {
			return nil // Part of a gang must not be placed by itself.
		}
		gangs, err := p.place(ctx, pods.Items)
		if err != nil {
			return err
		}
		waiting := sets.New[types.UID]()
		for _, gang := range gangs {
			for _, pod := range gang.pods {
				if gang.isWaiting() {
					waiting.Insert(pod.UID)
					continue
				}
				gang.require(pod, gang.mark())
			}
		}
		pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return waiting.Has(pod.UID) })
		return nil
	})
}

// place decides on the gangs among the pending pods.
func (p *Placer) place(ctx context.Context, pending []corev1.Pod) ([]*gang, error) {
	gangs := find(pending)
	if len(gangs) == 0 {
		p.remember(nil)
		return nil, nil
	}
	if injection.GetControllerName(ctx) == disruption {
		p.repeat(gangs)
		return gangs, nil
	}
	gangs = p.readGroups(ctx, gangs)
	if err := p.follow(ctx, gangs); err != nil {
		return nil, err
	}
	snapshot, err := p.snapshot(ctx, pending, gangs)
	if err != nil {
		return nil, err
	}
	p.waitForPods(ctx, gangs)
	for _, gang := range gangs {
		if !gang.isWaiting() {
			gang.domains = snapshot.place(gang)
		}
	}
	if err := p.choose(ctx, pending, gangs, snapshot); err != nil {
		// Core gets the same error when it plans, and reports it. Other pods must not wait for gangs.
		log.FromContext(ctx).V(1).Info("not placing gangs", "error", err)
		for _, gang := range gangs {
			gang.chosen = nil
			if gang.minCount > 0 && !gang.started() && !gang.isWaiting() {
				gang.hold()
			}
		}
	}
	if slices.ContainsFunc(gangs, (*gang).lacksCapacity) {
		p.never(ctx, gangs, snapshot.pools)
	}
	for _, gang := range gangs {
		if gang.short = gang.impossible; gang.short == "" {
			gang.short = shortageOf(gang)
		}
	}
	p.remember(gangs)
	return gangs, nil
}

// disruption is the name of core's controller that lists the pending pods for each node that it could remove.
const disruption = "disruption"

// repeat reuses the decisions from the last time that the provisioner listed the pods. It reads nothing, and does not
// ask core, which would plan all pods many times for each node.
func (p *Placer) repeat(gangs []*gang) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, gang := range gangs {
		gang.decision = p.last[gang.id]
	}
}

// waitForPods makes incomplete gangs wait.
func (p *Placer) waitForPods(ctx context.Context, gangs []*gang) {
	for _, gang := range gangs {
		wait := func(format string, arguments ...any) {
			gang.waits = explain.Explanation{Reason: explain.ReasonGangIncomplete, Message: fmt.Sprintf(format, arguments...)}
		}
		gang.decision = p.lastOf(gang)
		gang.chosen, gang.waits, gang.together = nil, explain.Explanation{}, 0
		members := gang.members()
		if members > gang.most || gang.since.IsZero() {
			gang.most, gang.since = members, p.Clock.Now()
		}
		var problem string
		var err error
		gang.size, problem, err = p.sizeOf(ctx, gang)
		idle := ptr.Deref(gang.idle, p.IdleDuration)
		complete := p.Clock.Since(gang.since) >= idle
		switch {
		case apierrors.IsForbidden(err):
			log.FromContext(ctx).Error(err, "reading the size of a gang: it counts as one that does not say its size")
		case err != nil:
			wait("the size of the gang cannot be read: %v", err)
		case problem != "":
			wait("%s", problem)
		case gang.started():
		case members >= gang.minCount && gang.minCount > 0:
		case gang.minCount > 0 && (gang.firm || !complete):
			wait("%d of the %d pods of the gang exist: it gets no server before all do", members, gang.minCount)
		case !complete:
			wait("the gang does not say its size: it gets servers once no pod of it has come for %s", idle)
		default:
			gang.minCount = 0 // the remaining pods come once these run
		}
	}
}

// follow finds the pods of the gangs that have a node, and the domain that these pods fix.
func (p *Placer) follow(ctx context.Context, gangs []*gang) error {
	for namespace, gangs := range lo.GroupBy(gangs, func(gang *gang) string { return gang.namespace }) {
		byID := lo.KeyBy(gangs, func(gang *gang) string { return gang.id })
		pods := &corev1.PodList{}
		if err := p.Client.List(ctx, pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing the pods of gangs, %w", err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			succeeded := pod.Status.Phase == corev1.PodSucceeded
			if pod.Spec.NodeName == "" || podutils.IsTerminal(pod) && !succeeded || podutils.IsTerminating(pod) {
				continue
			}
			own := gangOf(pod)
			if succeeded {
				if own != nil && byID[own.id] != nil && isOfSameController(pod, byID[own.id].pods[0]) {
					byID[own.id].done++
				}
				continue
			}
			if own != nil && byID[own.id] != nil {
				byID[own.id].running = append(byID[own.id].running, pod)
			}
			for _, gang := range gangs {
				fixes := gang.group.key != "" && own != nil && own.id == gang.id ||
					slices.ContainsFunc(gang.selectors, func(selector labels.Selector) bool { return selector.Matches(labels.Set(pod.Labels)) })
				if gang.fixed != nil || !fixes {
					continue
				}
				node := &corev1.Node{}
				found, err := kube.Find(ctx, p.Client, client.ObjectKey{Name: pod.Spec.NodeName}, node)
				if err != nil {
					return err
				}
				if found {
					gang.fixed = node.Labels
				}
			}
		}
	}
	return nil
}

// isOfSameController reports whether one controller made both pods and, unlike a Job, does not report finished ones.
func isOfSameController(a, b *corev1.Pod) bool {
	owner := metav1.GetControllerOf(a)
	return owner != nil && owner.Kind != "Job" && metav1.IsControlledBy(b, &metav1.ObjectMeta{UID: owner.UID})
}

// snapshot returns the capacity for the gangs.
func (p *Placer) snapshot(ctx context.Context, pending []corev1.Pod, gangs []*gang) (*snapshot, error) {
	result := &snapshot{assumed: map[string]int32{}}
	free, err := p.FreeServers(ctx)
	if err != nil {
		// Then core cannot create a NodeClaim either, and lists the pods again.
		log.FromContext(ctx).V(1).Info("not placing gangs", "error", err)
	}
	result.free = free
	pools := &karpv1.NodePoolList{}
	if err := p.Client.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodePools, %w", err)
	}
	result.pools = pools.Items
	nodeClaims := &karpv1.NodeClaimList{}
	if err := p.Client.List(ctx, nodeClaims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeClaims, %w", err)
	}
	takeServers(gangs, nodeClaims.Items)
	byName := map[string]*node{}
	for i := range nodeClaims.Items {
		nodeClaim := &nodeClaims.Items[i]
		if !nodeClaim.DeletionTimestamp.IsZero() || len(nodeClaim.Status.Allocatable) == 0 {
			continue
		}
		node, err := p.nodeOf(ctx, nodeClaim)
		if err != nil {
			return nil, err
		}
		byName[node.name] = node
		result.nodes = append(result.nodes, node)
	}
	p.assumeNominated(pending, gangs, byName)
	return result, nil
}

// nodeOf returns the server of a NodeClaim, with the resources that its pods leave.
func (p *Placer) nodeOf(ctx context.Context, nodeClaim *karpv1.NodeClaim) (*node, error) {
	result := &node{name: nodeClaim.Name, labels: nodeClaim.Labels, taints: nodeClaim.Spec.Taints, remaining: nodeClaim.Status.Allocatable}
	name := nodeClaim.Status.NodeName
	if name == "" {
		result.booting = true
		return result, nil
	}
	taints, err := p.taintsOf(ctx, nodeClaim)
	if err != nil {
		return nil, err
	}
	result.taints = taints
	pods := &corev1.PodList{}
	if err := p.Client.List(ctx, pods, client.MatchingFields{byNode: name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the pods of node %s, %w", name, err)
	}
	for i := range pods.Items {
		if !podutils.IsTerminal(&pods.Items[i]) {
			result.subtract(resources.RequestsForPods(&pods.Items[i]), 1)
		}
	}
	return result, nil
}

// taintsOf returns the taints that keep pods off a node for good. Core does not schedule onto a node that is cordoned,
// not ready or about to be replaced either. The result omits the taints of a node that starts.
func (p *Placer) taintsOf(ctx context.Context, nodeClaim *karpv1.NodeClaim) ([]corev1.Taint, error) {
	node := &corev1.Node{}
	found, err := kube.Find(ctx, p.Client, client.ObjectKey{Name: nodeClaim.Status.NodeName}, node)
	if err != nil || !found {
		return nodeClaim.Spec.Taints, err
	}
	return (&state.StateNode{Node: node, NodeClaim: nodeClaim}).Taints(), nil
}

// assumeNominated subtracts from nodes what other pending pods will use.
func (p *Placer) assumeNominated(pending []corev1.Pod, gangs []*gang, nodes map[string]*node) {
	members := map[types.NamespacedName]bool{}
	for _, gang := range gangs {
		for _, pod := range gang.pods {
			members[client.ObjectKeyFromObject(pod)] = true
		}
	}
	for i := range pending {
		key := client.ObjectKeyFromObject(&pending[i])
		if members[key] {
			continue
		}
		if node, found := nodes[p.NodeClaimOf(key)]; found {
			node.subtract(resources.RequestsForPods(&pending[i]), 1)
		}
	}
}

// never finds waiting gangs for which even all existing servers are too few. It explains, and decides nothing.
func (p *Placer) never(ctx context.Context, gangs []*gang, pools []karpv1.NodePool) {
	all, err := p.AllServers(ctx)
	if err != nil {
		log.FromContext(ctx).V(1).Info("not counting all servers", "error", err)
		return
	}
	keys := sets.New[string]()
	for _, servers := range all {
		keys = keys.Union(sets.KeySet(servers.Labels))
	}
	for _, gang := range gangs {
		if !gang.lacksCapacity() {
			continue
		}
		if missing := slices.IndexFunc(gang.keys, func(key string) bool { return !keys.Has(key) }); missing >= 0 {
			gang.impossible = fmt.Sprintf("no server has the label %s, of which all %d pods of the gang need the same value: servers have %s",
				gang.keys[missing], gang.need(), strings.Join(sets.List(keys), ", "))
			continue
		}
		empty := &snapshot{free: all, assumed: map[string]int32{}, pools: pools}
		if domains := empty.place(gang); mostPods(domains) < int64(gang.need()) {
			gang.impossible = "with all servers free and no quota used, " + capacityOf(gang, domains) + "; it waits until there are more"
		}
	}
}

// namedDomains limits how many domains a message names.
const namedDomains = 5

// Waits says why the gang of a pod is not planned yet although there may be servers for it: the gang is incomplete. It
// returns "" if there is no such gang. Like Shortage, it describes the last time that core listed the pending pods.
func (p *Placer) Waits(pod *corev1.Pod) string {
	if waits := p.lastOf(gangOf(pod)).waits; waits.Reason == explain.ReasonGangIncomplete {
		return waits.Message
	}
	return ""
}

// Shortage says that no domain has capacity for all pods of a pod's gang, and how many fit into each: "no nvlink-domain
// has capacity for all 5 pods of the gang: n2 has capacity for 4, n1 for 2". If pods of the gang run, it is about their
// domain. It returns "" if there is capacity, or if the pod has no gang. It is as of core's last list.
func (p *Placer) Shortage(pod *corev1.Pod) string { return p.lastOf(gangOf(pod)).short }

// lastOf returns the last decision on a gang, which may be nil.
func (p *Placer) lastOf(gang *gang) decision {
	if gang == nil {
		return decision{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[gang.id]
}

func (p *Placer) remember(gangs []*gang) {
	p.measure(gangs)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.marks = map[string]decision{}, map[string]string{}
	for _, gang := range gangs {
		p.last[gang.id], p.marks[markOf(gang.id)] = gang.decision, gang.id
	}
}

// shortageOf returns the message for Shortage, "" if the gang waits for pods.
func shortageOf(g *gang) string {
	if g.waits.Reason == explain.ReasonGangIncomplete {
		return ""
	}
	count, waits := g.need(), g.isWaiting()
	domains := slices.DeleteFunc(slices.Clone(g.domains), func(d *domain) bool { return d.pods == 0 })
	slices.SortStableFunc(domains, func(a, b *domain) int { return cmp.Compare(b.pods, a.pods) })
	if len(domains) > 0 && domains[0].pods >= int64(count) && !waits {
		return ""
	}
	if g.fixed != nil {
		var values []string
		for _, key := range g.keys {
			values = append(values, key+" "+g.fixed[key])
		}
		return fmt.Sprintf("%s, where other pods of the gang run, has capacity for %d of these %d pods", strings.Join(values, " and "),
			mostPods(domains), len(g.pods))
	}
	if waits {
		return capacityOf(g, domains) + "; it gets no server before there is room for all at one time"
	}
	return capacityOf(g, domains)
}

func mostPods(domains []*domain) int64 {
	if len(domains) == 0 {
		return 0
	}
	return domains[0].pods
}

// capacityOf says how many pods of a gang each domain has capacity for, the largest domain first.
func capacityOf(g *gang, domains []*domain) string {
	count := g.need()
	if len(g.keys) == 0 {
		return fmt.Sprintf("there is capacity for %d of the %d pods of the gang", min(mostPods(domains), int64(count)), count)
	}
	sentence := fmt.Sprintf("no %s has capacity for all %d pods of the gang", strings.Join(g.keys, " and "), count)
	var parts []string
	for i, domain := range domains {
		if i == namedDomains {
			parts = append(parts, fmt.Sprintf("and %d more have less", len(domains)-i))
			break
		}
		place := strings.Join(domain.values, "/")
		if i == 0 {
			parts = append(parts, fmt.Sprintf("%s has capacity for %d", place, domain.pods))
		} else {
			parts = append(parts, fmt.Sprintf("%s for %d", place, domain.pods))
		}
	}
	if len(parts) == 0 {
		parts = []string{"none has capacity for any of them"}
	}
	return sentence + ": " + strings.Join(parts, ", ")
}
