// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/affinity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// byNode is the index of pods by their node, which core has too.
const byNode = "spec.nodeName"

// Options are what placing needs to know besides what the client sees.
type Options struct {
	// Rooms are the free servers that the tenant could have. An error leaves the pods to core.
	Rooms func(context.Context) ([]instancetypes.Room, error)
	// NodeClaimOf is the NodeClaim that core has in the making for a pod, empty if it has none. It may be nil.
	NodeClaimOf func(pod types.NamespacedName) string
	// Use is told, before core plans, by which labels of nodes pods and NodePools select, spread or gather. It may be
	// nil.
	Use func(labels []string)
}

// Client is a client for Karpenter's core: what it lists as pods without a node requires, in memory only, the domain
// that was picked for its gang. Everything else is the client's that it was made from. It must not be given to anybody
// who writes pods back.
type Client struct {
	client.Client
	options Options

	mu sync.Mutex
	// short are the gangs, by ID, that no domain had room for when pods were listed last.
	short map[string]string
}

// New returns a Client that reads and writes by another one, which has an index of pods by spec.nodeName.
func New(c client.Client, options Options) *Client {
	if options.NodeClaimOf == nil {
		options.NodeClaimOf = func(types.NamespacedName) string { return "" }
	}
	return &Client{Client: c, options: options, short: map[string]string{}}
}

// List lists as the client does, and adds requirements to pods without a node.
func (c *Client) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	pods, ok := list.(*corev1.PodList)
	if !ok || !withoutNode(opts) {
		return nil
	}
	if err := c.use(ctx, pods.Items); err != nil {
		return err
	}
	gangs := find(pods.Items)
	if len(gangs) == 0 {
		c.report(nil)
		return nil
	}
	for _, gang := range gangs {
		if err := c.follow(ctx, gang); err != nil {
			return err
		}
	}
	fleet, err := c.fleet(ctx, pods.Items, gangs)
	if err != nil {
		return err
	}
	short := map[string]string{}
	for _, gang := range gangs {
		domains := fleet.place(gang)
		if shortage := shortageOf(gang, domains); shortage != "" {
			short[gang.id] = shortage
		}
		if gang.fixed != nil || len(domains) == 0 {
			continue // Core follows the pods that run, or says why there is no server.
		}
		requirements := domains[0].requirements(gang.keys)
		for _, pod := range gang.pods {
			// The items are the list's own, but what they point to may be the cache's.
			pod.Spec.Affinity = affinity.Require(pod.Spec.Affinity, requirements...)
		}
	}
	c.report(short)
	return nil
}

// withoutNode tells whether a list is of all pods that have no node, as core lists those to be scheduled.
func withoutNode(opts []client.ListOption) bool {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	if options.FieldSelector == nil || options.Namespace != "" || options.LabelSelector != nil {
		return false
	}
	node, exact := options.FieldSelector.RequiresExactMatch(byNode)
	return exact && node == ""
}

// follow finds out which domain pods of the gang that run have chosen, if any do.
func (c *Client) follow(ctx context.Context, gang *gang) error {
	for _, selector := range gang.selectors {
		pods := &corev1.PodList{}
		if err := c.Client.List(ctx, pods, client.InNamespace(gang.namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing the pods of a gang, %w", err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Spec.NodeName == "" || podutils.IsTerminal(pod) || podutils.IsTerminating(pod) {
				continue
			}
			node := &corev1.Node{}
			if err := c.Client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node); err != nil {
				if client.IgnoreNotFound(err) != nil {
					return fmt.Errorf("reading node %s, %w", pod.Spec.NodeName, err)
				}
				continue
			}
			gang.fixed = node.Labels
			return nil
		}
	}
	return nil
}

// fleet is what there is to place the gangs in.
func (c *Client) fleet(ctx context.Context, pending []corev1.Pod, gangs []*gang) (*fleet, error) {
	result := &fleet{taken: map[string]int32{}}
	rooms, err := c.options.Rooms(ctx)
	if err != nil {
		// Core cannot make a server either then, and asks again.
		log.FromContext(ctx).V(1).Info("not placing gangs", "error", err)
	}
	result.rooms = rooms
	pools := &karpenterv1.NodePoolList{}
	if err := c.Client.List(ctx, pools); err != nil {
		return nil, fmt.Errorf("listing NodePools, %w", err)
	}
	result.pools = slices.DeleteFunc(pools.Items, func(pool karpenterv1.NodePool) bool {
		return !pool.DeletionTimestamp.IsZero() || pool.Spec.Replicas != nil
	})
	nodeClaims := &karpenterv1.NodeClaimList{}
	if err := c.Client.List(ctx, nodeClaims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeClaims, %w", err)
	}
	byName := map[string]*standing{}
	for i := range nodeClaims.Items {
		nodeClaim := &nodeClaims.Items[i]
		if !nodeClaim.DeletionTimestamp.IsZero() || len(nodeClaim.Status.Allocatable) == 0 {
			continue
		}
		server := &standing{name: nodeClaim.Name, labels: nodeClaim.Labels, taints: nodeClaim.Spec.Taints, remaining: nodeClaim.Status.Allocatable}
		if nodeClaim.Status.NodeName != "" {
			taints, err := c.taintsOf(ctx, nodeClaim)
			if err != nil {
				return nil, err
			}
			server.taints = taints
			pods := &corev1.PodList{}
			if err := c.Client.List(ctx, pods, client.MatchingFields{byNode: nodeClaim.Status.NodeName}, client.UnsafeDisableDeepCopy); err != nil {
				return nil, fmt.Errorf("listing the pods of node %s, %w", nodeClaim.Status.NodeName, err)
			}
			for i := range pods.Items {
				if !podutils.IsTerminal(&pods.Items[i]) {
					server.less(resources.RequestsForPods(&pods.Items[i]), 1)
				}
			}
		}
		byName[server.name] = server
		result.standing = append(result.standing, server)
	}
	c.promised(pending, gangs, byName)
	return result, nil
}

// taintsOf are those that keep pods off a server for good: a node that is cordoned, not ready or about to be replaced has
// no room, and core does not plan with it either. Those of a node that comes up pass.
func (c *Client) taintsOf(ctx context.Context, nodeClaim *karpenterv1.NodeClaim) ([]corev1.Taint, error) {
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, types.NamespacedName{Name: nodeClaim.Status.NodeName}, node); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading node %s, %w", nodeClaim.Status.NodeName, err)
		}
		return nodeClaim.Spec.Taints, nil
	}
	return (&state.StateNode{Node: node, NodeClaim: nodeClaim}).Taints(), nil
}

// promised takes off the servers that are on the way what other pods will have of them.
func (c *Client) promised(pending []corev1.Pod, gangs []*gang, servers map[string]*standing) {
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
		if server, found := servers[c.options.NodeClaimOf(key)]; found {
			server.less(resources.RequestsForPods(&pending[i]), 1)
		}
	}
}
