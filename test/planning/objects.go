// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// Domain is a number of free servers with these labels, which are given as key, value, key, value... Its zone is dc1
// unless the labels name another.
func Domain(free int32, labels ...string) v1alpha1.DomainCapacity {
	domain := v1alpha1.DomainCapacity{Zone: "dc1", Capacity: v1alpha1.Capacity{Total: free, Available: free}}
	for i := 0; i < len(labels); i += 2 {
		if labels[i] == corev1.LabelTopologyZone {
			domain.Zone = labels[i+1]
			continue
		}
		if domain.Labels == nil {
			domain.Labels = map[string]string{}
		}
		domain.Labels[labels[i]] = labels[i+1]
	}
	return domain
}

// NodeType returns a type with 64 cores, 512 Gi and so many GPUs, whose servers are in the domains.
func NodeType(name string, gpus int, domains ...v1alpha1.DomainCapacity) *v1alpha1.NodeType {
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), OwnerReferences: env.MadeBy("metal3")}}
	nodeType.Spec.ProviderRef.Name = "metal3"
	nodeType.Spec.Resources = env.Resources("cpu", "64", "memory", "512Gi")
	if gpus > 0 {
		for key, quantity := range env.Resources("nvidia.com/gpu", fmt.Sprint(gpus)) {
			nodeType.Spec.Resources[key] = quantity
		}
	}
	nodeType.Status.Cost = nodeType.EffectiveCost()
	values := map[string][]string{corev1.LabelArchStable: {"amd64"}}
	insert := func(key, value string) {
		if !slices.Contains(values[key], value) {
			values[key] = append(values[key], value)
		}
	}
	for _, domain := range domains {
		insert(corev1.LabelTopologyZone, domain.Zone)
		for key, value := range domain.NodeLabels(name) {
			insert(key, value)
		}
		index := slices.IndexFunc(nodeType.Status.Zones, func(zone v1alpha1.ZoneCapacity) bool { return zone.Name == domain.Zone })
		if index < 0 {
			index = len(nodeType.Status.Zones)
			nodeType.Status.Zones = append(nodeType.Status.Zones, v1alpha1.ZoneCapacity{Name: domain.Zone})
		}
		nodeType.Status.Zones[index].Total += domain.Total
		nodeType.Status.Zones[index].Available += domain.Available
		nodeType.Status.Capacity.Total += domain.Total
		nodeType.Status.Capacity.Available += domain.Available
	}
	nodeType.Status.Domains = domains
	for key, all := range values {
		nodeType.Status.Requirements = append(nodeType.Status.Requirements, v1alpha1.NodeTypeRequirement{Key: key, Values: all})
	}
	return nodeType
}

// Pod returns a pod that the scheduler found no node for. Resources are given as name, quantity, name, quantity...
func Pod(name string, resources []string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: env.Resources(resources...)},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
		}},
	}
	for _, change := range change {
		change(pod)
	}
	return pod
}

// Selecting adds a node selector of one label to a pod.
func Selecting(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
}

// Together makes a pod a member of a gang that must be in one domain of the key.
func Together(gang, key string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"gang": gang}
		pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"gang": gang}},
			}},
		}}
	}
}

// Volume gives a pod a volume that only nodes with this label can have, and returns its objects.
func Volume(pod *corev1.Pod, key, value string) []client.Object {
	disk := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}
	disk.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}}}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name,
		Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: disk.Name, StorageClassName: ptr.To("")}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}})
	return []client.Object{disk, claim}
}
