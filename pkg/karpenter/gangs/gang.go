// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gangs places pending pods that must run in one topology domain, in a domain that has capacity for all of them.
//
// Pods with a required affinity to each other by nvlink-domain, rack or the like may run in any domain, but all in the same
// one. Karpenter's core takes for the first of them any domain that has a server, and the others must follow it, whether or
// not there is capacity. So the pending pods that core lists get a requirement, in memory only, for a domain that all of
// them fit into: the cheapest, and of those the one with the least capacity left over. Running pods have fixed the domain
// already; core follows them by itself, and nothing is added.
//
// This is Kubernetes' affinity, not gang scheduling: if no domain has capacity for all, as many as possible get a server,
// in the domain that most of them fit into, and the rest stays pending.
package gangs

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// gang is pending pods that must be in one domain.
type gang struct {
	// id is the same for all pods of a gang, and for no other's.
	id        string
	namespace string
	// keys of the labels that make the domain, sorted.
	keys []string
	// selectors of the pods that fix the domain once they run.
	selectors []labels.Selector
	pods      []*corev1.Pod
	// fixed are the labels of the domain that pods of the gang run in, nil if none runs.
	fixed map[string]string
}

// find returns the gangs among the pods, the oldest first. A pod that is alone may have others that run already.
func find(pods []corev1.Pod) []*gang {
	byID := map[string]*gang{}
	var found []*gang
	for i := range pods {
		candidate := of(&pods[i])
		if candidate == nil {
			continue
		}
		known, again := byID[candidate.id]
		if !again {
			known = candidate
			byID[candidate.id] = known
			found = append(found, known)
		}
		known.pods = append(known.pods, &pods[i])
	}
	for _, one := range found {
		slices.SortFunc(one.pods, older)
	}
	slices.SortFunc(found, func(a, b *gang) int { return cmp.Or(older(a.pods[0], b.pods[0]), cmp.Compare(a.id, b.id)) })
	return found
}

func older(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// of returns the gang that the pod belongs to, without pods, or nil if it belongs to none.
func of(pod *corev1.Pod) *gang {
	if !podutils.IsProvisionable(pod) || pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAffinity == nil {
		return nil
	}
	result := &gang{namespace: pod.Namespace}
	var ids []string
	for _, term := range pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		selector, ok := selectsItself(pod, term)
		if !ok || term.TopologyKey == corev1.LabelHostname {
			continue
		}
		result.keys = append(result.keys, term.TopologyKey)
		result.selectors = append(result.selectors, selector)
		ids = append(ids, term.TopologyKey+" "+selector.String())
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	slices.Sort(result.keys)
	result.keys = slices.Compact(result.keys)
	result.id = pod.Namespace + "/" + strings.Join(ids, ";")
	return result
}

// selectsItself returns whether a term of a pod selects the pod itself. Otherwise the pod follows others, which core handles.
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

// needs is what one pod of the gang needs of a server: for each resource the most that any of them requests.
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

// oneEach returns whether pods of the gang may be unable to share a server: they have anti-affinity to each other, use ports
// of the host, or request devices, which are not counted here.
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
		if pod.Spec.Affinity.PodAntiAffinity == nil {
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
