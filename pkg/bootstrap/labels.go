// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// kubeletLabels are the keys in Kubernetes' own namespaces that NodeRestriction lets a kubelet set on its Node.
var kubeletLabels = []string{
	corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable,
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable,
	corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType,
	"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

// SelfSettableLabels returns the labels that a kubelet may set on its own Node. It refuses to start when asked for
// others in Kubernetes' namespaces, so they must not reach its command line.
func SelfSettableLabels(labels map[string]string) map[string]string {
	settable := map[string]string{}
	for key, value := range labels {
		if selfSettable(key) {
			settable[key] = value
		}
	}
	return settable
}

func selfSettable(key string) bool {
	namespace, _, namespaced := strings.Cut(key, "/")
	if !namespaced || !within(namespace, "kubernetes.io") && !within(namespace, "k8s.io") {
		return true
	}
	return slices.Contains(kubeletLabels, key) ||
		within(namespace, corev1.LabelNamespaceSuffixKubelet) || within(namespace, corev1.LabelNamespaceSuffixNode)
}

func within(namespace, suffix string) bool {
	return namespace == suffix || strings.HasSuffix(namespace, "."+suffix)
}

// nodeLabelsArg writes labels as the kubelet's --node-labels takes them, in a stable order: user data that changed
// by order alone would look like drift.
func nodeLabelsArg(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ",")
}
