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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// byNode is the index of pods by their node, which core has too.
const byNode = "spec.nodeName"

// Dependencies of a Placer.
type Dependencies struct {
	// Client reads the tenant cluster, from a cache with an index of pods by spec.nodeName.
	Client client.Client
	// FreeServers returns the servers that the tenant could get. After an error the pods are left as they are.
	FreeServers func(context.Context) ([]instancetypes.FreeServers, error)
	// NodeClaimOf returns the NodeClaim that core has created for a pending pod, empty if there is none.
	NodeClaimOf func(pod types.NamespacedName) string
	// Plan returns how core would plan these pods now. It creates nothing.
	Plan func(ctx context.Context, pods []*corev1.Pod) (scheduling.Results, error)
}

// Placer chooses topology domains for gangs.
type Placer struct {
	Dependencies

	mu sync.Mutex
	// short are the gangs that no domain had capacity for when pods were listed last: their message, by ID.
	short map[string]string
	// chosen are the domains that were chosen then, by the ID of the gang.
	chosen map[string]*domain
}

// NewPlacer returns a Placer.
func NewPlacer(dependencies Dependencies) *Placer { return &Placer{Dependencies: dependencies} }

// PendingPods adds requirements to the pods of gangs when core lists the pending pods.
func (p *Placer) PendingPods() interceptor.Interceptor {
	return interceptor.OnList(func(ctx context.Context, pods *corev1.PodList, opts []client.ListOption) error {
		if !interceptor.SelectsPending(opts) {
			return nil // Part of a gang must not be placed by itself.
		}
		return p.place(ctx, pods.Items)
	})
}

func (p *Placer) place(ctx context.Context, pending []corev1.Pod) error {
	gangs := find(pending)
	if len(gangs) == 0 {
		p.remember(nil, nil)
		return nil
	}
	for _, gang := range gangs {
		if err := p.fixDomain(ctx, gang); err != nil {
			return err
		}
	}
	if injection.GetControllerName(ctx) == disruption {
		p.repeat(gangs)
		return nil
	}
	snapshot, err := p.snapshot(ctx, pending, gangs)
	if err != nil {
		return err
	}
	for _, gang := range gangs {
		gang.domains = snapshot.place(gang)
	}
	if err := p.choose(ctx, pending, gangs); err != nil {
		// Core meets the same error when it plans, and reports it. Other pods must not wait for gangs.
		log.FromContext(ctx).V(1).Info("not placing gangs", "error", err)
		for _, gang := range gangs {
			gang.chosen = nil
		}
	}
	short, chosen := map[string]string{}, map[string]*domain{}
	for _, gang := range gangs {
		chosen[gang.id] = gang.chosen
		if shortage := shortageOf(gang); shortage != "" {
			short[gang.id] = shortage
		}
		gang.requireOfAll()
	}
	p.remember(short, chosen)
	return nil
}

// disruption is the name of core's controller that lists the pending pods for each node that it could take away.
const disruption = "disruption"

// repeat requires what was chosen when the provisioner listed the pods. Core is not asked: it would plan all pods up to ten times for each
// node.
func (p *Placer) repeat(gangs []*gang) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, gang := range gangs {
		if gang.fixed == nil {
			gang.chosen = p.chosen[gang.id]
		}
		gang.requireOfAll()
	}
}

// fixDomain sets the domain of a gang that has running pods.
func (p *Placer) fixDomain(ctx context.Context, gang *gang) error {
	for _, selector := range gang.selectors {
		pods := &corev1.PodList{}
		if err := p.Client.List(ctx, pods, client.InNamespace(gang.namespace), client.MatchingLabelsSelector{Selector: selector},
			client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing the pods of a gang, %w", err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Spec.NodeName == "" || podutils.IsTerminal(pod) || podutils.IsTerminating(pod) {
				continue
			}
			node := &corev1.Node{}
			found, err := kube.Find(ctx, p.Client, client.ObjectKey{Name: pod.Spec.NodeName}, node)
			if err != nil {
				return err
			}
			if found {
				gang.fixed = node.Labels
				return nil
			}
		}
	}
	return nil
}

// snapshot is the capacity that the gangs can be placed in.
func (p *Placer) snapshot(ctx context.Context, pending []corev1.Pod, gangs []*gang) (*snapshot, error) {
	result := &snapshot{assumed: map[string]int32{}}
	free, err := p.FreeServers(ctx)
	if err != nil {
		// Core cannot create a NodeClaim either then, and lists the pods again.
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

// nodeOf is the server of a NodeClaim, with what its pods leave of it.
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

// taintsOf are the taints that keep pods off a node for good: core does not schedule onto a node that is cordoned, not ready
// or about to be replaced either. The taints of a node that starts are not among them.
func (p *Placer) taintsOf(ctx context.Context, nodeClaim *karpv1.NodeClaim) ([]corev1.Taint, error) {
	node := &corev1.Node{}
	found, err := kube.Find(ctx, p.Client, client.ObjectKey{Name: nodeClaim.Status.NodeName}, node)
	if err != nil || !found {
		return nodeClaim.Spec.Taints, err
	}
	return (&state.StateNode{Node: node, NodeClaim: nodeClaim}).Taints(), nil
}

// assumeNominated subtracts from the nodes what other pending pods will use of them.
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

// namedDomains is how many domains a message names.
const namedDomains = 5

// Shortage says that no domain has capacity for all pods of the gang of a pod, and for how many each has:
// "no nvlink-domain has capacity for all 5 pods of the gang: n2 has capacity for 4, n1 for 2". If pods of the gang run,
// it is about their domain. It is empty if there is capacity, or if the pod belongs to no gang. It is as of the last time that
// core listed the pending pods.
func (p *Placer) Shortage(pod *corev1.Pod) string {
	gang := gangOf(pod)
	if gang == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.short[gang.id]
}

func (p *Placer) remember(short map[string]string, chosen map[string]*domain) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.short, p.chosen = short, chosen
}

// shortageOf returns the message.
func shortageOf(g *gang) string {
	domains := slices.DeleteFunc(g.domains, func(d *domain) bool { return d.pods == 0 })
	slices.SortStableFunc(domains, func(a, b *domain) int { return cmp.Compare(b.pods, a.pods) })
	if len(domains) > 0 && domains[0].pods >= int64(len(g.pods)) {
		return ""
	}
	if g.fixed != nil {
		capacity := int64(0)
		if len(domains) > 0 {
			capacity = domains[0].pods
		}
		var values []string
		for _, key := range g.keys {
			values = append(values, key+" "+g.fixed[key])
		}
		return fmt.Sprintf("%s, where other pods of the gang run, has capacity for %d of these %d pods", strings.Join(values, " and "),
			capacity, len(g.pods))
	}
	sentence := fmt.Sprintf("no %s has capacity for all %d pods of the gang", strings.Join(g.keys, " and "), len(g.pods))
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
		return sentence + ": none has capacity for any of them"
	}
	return sentence + ": " + strings.Join(parts, ", ")
}
