// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// typeLabels are the labels that all nodes of a type have: its name, and those of its properties that can be labels.
// No property wins over a label that this package sets.
func typeLabels(profile Profile) labels.Set {
	set := labels.Set{}
	for key, value := range profile.Properties {
		if key != v1alpha1.PropertyServerName && value != "" &&
			len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
			set[key] = value
		}
	}
	for key, value := range map[string]string{
		v1alpha1.NodeTypeLabelKey:      profile.Name,
		corev1.LabelInstanceTypeStable: profile.Name,
		corev1.LabelOSStable:           "linux",
	} {
		set[key] = value
	}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelArchStable} {
		delete(set, key)
	}
	if profile.Zone != "" {
		set[corev1.LabelTopologyZone] = profile.Zone
	}
	return set
}

// hostLabels are the labels that a node has from its host: zone, architecture and topology.
func hostLabels(zone, arch string, topology []string, of labels.Set) labels.Set {
	set := labels.Set{corev1.LabelArchStable: arch}
	for _, key := range topology {
		if value := of[key]; value != "" {
			set[key] = value
		}
	}
	switch {
	case zone != "":
		set[corev1.LabelTopologyZone] = zone
	case of[v1alpha1.DatacenterLabelKey] != "":
		set[corev1.LabelTopologyZone] = of[v1alpha1.DatacenterLabelKey]
	default:
		set[corev1.LabelTopologyZone] = v1alpha1.GlobalZone
	}
	return set
}

// nodeLabels are the labels of a node of a type on a host; the host's win. It implements labels.Labels without
// merging, because requirements are matched far more often than nodes are labelled.
type nodeLabels struct{ ofHost, ofType labels.Set }

func (n nodeLabels) Has(key string) bool { return n.ofHost.Has(key) || n.ofType.Has(key) }

func (n nodeLabels) Get(key string) string {
	value, _ := n.Lookup(key)
	return value
}

func (n nodeLabels) Lookup(key string) (string, bool) {
	if value, found := n.ofHost[key]; found {
		return value, true
	}
	value, found := n.ofType[key]
	return value, found
}

func (n nodeLabels) merged() map[string]string {
	set := maps.Clone(map[string]string(n.ofType))
	maps.Copy(set, n.ofHost)
	return set
}

// bucketKey is the same for hosts whose nodes have the same labels.
func bucketKey(topology []string, set labels.Set) string {
	var key strings.Builder
	for _, label := range append([]string{corev1.LabelTopologyZone, corev1.LabelArchStable}, topology...) {
		key.WriteString(set[label])
		key.WriteByte('/') // in no label value
	}
	return key.String()
}
