// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// reasonPodNotPlaced: a node was launched for a pod and is ready and empty, and Karpenter finds no room for the pod on it.
	reasonPodNotPlaced = "PodNotPlaced"
	// placementTimeout is how long core must find no room for a pod on its ready, empty node before others of its size are held back:
	// a taint of a network plugin or a count of devices may be there for a moment only. Core waits as long before it gives the node back.
	placementTimeout = 15 * time.Second
	// maxQuestions is how many pods core is asked about at most each askPeriod. Each question plans one pod on one node.
	maxQuestions, askPeriod = 16, 5 * time.Second
	// firstHoldback is how long pods of that size get no other server of the type. It is doubled each time, up to maxHoldback: each trial
	// installs and cleans a server.
	firstHoldback = 30 * time.Minute
	maxHoldback   = 8 * time.Hour
)

// holdbackDomain is that of the labels by which core keeps pods off types: a type has the label, and the pod requires that it does not
// exist. No node has one, so that pods still fit the nodes that there are. They exist in memory only.
const holdbackDomain = "held-back." + v1alpha1.Group + "/"

// holdbacks are the pods whose nodes do not take them: core would launch one server after the other for them.
type holdbacks struct {
	mu sync.Mutex
	// asked is when core was asked last about pods.
	asked time.Time
	// notPlaced are the pods that are pending while the node that was launched for them is ready and empty.
	notPlaced map[types.UID]notPlaced
	// sizes of the pods for which there is a refusal, with the NodeClaim and the node for which it was recorded.
	sizes map[poolType]map[string]notPlaced
}

// notPlaced is the node that a pod is not on.
type notPlaced struct {
	key        poolType
	generation generation // when it was seen: a node of an earlier class says nothing about the next one
	nodeClaim  string
	node       string
	since      time.Time
	// refused is whether core has found no room for the pod on the node since then.
	refused bool
}

// HoldBack returns the labels that must not exist on a new node of a pod, by the UID of the pod. pending are all pods without a
// node. nodeClaimOf returns the NodeClaim that core had planned a pod for, and takes whether core finds room on the node of a NodeClaim
// for a pod if there are no other pods and no other nodes.
//
// A pod is held back from the type of the node that was launched for it while that node is ready and holds no pods. It still gets any
// node that there is, and any other type. If core plans it elsewhere or nowhere, core is asked. A node that takes the pod is no reason:
// pods that start together, another pod that is first, a volume and kube-scheduler itself keep pods off nodes, too. If core finds no room
// there for longer than a node takes to settle, all pods of that size are held back, as after a refusal.
func (c *CloudProvider) HoldBack(ctx context.Context, pending []corev1.Pod, nodeClaimOf func(types.NamespacedName) string,
	takes func(ctx context.Context, pod *corev1.Pod, nodeClaim string) bool) (map[types.UID][]string, error) {
	c.holdbacks.mu.Lock()
	defer c.holdbacks.mu.Unlock()
	failed, nominated := map[types.UID]*corev1.Pod{}, map[string]bool{}
	for i := range pending {
		nominated[pending[i].Status.NominatedNodeName] = true
		if podutils.IsProvisionable(&pending[i]) {
			failed[pending[i].UID] = &pending[i]
		}
	}
	for uid := range c.holdbacks.notPlaced {
		if failed[uid] == nil {
			delete(c.holdbacks.notPlaced, uid)
		}
	}
	if len(failed) == 0 {
		return nil, nil
	}
	nodes, err := c.emptyNodes(ctx, nominated)
	if err != nil {
		return nil, err
	}
	questions := 0
	if c.clock.Since(c.holdbacks.asked) >= askPeriod {
		questions, c.holdbacks.asked = maxQuestions, c.clock.Now()
	}
	if err := c.endHoldbacks(ctx, failed, nodes, takes); err != nil {
		return nil, err
	}
	for uid, pod := range failed {
		planned := nodeClaimOf(client.ObjectKeyFromObject(pod))
		seen, found := c.holdbacks.notPlaced[uid]
		node, empty := nodes.empty[seen.nodeClaim]
		switch {
		case !found || nodes.hold(seen.nodeClaim):
			delete(c.holdbacks.notPlaced, uid)
			if node, found := nodes.launchedFor(pod, planned); found {
				if seen, found := c.newNotPlaced(ctx, node); found {
					c.holdbacks.notPlaced[uid] = seen
				}
			}
			continue
		case !empty && !seen.refused:
			delete(c.holdbacks.notPlaced, uid)
			continue
		case planned == seen.nodeClaim: // core plans it there in each pass
			seen.refused, seen.since = false, c.clock.Now()
		case empty && questions > 0:
			questions--
			c.holdbacks.mu.Unlock() // core asks heldBack for its types
			seen.refused = !takes(ctx, pod, seen.nodeClaim)
			c.holdbacks.mu.Lock()
			if !seen.refused {
				delete(c.holdbacks.notPlaced, uid)
				continue
			}
		}
		if seen.refused && c.clock.Since(seen.since) >= placementTimeout {
			c.recordHoldback(ctx, seen, pod, node)
		}
		c.holdbacks.notPlaced[uid] = seen
		if !empty {
			delete(c.holdbacks.notPlaced, uid) // the node says nothing about the next one
		}
	}
	return c.holdbackLabels(failed), nil
}

// newNotPlaced returns false if the NodePool, its class or the TenantCluster cannot be read: then core launches nothing either.
func (c *CloudProvider) newNotPlaced(ctx context.Context, node emptyNode) (notPlaced, bool) {
	key := poolType{nodePool: node.nodeClaim.Labels[karpv1.NodePoolLabelKey], nodeType: node.nodeClaim.Labels[corev1.LabelInstanceTypeStable]}
	class, cluster := &v1alpha1.MetalNodeClass{}, &v1alpha1.TenantCluster{}
	nodePool, poolErr := c.nodePoolOf(ctx, node.nodeClaim)
	classErr := c.tenant.Get(ctx, types.NamespacedName{Name: node.nodeClaim.Spec.NodeClassRef.Name}, class)
	clusterErr := c.management.Client.Get(ctx, c.tenantKey(), cluster)
	if errors.Join(poolErr, classErr, clusterErr) != nil || nodePool == nil || key.nodeType == "" {
		return notPlaced{}, false
	}
	depends := c.generation(scope{nodePool: nodePool, class: class, tenant: cluster}, key.nodeType)
	return notPlaced{key: key, generation: depends.after(reasonPodNotPlaced), nodeClaim: node.nodeClaim.Name, node: node.node.Name,
		since: c.clock.Now()}, true
}

// endHoldbacks ends those of sizes whose evidence is refuted: the node on which core has found no room for a pod has taken one
// of that size, or core finds room for one now.
func (c *CloudProvider) endHoldbacks(ctx context.Context, failed map[types.UID]*corev1.Pod, nodes emptyNodes,
	takes func(ctx context.Context, pod *corev1.Pod, nodeClaim string) bool) error {
	for key, sizes := range c.holdbacks.sizes {
		for size, seen := range sizes {
			pods := &corev1.PodList{}
			if err := c.tenant.List(ctx, pods, client.MatchingFields{"spec.nodeName": seen.node},
				client.UnsafeDisableDeepCopy); err != nil {
				return fmt.Errorf("listing the pods of node %s, %w", seen.node, err)
			}
			refuted := slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return sizeOf(&pod) == size })
			if _, empty := nodes.empty[seen.nodeClaim]; empty && !refuted {
				for _, pod := range failed {
					if sizeOf(pod) == size {
						c.holdbacks.mu.Unlock() // core asks heldBack for its types
						refuted = takes(ctx, pod, seen.nodeClaim)
						c.holdbacks.mu.Lock()
						break
					}
				}
			}
			if refuted {
				c.refusals.byType.Delete(poolType{nodePool: key.nodePool, nodeType: key.nodeType, pods: size})
				delete(sizes, size)
			}
		}
	}
	return nil
}

// recordHoldback holds all pods back that are like the pod. The node is the zero value if it was given back meanwhile.
func (c *CloudProvider) recordHoldback(ctx context.Context, seen notPlaced, pod *corev1.Pod, node emptyNode) {
	key := seen.key
	key.pods = sizeOf(pod)
	message := fmt.Sprintf("the node of NodeClaim %s is ready and empty, and has no room for pods like %s, which asks for %s",
		seen.nodeClaim, client.ObjectKeyFromObject(pod), describeResources(resources.RequestsForPods(pod)))
	if node.node != nil {
		message += fmt.Sprintf("; Node %s has %s", node.node.Name, describeResources(node.node.Status.Allocatable))
		separator := ", taints "
		for _, taint := range node.node.Spec.Taints {
			message += separator + taint.ToString()
			separator = " "
		}
	}
	recorded, begins := c.refusals.record(key, attempt{generation: seen.generation}, c.clock.Now(),
		metav1.Condition{Reason: reasonPodNotPlaced, Message: message})
	if c.holdbacks.sizes[seen.key] == nil {
		c.holdbacks.sizes[seen.key] = map[string]notPlaced{}
	}
	c.holdbacks.sizes[seen.key][key.pods] = seen
	nodePool := &karpv1.NodePool{}
	if found, err := kube.Find(ctx, c.tenant, types.NamespacedName{Name: key.nodePool}, nodePool); begins && found && err == nil {
		c.recorder.Publish(tenant.Warning(nodePool, reasonPodNotPlaced, fmt.Sprintf("no NodeClaim of NodeType %s is made for pods of one size "+
			"before %s, %s: %s", key.nodeType, recorded.until.UTC().Format(time.RFC3339), untilChanged, message)))
	}
}

// holdbackLabels returns the labels for the pods that are held back from some type.
func (c *CloudProvider) holdbackLabels(pods map[types.UID]*corev1.Pod) map[types.UID][]string {
	recorded := map[string]bool{}
	for key, sizes := range c.holdbacks.sizes {
		for size := range sizes {
			sized := key
			sized.pods = size
			if _, found := c.refusals.byType.Get(sized); found {
				recorded[size] = true
			} else {
				delete(sizes, size)
			}
		}
	}
	labels := map[types.UID][]string{}
	for uid, pod := range pods {
		if _, found := c.holdbacks.notPlaced[uid]; found {
			labels[uid] = append(labels[uid], holdbackLabel(string(uid)))
		}
		if len(recorded) == 0 {
			continue // sizes are not computed for nothing
		}
		if size := sizeOf(pod); recorded[size] {
			labels[uid] = append(labels[uid], holdbackLabel(size))
		}
	}
	return labels
}

// heldBack returns the labels of a type for a NodePool: pods that are held back from it require that they do not exist.
func (c *CloudProvider) heldBack(s scope, nodeType string) (labels []string) {
	if s.nodePool == nil {
		return nil
	}
	c.holdbacks.mu.Lock()
	defer c.holdbacks.mu.Unlock()
	key := poolType{nodePool: s.nodePool.Name, nodeType: nodeType}
	current := c.generation(s, nodeType)
	for uid, seen := range c.holdbacks.notPlaced {
		if seen.key == key && seen.generation == current.after(reasonPodNotPlaced) {
			labels = append(labels, holdbackLabel(string(uid)))
		}
	}
	for size := range c.holdbacks.sizes[key] {
		key.pods = size
		if _, found := c.refusals.find(key, current); found {
			labels = append(labels, holdbackLabel(size))
		}
	}
	return labels
}

func holdbackLabel(id string) string {
	return holdbackDomain + fmt.Sprintf("%x", sha256.Sum256([]byte(id)))[:32]
}

// sizeOf identifies pods that fit the same nodes, as far as the pods themselves say.
func sizeOf(pod *corev1.Pod) string {
	spec := &pod.Spec
	text, _ := json.Marshal([]any{resources.RequestsForPods(pod), spec.NodeSelector, spec.Affinity, spec.Tolerations}) // never fails
	return string(text)
}

func describeResources(list corev1.ResourceList) string {
	var parts []string
	for name, quantity := range list {
		if !quantity.IsZero() {
			parts = append(parts, fmt.Sprintf("%s %s", name, quantity.String()))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// emptyNode is a node that takes pods and has none but those of DaemonSets.
type emptyNode struct {
	nodeClaim *karpv1.NodeClaim
	node      *corev1.Node
}

// emptyNodes are those of the tenant by their NodeClaim.
type emptyNodes struct {
	empty map[string]emptyNode
	// others are the NodeClaims that are neither being deleted nor have an empty node.
	others map[string]bool
}

// emptyNodes leaves out the nodes that kube-scheduler has nominated for pods: they wait for a volume, or for others to be evicted.
func (c *CloudProvider) emptyNodes(ctx context.Context, nominated map[string]bool) (emptyNodes, error) {
	result := emptyNodes{map[string]emptyNode{}, map[string]bool{}}
	nodeClaims := &karpv1.NodeClaimList{}
	if err := c.tenant.List(ctx, nodeClaims, client.UnsafeDisableDeepCopy); err != nil {
		return result, fmt.Errorf("listing NodeClaims, %w", err)
	}
	for i := range nodeClaims.Items {
		nodeClaim := &nodeClaims.Items[i]
		if !nodeClaim.DeletionTimestamp.IsZero() {
			continue
		}
		result.others[nodeClaim.Name] = true
		if conditions.Find(nodeClaim.Status.Conditions, karpv1.ConditionTypeInitialized).Status != metav1.ConditionTrue ||
			nominated[nodeClaim.Status.NodeName] {
			continue
		}
		pods := &corev1.PodList{}
		if err := c.tenant.List(ctx, pods, client.MatchingFields{"spec.nodeName": nodeClaim.Status.NodeName},
			client.UnsafeDisableDeepCopy); err != nil {
			return result, fmt.Errorf("listing the pods of node %s, %w", nodeClaim.Status.NodeName, err)
		}
		if slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
			return !podutils.IsTerminal(&pod) && !podutils.IsOwnedByDaemonSet(&pod) && !podutils.IsOwnedByNode(&pod)
		}) {
			continue
		}
		node := &corev1.Node{}
		found, err := kube.Find(ctx, c.tenant, types.NamespacedName{Name: nodeClaim.Status.NodeName}, node)
		if err != nil {
			return result, err
		}
		if found && node.DeletionTimestamp.IsZero() && !node.Spec.Unschedulable &&
			nodeutils.GetCondition(node, corev1.NodeReady).Status == corev1.ConditionTrue {
			delete(result.others, nodeClaim.Name)
			result.empty[nodeClaim.Name] = emptyNode{nodeClaim, node}
		}
	}
	return result, nil
}

// hold returns whether the node of a NodeClaim that was empty holds pods by now, or takes none, as one that is not ready.
func (n emptyNodes) hold(nodeClaim string) bool { return n.others[nodeClaim] }

// launchedFor returns the empty node that was launched for a pod. planned is the NodeClaim that core had planned it for. Core forgets
// that when it restarts, or finds no place for the pod. Then it is a node whose NodeClaim was made after the pod, for pods of at least
// that size, and which takes the pod by all that the NodeClaim says.
func (n emptyNodes) launchedFor(pod *corev1.Pod, planned string) (emptyNode, bool) {
	if planned != "" {
		node, found := n.empty[planned]
		return node, found
	}
	requests := resources.RequestsForPods(pod)
	wanted := scheduling.NewStrictPodRequirements(pod)
	for _, node := range n.empty {
		nodeClaim := node.nodeClaim
		if pod.CreationTimestamp.Before(&nodeClaim.CreationTimestamp) && resources.Fits(requests, nodeClaim.Spec.Resources.Requests) &&
			scheduling.Taints(nodeClaim.Spec.Taints).ToleratesPod(pod) == nil &&
			scheduling.NewLabelRequirements(nodeClaim.Labels).Compatible(wanted) == nil {
			return node, true
		}
	}
	return emptyNode{}, false
}
