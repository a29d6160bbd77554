// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Demand has the labels of nodes that the pending pods or their volumes select, spread or gather by, and how many pods
// select which value. Offerings follow it: core compares each with each pod; 100 types in 50 racks would have 5,000.
//
//   - Servers are told apart by a label only if pods or NodePools use it.
//   - A domain is counted by itself only if the pods could ask for more servers there than are free.
//
// Demand does not know pods that leave a node. If core replaces them in the same pass, it may ask for more than a
// domain has. The manager refuses the excess, and the next pass counts the pods.
type Demand struct {
	pods int64
	keys map[string]*selection
	// groups is true if a pod has a PodGroup: the group may use any label, and the pod does not say which.
	groups bool
}

// selection counts the pods that select one of the values of a label, and the pods for each value.
type selection struct {
	pods   int64
	values map[string]int64
}

// ReadDemand reads the pods without a node, their volumes and the NodePools of the tenant from a cache with an index of
// pods by spec.nodeName. Pods without constraints get the defaults in core's options, which the context must hold.
func ReadDemand(ctx context.Context, tenant client.Client) (*Demand, error) {
	pods, pools := &corev1.PodList{}, &karpv1.NodePoolList{}
	if err := tenant.List(ctx, pods, client.MatchingFields{"spec.nodeName": ""}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the pods without a node, %w", err)
	}
	if err := tenant.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodePools, %w", err)
	}
	// The list has shallow copies of the cache's pods. Core gives each copy another list of constraints.
	scheduling.NewDefaultTopologySpreadInjector(tenant).Inject(ctx, lo.ToSlicePtr(pods.Items))
	var keys []string
	volumes := scheduling.NewVolumeTopology(tenant)
	for i := range pods.Items {
		// Core rejects a pod whose volumes do not exist, and says why.
		alternatives, _ := volumes.GetRequirements(ctx, &pods.Items[i])
		for _, requirements := range alternatives {
			keys = slices.AppendSeq(keys, maps.Keys(requirements))
		}
	}
	return NewDemand(pods.Items, pools.Items, keys...), nil
}

// NewDemand counts the pods without a node. It uses the labels that NodePools require or set, and volumeKeys.
func NewDemand(pods []corev1.Pod, pools []karpv1.NodePool, volumeKeys ...string) *Demand {
	demand := &Demand{pods: int64(len(pods)), keys: map[string]*selection{}}
	for i := range pods {
		demand.addPod(&pods[i].Spec)
	}
	for i := range pools {
		template := &pools[i].Spec.Template
		for _, requirement := range template.Spec.Requirements {
			demand.use(requirement.Key)
		}
		for key := range template.Labels {
			demand.use(key)
		}
	}
	for _, key := range volumeKeys {
		demand.use(key)
	}
	delete(demand.keys, corev1.LabelHostname)
	return demand
}

// noDemand is the demand of an unknown number of pods that use no labels.
func noDemand() *Demand { return &Demand{pods: math.MaxInt64} }

// Equal reports whether both demands lead to the same offerings.
func (d *Demand) Equal(other *Demand) bool {
	return d.pods == other.pods && d.groups == other.groups && maps.EqualFunc(d.keys, other.keys, func(a, b *selection) bool {
		return a.pods == b.pods && maps.Equal(a.values, b.values)
	})
}

func (d *Demand) use(key string) *selection {
	if d.keys[key] == nil {
		d.keys[key] = &selection{values: map[string]int64{}}
	}
	return d.keys[key]
}

func (d *Demand) selectValues(key string, values ...string) {
	selected := d.use(key)
	selected.pods++
	for _, value := range values {
		selected.values[value]++
	}
}

func (d *Demand) addPod(pod *corev1.PodSpec) {
	d.groups = d.groups || pod.SchedulingGroup != nil
	for key, value := range pod.NodeSelector {
		d.selectValues(key, value)
	}
	for i := range pod.TopologySpreadConstraints {
		d.use(pod.TopologySpreadConstraints[i].TopologyKey)
	}
	if pod.Affinity == nil {
		return
	}
	if to := pod.Affinity.PodAffinity; to != nil {
		d.usePodTerms(to.RequiredDuringSchedulingIgnoredDuringExecution, to.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if from := pod.Affinity.PodAntiAffinity; from != nil {
		d.usePodTerms(from.RequiredDuringSchedulingIgnoredDuringExecution, from.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if node := pod.Affinity.NodeAffinity; node != nil {
		d.addNodeAffinity(node, pod.NodeSelector)
	}
}

func (d *Demand) usePodTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
	for i := range required {
		d.use(required[i].TopologyKey)
	}
	for i := range preferred {
		d.use(preferred[i].PodAffinityTerm.TopologyKey)
	}
}

// addNodeAffinity counts a pod for the values that it must have. A preference or an alternative leaves it in all
// domains: the count is then too high, and never too low.
func (d *Demand) addNodeAffinity(affinity *corev1.NodeAffinity, selector map[string]string) {
	for _, preferred := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		for _, expression := range preferred.Preference.MatchExpressions {
			d.use(expression.Key)
		}
	}
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return
	}
	terms := affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	counted := map[string]bool{}
	for _, term := range terms {
		for _, expression := range term.MatchExpressions {
			_, selected := selector[expression.Key]
			if len(terms) > 1 || selected || counted[expression.Key] || expression.Operator != corev1.NodeSelectorOpIn {
				d.use(expression.Key)
				continue
			}
			counted[expression.Key] = true
			d.selectValues(expression.Key, expression.Values...)
		}
	}
}

// uses reports whether servers that differ in a label are told apart.
func (d *Demand) uses(key string) bool { return d.groups || d.keys[key] != nil }

// typeLabels returns the labels in use that say which types servers match.
func (d *Demand) typeLabels() (keys []string) {
	for key := range d.keys {
		if v1alpha1.IsTypeLabel(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// atMost returns how many pods could need a server with these labels, at most.
func (d *Demand) atMost(labels map[string]string) int64 {
	most := d.pods
	for key, value := range labels {
		if selected := d.keys[key]; selected != nil {
			most = min(most, d.pods-selected.pods+selected.values[value])
		}
	}
	return most
}

// onlySelects reports whether all pods select a value of one of these labels.
func (d *Demand) onlySelects(keys []string) bool {
	if d.pods == 0 {
		return false
	}
	for _, key := range keys {
		if selected := d.keys[key]; selected != nil && selected.pods == d.pods {
			return true
		}
	}
	return false
}
