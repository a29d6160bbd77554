// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package holdback

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
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

// ExpectedPods adds the pods that a node waits for to the pods of that node, when core looks for nodes to take away. A node
// waits for a pod if kube-scheduler has nominated it, while a volume is made there or other pods are evicted, or if core has
// planned the pod for it. Core remembers its plan for 20 s, and kube-scheduler may need longer for a group of pods. If
// kube-scheduler chooses the node of another pod instead, the other pod needs this node. A drain must not evict such pods,
// and does not see them. planned returns the pods that core has last planned for a NodeClaim, whose name its node has.
func ExpectedPods(reader client.Reader, planned func(nodeClaim string) []types.NamespacedName) interceptor.Interceptor {
	return interceptor.OnList(func(ctx context.Context, pods *corev1.PodList, opts []client.ListOption) error {
		name := selectedNode(opts)
		if name == "" || injection.GetControllerName(ctx) != disruption ||
			slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return podutils.IsReschedulable(&pod) }) {
			return nil
		}
		expected, err := nominatedFor(ctx, reader, name)
		if err != nil {
			return err
		}
		names := []string{name}
		for i := 0; i < len(names); i++ {
			for _, key := range planned(names[i]) {
				pod := &corev1.Pod{}
				found, err := kube.Find(ctx, reader, key, pod)
				if err != nil {
					return err
				}
				other := cmp.Or(pod.Spec.NodeName, pod.Status.NominatedNodeName)
				switch {
				case found && podutils.IsProvisionable(pod):
					expected = append(expected, *pod)
				case found && other != "" && !slices.Contains(names, other):
					names = append(names, other) // whoever was planned for that node needs this one
				}
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
