// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"crypto/sha256"
	"encoding/json"
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
	// reasonPodNotPlaced: the node launched for a pod is ready and empty, but Karpenter finds no room for it there.
	reasonPodNotPlaced = "PodNotPlaced"
	// placementTimeout is how long core must find no room for a pod on its ready, empty node before other pods of its
	// size are held back. A taint of a network plugin or a count of devices may be there only for a moment. Core waits
	// as long before it gives the node back.
	placementTimeout = 15 * time.Second
	// maxQuestions is how many questions core may get in each askPeriod. Each question plans one pod on one node.
	maxQuestions, askPeriod = 16, 5 * time.Second
	// firstHoldback is how long pods of that size get no other server of the type. It doubles each time, up to
	// maxHoldback, because each trial installs and cleans a server.
	firstHoldback = 30 * time.Minute
	maxHoldback   = 8 * time.Hour
)

// holdbackDomain is the domain of the labels that make core keep pods off types: the type has the label, and the pod
// requires that the label does not exist. No node has it, so existing nodes still fit. The labels exist in memory only.
const holdbackDomain = "held-back." + v1alpha1.Group + "/"

// holdbacks are the pods that do not fit the nodes launched for them: core would launch one server after the other.
type holdbacks struct {
	mu sync.Mutex
	// asked is when core was last asked about pods.
	asked time.Time
	// notPlaced are the pods that are pending while the node that was launched for them is ready and empty, by UID.
	notPlaced map[types.UID]*notPlaced
	// sizes are the pod sizes that were refused, each with the NodeClaim and the node that proved it.
	sizes map[poolType]*notPlaced
}

// notPlaced is the node that was launched for a pod, while the pod is not on it.
type notPlaced struct {
	key       poolType
	nodeClaim string
	node      string
	since     time.Time
	// refused: core has found no room for the pod on the node since then.
	refused bool
	// outdated: the class, for example, has changed since. The node says nothing about the next one.
	outdated bool
}

// HoldBack returns the labels that must not exist on a new node of a pod, by the UID of the pod. pending are all pods
// without a node. nodeClaimOf returns the NodeClaim that core had planned for a pod. takes reports whether core finds
// room for the pod on the node of a NodeClaim, without any other pods and nodes.
//
// HoldBack holds a pod back from a type while the node of that type that was launched for the pod is ready and holds no
// pods. The pod still gets any existing node, and any other type. If core plans the pod elsewhere or nowhere, HoldBack
// asks core. A node that takes the pod is no reason to hold back: pods that start together, another pod that is first,
// a volume and kube-scheduler itself keep pods off nodes, too. If core finds no room there for longer than a node takes
// to settle, HoldBack holds all pods of that size back, as after a refusal.
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
	// ask returns whether core finds room. It returns false when core has been asked often enough.
	ask := func(pod *corev1.Pod, nodeClaim string) bool {
		if questions == 0 {
			return false
		}
		questions--
		c.holdbacks.mu.Unlock() // core asks heldBack for its types
		defer c.holdbacks.mu.Lock()
		return takes(ctx, pod, nodeClaim)
	}
	if err := c.endHoldbacks(ctx, failed, nodes, ask); err != nil {
		return nil, err
	}
	for uid, pod := range failed {
		planned := nodeClaimOf(client.ObjectKeyFromObject(pod))
		seen, found := c.holdbacks.notPlaced[uid]
		if !found || nodes.hold(seen.nodeClaim) {
			delete(c.holdbacks.notPlaced, uid)
			if node, found := nodes.launchedFor(pod, planned); found {
				labels := node.nodeClaim.Labels
				c.holdbacks.notPlaced[uid] = &notPlaced{
					key:       poolType{nodePool: labels[karpv1.NodePoolLabelKey], nodeType: labels[corev1.LabelInstanceTypeStable]},
					nodeClaim: node.nodeClaim.Name, node: node.node.Name, since: c.clock.Now(),
				}
			}
			continue
		}
		node, empty := nodes.empty[seen.nodeClaim]
		switch {
		case !empty && !seen.refused:
			delete(c.holdbacks.notPlaced, uid)
			continue
		case planned == seen.nodeClaim: // core plans it there in each pass
			seen.refused, seen.since = false, c.clock.Now()
		case empty && questions > 0:
			seen.refused = !ask(pod, seen.nodeClaim)
			if !seen.refused {
				delete(c.holdbacks.notPlaced, uid)
				continue
			}
		}
		if seen.refused && !seen.outdated && c.clock.Since(seen.since) >= placementTimeout {
			c.recordHoldback(ctx, seen, pod, node)
		}
		if !empty {
			delete(c.holdbacks.notPlaced, uid) // the node says nothing about the next one
		}
	}
	return c.holdbackLabels(failed), nil
}

// endHoldbacks ends the holdback of each size with refuted evidence: the node had no room for a pod of that size, but
// has taken one since, or core finds room for one now.
func (c *CloudProvider) endHoldbacks(ctx context.Context, failed map[types.UID]*corev1.Pod, nodes emptyNodes,
	ask func(pod *corev1.Pod, nodeClaim string) bool) error {
	for key, seen := range c.holdbacks.sizes {
		pods := &corev1.PodList{}
		if err := c.tenant.List(ctx, pods, client.MatchingFields{"spec.nodeName": seen.node},
			client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing the pods of node %s, %w", seen.node, err)
		}
		refuted := slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return sizeOf(&pod) == key.pods })
		if _, empty := nodes.empty[seen.nodeClaim]; empty && !refuted {
			for _, pod := range failed {
				if sizeOf(pod) == key.pods {
					refuted = ask(pod, seen.nodeClaim)
					break
				}
			}
		}
		if refuted {
			c.refusals.forget(func(held poolType, _ refusal) bool { return held == key })
			delete(c.holdbacks.sizes, key)
		}
	}
	return nil
}

// recordHoldback holds back all pods of the same size. node is the zero value if the node was given back meanwhile.
func (c *CloudProvider) recordHoldback(ctx context.Context, seen *notPlaced, pod *corev1.Pod, node emptyNode) {
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
	recorded, begins := c.refusals.record(key, "", c.clock.Now(),
		metav1.Condition{Reason: reasonPodNotPlaced, Message: message})
	c.holdbacks.sizes[key] = seen
	nodePool := &karpv1.NodePool{}
	if found, err := kube.Find(ctx, c.tenant, types.NamespacedName{Name: key.nodePool}, nodePool); begins && found && err == nil {
		c.recorder.Publish(tenant.Warning(nodePool, reasonPodNotPlaced, fmt.Sprintf("no NodeClaim of NodeType %s is made for pods of one size "+
			"before %s, %s: %s", key.nodeType, recorded.until.UTC().Format(time.RFC3339), untilChanged, message)))
	}
}

// holdbackLabels returns the labels of each pod that is held back from some type.
func (c *CloudProvider) holdbackLabels(pods map[types.UID]*corev1.Pod) map[types.UID][]string {
	recorded := map[string]bool{}
	for key := range c.holdbacks.sizes {
		if _, found := c.refusals.find(key); found {
			recorded[key.pods] = true
		} else {
			delete(c.holdbacks.sizes, key)
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

// heldBack returns the holdback labels of a type for a NodePool. A held-back pod requires that they do not exist.
func (c *CloudProvider) heldBack(s scope, nodeType string) (labels []string) {
	if s.nodePool == nil {
		return nil
	}
	c.holdbacks.mu.Lock()
	defer c.holdbacks.mu.Unlock()
	asked := func(key poolType) bool { return key.nodePool == s.nodePool.Name && key.nodeType == nodeType }
	for uid, seen := range c.holdbacks.notPlaced {
		if asked(seen.key) && !seen.outdated {
			labels = append(labels, holdbackLabel(string(uid)))
		}
	}
	for key := range c.holdbacks.sizes {
		if _, found := c.refusals.find(key); found && asked(key) {
			labels = append(labels, holdbackLabel(key.pods))
		}
	}
	return labels
}

func holdbackLabel(id string) string {
	return holdbackDomain + fmt.Sprintf("%x", sha256.Sum256([]byte(id)))[:32]
}

// sizeOf identifies pods that fit the same nodes, as far as their specs tell.
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

// emptyNode is a node that takes pods and has only pods of DaemonSets and static pods.
type emptyNode struct {
	nodeClaim *karpv1.NodeClaim
	node      *corev1.Node
}

// emptyNodes are the tenant's empty nodes, by the name of their NodeClaim.
type emptyNodes struct {
	empty map[string]emptyNode
	// others are the NodeClaims that are not being deleted and have no empty node.
	others map[string]bool
}

// emptyNodes leaves out nodes that kube-scheduler has nominated for pods: these pods wait for a volume or an eviction.
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

// hold reports whether the node of the NodeClaim holds pods by now, or takes none, for example because it is not ready.
func (n emptyNodes) hold(nodeClaim string) bool { return n.others[nodeClaim] }

// launchedFor returns the empty node that was launched for a pod. planned is the NodeClaim that core had planned for
// the pod. Core forgets the plan when it restarts, or finds no place for the pod. Then launchedFor looks for a
// NodeClaim that was made after the pod, for requests of at least that size, and whose labels and taints fit the pod.
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
