// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestNodeProfileValidation(t *testing.T) {
	for name, tc := range map[string]struct{ reason, name, spec, want string }{
		"Empty": {"it is valid and does nothing", "gpu", "{}", ""},
		"Reference": {"the example of the reference", "gpu-training", "{displayName: GPU Training, description: x, " +
			"nodeLabels: {workload.example.com/class: gpu}, nodeAnnotations: {ops.example.com/owner: ml-platform}, " +
			"taints: [{key: nvidia.com/gpu, value: 'true', effect: NoSchedule}], " +
			"startupTaints: [{key: node.example.com/bootstrap, value: 'true', effect: NoSchedule}]}", ""},
		"Owner":        {"a name with a prefix", "platform.gpu-training", "{}", ""},
		"LongName":     {"it becomes a label", strings.Repeat("a", 64), "{}", "it has at most 63 characters"},
		"Role":         {"a kubelet may not set it, and a profile may", "p", "{nodeLabels: {node-role.kubernetes.io/gpu: ''}}", ""},
		"Hostname":     {"pods are bound by it", "p", "{nodeLabels: {kubernetes.io/hostname: x}}", "follow from the server: take them away"},
		"Zone":         {"it is where the server is", "p", "{nodeLabels: {topology.kubernetes.io/zone: x}}", "follow from the server"},
		"InstanceType": {"it is the NodeType", "p", "{nodeLabels: {node.kubernetes.io/instance-type: x}}", "follow from the server"},
		"Karpenter":    {"Karpenter knows its nodes by it", "p", "{nodeLabels: {karpenter.sh/nodepool: x}}", "are written by the provider"},
		"Ours":         {"this provider's", "p", "{nodeLabels: {karpenter.metal3.io/tenantcluster: x}}", "are written by the provider"},
		"OwnLabel": {"it says which profile this is", "p", "{nodeLabels: {" + v1alpha1.NodeProfileLabelKey + ": x}}",
			"are written by the provider"},
		"OwnAlias": {"the same", "p", "{nodeLabels: {" + v1alpha1.ReferenceKey(v1alpha1.NodeProfileLabelKey) + ": x}}",
			"are written by the provider"},
		"OwnType": {"it says which type this is", "p", "{nodeLabels: {" + v1alpha1.ReferenceKey(v1alpha1.NodeTypeLabelKey) + ": x}}",
			"are written by the provider"},
		"OwnRestricted": {"the same", "p", "{nodeLabels: {node-restriction.kubernetes.io/node-profile: x}}", "are written by the provider"},
		"LongValue":     {"no label has such a value", "p", "{nodeLabels: {a: " + strings.Repeat("x", 64) + "}}", "a value at most 63"},
		"Annotation":    {"the record of the profile", "p", "{nodeAnnotations: {karpenter.metal3.io/node-profile-applied: x}}", "take them away"},
		"Disrupt":       {"Karpenter's", "p", "{nodeAnnotations: {karpenter.sh/do-not-disrupt: 'true'}}", "take them away"},
		"BigAnnotation": {"a Node has 256 KiB of them", "p", "{nodeAnnotations: {a: " + strings.Repeat("x", 65536) + "}}",
			"at most 65536 characters"},
		"NotReady":  {"the node controller's", "p", "{taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}]}", "take them away"},
		"Disrupted": {"Karpenter's", "p", "{startupTaints: [{key: karpenter.sh/disrupted, effect: NoSchedule}]}", "take them away"},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, tc.reason, tc.want, refusal(t, object(t, "NodeProfile", tc.name, "", tc.spec)))
		})
	}
}

// TestNodeProfilesOfATenantCluster: the forms of the reference.
func TestNodeProfilesOfATenantCluster(t *testing.T) {
	namespace := environment.Namespace(t)
	for name, spec := range map[string]string{
		"Allowed": "allowedNodeProfiles: [{name: gpu-training}, {name: platform.*}], defaultNodeProfile: gpu-training",
		"None":    "allowedNodeProfiles: []",
		"Pools": "privateNodes: {enabled: true, defaultProfile: gpu, autoNodes: [{provider: p, static: [{name: gpu-burst, quantity: 2, " +
			"profile: gpu-training}], dynamic: [{name: b, profile: gpu-training}]}]}",
	} {
		t.Run(name, func(t *testing.T) {
			check(t, "as the reference writes it", "", refusal(t, object(t, "TenantCluster", "t", namespace,
				"{apiServerEndpoint: 't:6443', "+spec+"}")))
		})
	}
}
