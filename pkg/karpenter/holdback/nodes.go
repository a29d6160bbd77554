// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package holdback

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// NominatedField is the index of pods by the node that kube-scheduler has nominated for them.
const NominatedField = "status.nominatedNodeName"

// The names of core's controllers that read the pods of a node that could be taken away, and the nodes and pods that are
// planned with.
const (
	disruption = "disruption"
	nodeState  = "state.node"
	podState   = "state.pod"
)

// planPeriod is how long a plan of core's scheduler says which nodes pods wait for. Core looks for nodes to take away
// each 10 s, and looks again before it takes one away.
const planPeriod = 5 * time.Second

// ExpectedPods adds the pods that a node waits for to the pods of that node, when core looks for nodes to take away. A
// node waits for a pod in three cases. kube-scheduler has nominated the node, while a volume is made there or other pods
// are evicted. Core has planned the pod for the node: core remembers its plan for 20 s only, and kube-scheduler may need
// longer for a group of pods. Or kube-scheduler has given the node of a waiting pod to another pod, and core's scheduler
// would place a waiting pod here now. A drain must not evict such pods, and does not see them.
//
// cluster knows for which NodeClaims core has last planned pods; their nodes have the same names. simulate returns what
// core's scheduler would do with the pods that wait.
func ExpectedPods(reader client.Reader, cluster *state.Cluster,
	simulate func(context.Context) (scheduling.Results, error), clk clock.PassiveClock,
) interceptor.Interceptor {
	plan := &plan{reader: reader, cluster: cluster, simulate: simulate, clock: clk}
	return interceptor.OnList(func(ctx context.Context, pods *corev1.PodList, opts []client.ListOption) error {
		name := selectedNode(opts)
		if name == "" || injection.GetControllerName(ctx) != disruption || isUsed(pods.Items) {
			return nil
		}
		expected, err := nominatedFor(ctx, reader, name)
		if err != nil {
			return err
		}
		for _, key := range cluster.PodsMappedToNodeClaim(name) {
			pod := &corev1.Pod{}
			if found, err := kube.Find(ctx, reader, key, pod); err != nil {
				return err
			} else if found && podutils.IsProvisionable(pod) {
				expected = append(expected, *pod)
			}
		}
		if len(expected) == 0 {
			placed, err := plan.podsFor(ctx, name)
			if err != nil {
				return err
			}
			for _, pod := range placed {
				expected = append(expected, *pod)
			}
		}
		for _, pod := range expected {
			if podutils.IsActive(&pod) {
				pods.Items = append(pods.Items, pod)
			}
		}
		return nil
	})
}

// isUsed reports whether a node with these pods is in use.
func isUsed(pods []corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return podutils.IsReschedulable(&pod) })
}

// plan is where core's scheduler would place the pods that wait, among the nodes that there are.
type plan struct {
	reader   client.Reader
	cluster  *state.Cluster
	simulate func(context.Context) (scheduling.Results, error)
	clock    clock.PassiveClock
	mu       sync.Mutex
	// made is when core was asked, and nodes are its answer.
	made  time.Time
	nodes map[string][]*corev1.Pod
}

// podsFor returns the pods that core's scheduler would place on a node, if any of the pods that wait needs another node than
// its own.
func (p *plan) podsFor(ctx context.Context, node string) ([]*corev1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes != nil && p.clock.Since(p.made).Abs() < planPeriod {
		return p.nodes[node], nil
	}
	results, err := p.simulate(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking core which nodes pods wait for, %w", err)
	}
	nodes, anyWithout := map[string][]*corev1.Pod{}, false
	for _, existing := range results.ExistingNodes {
		nodes[existing.Name()] = existing.Pods
		for _, pod := range existing.Pods {
			without, err := p.isWithoutNode(ctx, pod)
			if err != nil {
				return nil, err
			}
			anyWithout = anyWithout || without
		}
	}
	if !anyWithout {
		clear(nodes)
	}
	p.made, p.nodes = p.clock.Now(), nodes
	return nodes[node], nil
}

// isWithoutNode reports whether core has planned a pod for no node, or other pods are on that node or nominated for it.
func (p *plan) isWithoutNode(ctx context.Context, pod *corev1.Pod) (bool, error) {
	own := p.cluster.PodNodeClaimMapping(client.ObjectKeyFromObject(pod))
	if own == "" {
		return true, nil
	}
	there := &corev1.PodList{}
	if err := p.reader.List(ctx, there, client.MatchingFields{"spec.nodeName": own}); err != nil {
		return false, fmt.Errorf("listing the pods of node %s, %w", own, err)
	}
	nominated, err := nominatedFor(ctx, p.reader, own)
	return isUsed(there.Items) || len(nominated) > 0, err
}

// NominatedPods has core's state count a pod on the node that kube-scheduler has nominated for it. Core leaves such pods out
// of its plans, and would plan others for the same room: those would get no server until the first pod is bound, and their own
// nodes would count as empty. ofNode is for the client of the state, which lists the pods of a node, and each for the
// controller that reads each pod.
func NominatedPods(reader client.Reader) (ofNode, each interceptor.Interceptor) {
	ofNode = interceptor.OnList(func(ctx context.Context, pods *corev1.PodList, opts []client.ListOption) error {
		name := selectedNode(opts)
		if name == "" {
			return nil
		}
		nominated, err := nominatedFor(ctx, reader, name)
		if err != nil {
			return err
		}
		for _, pod := range nominated {
			pod.Spec.NodeName = name
			pods.Items = append(pods.Items, pod)
		}
		return nil
	})
	each = interceptor.OnGet(func(ctx context.Context, pod *corev1.Pod, _ []client.GetOption) error {
		if injection.GetControllerName(ctx) != podState || pod.Spec.NodeName != "" {
			return nil
		}
		if pod.Spec.NodeName = pod.Status.NominatedNodeName; pod.Spec.NodeName == "" {
			pod.Status.Phase = corev1.PodSucceeded // core forgets the node that was nominated before
		}
		return nil
	})
	return ofNode, each
}

// nominatedFor lists the pods that are on no node yet, and for which kube-scheduler has nominated this one.
func nominatedFor(ctx context.Context, reader client.Reader, name string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, client.MatchingFields{NominatedField: name}); err != nil {
		return nil, fmt.Errorf("listing the pods for which node %s is nominated, %w", name, err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" }), nil
}

// selectedNode is the node whose pods a list selects.
func selectedNode(opts []client.ListOption) string {
	selector := (&client.ListOptions{}).ApplyOptions(opts).FieldSelector
	if selector == nil {
		return ""
	}
	name, _ := selector.RequiresExactMatch("spec.nodeName")
	return name
}

// startPeriod is how long a node counts as one that starts once it is initialized: a network plugin lets kubelet report that
// the node is ready, and takes its taint off after that. Core reads its nodes again each minute.
const startPeriod = time.Minute

// StartingNodes takes taints off the nodes that core plans with until they have been initialized for a moment. Taints of the
// NodeClaim, of core and of a cordon stay. A network plugin, for example, taints a node until its agent runs. Nobody has
// declared that taint, and core would launch another server for the pods that the node was launched for.
func StartingNodes(reader client.Reader, clk clock.PassiveClock) interceptor.Interceptor {
	return interceptor.OnGet(func(ctx context.Context, node *corev1.Node, _ []client.GetOption) error {
		if injection.GetControllerName(ctx) != nodeState || len(node.Spec.Taints) == 0 ||
			node.Labels[karpv1.NodeRegisteredLabelKey] != "true" {
			return nil
		}
		owner := slices.IndexFunc(node.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Kind == "NodeClaim" })
		if owner < 0 {
			return nil
		}
		nodeClaim := &karpv1.NodeClaim{}
		found, err := kube.Find(ctx, reader, client.ObjectKey{Name: node.OwnerReferences[owner].Name}, nodeClaim)
		if err != nil || !found {
			return err
		}
		initialized := conditions.Find(nodeClaim.Status.Conditions, karpv1.ConditionTypeInitialized)
		if initialized.Status == metav1.ConditionTrue && clk.Since(initialized.LastTransitionTime.Time).Abs() >= startPeriod {
			return nil
		}
		node.Spec.Taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(taint corev1.Taint) bool {
			return taint.Key != corev1.TaintNodeUnschedulable && !strings.HasPrefix(taint.Key, apis.Group+"/") &&
				!slices.ContainsFunc(nodeClaim.Spec.Taints, func(declared corev1.Taint) bool { return declared.MatchTaint(&taint) })
		})
		return nil
	})
}
