// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

const none = " has no effect here: "

func TestTypeTemplates(t *testing.T) {
	const prefix = "spec.metal3.nodeTypes[0]."
	const reservedHere = none + "the domain is reserved, and it is not written: use another domain"
	for name, tc := range map[string]struct {
		reason, set string
		want        []string
	}{
		"Metadata": {"they are written", "metadata: {labels: {team: a}, annotations: {example.com/a: 'any text'}}", nil},
		"Reserved": {"the manager's and kubectl's own", "metadata: {labels: {karpenter.metal3.io/admission: ignore}, annotations: " +
			"{kubectl.kubernetes.io/last-applied-configuration: '{}', x.k8s.io/a: b}}", []string{
			`warning: ` + prefix + `metadata.labels["karpenter.metal3.io/admission"] and 2 more:` + reservedHere}},
		"Invalid": {"the API server would refuse the NodeType", "metadata: {labels: {team: 'a b'}, annotations: {'a b': c}}", []string{
			prefix + `metadata.labels: Invalid value: "a b"`, prefix + `metadata.annotations: Invalid value: "a b"`}},
	} {
		t.Run(name, func(t *testing.T) {
			provider := parse[v1alpha1.NodeProvider](t, "{metadata: {name: new}, spec: {metal3: {clusterRef: {namespace: metal3-system}, "+
				"nodeTypes: [{name: big, resources: {cpu: 1, memory: 1Gi}, bareMetalHosts: {selector: {matchLabels: {class: big}}}, "+
				tc.set+"}]}}}")
			cluster := newCluster(t)
			cluster.server("b1", map[string]string{"class": "big"})
			mentions(t, tc.reason, NodeProvider(cluster, nil, provider), tc.want...)
		})
	}
}

func TestPrivateNodes(t *testing.T) {
	const prefix = "warning: spec.privateNodes."
	for name, tc := range map[string]struct {
		reason, set string
		want        []string
	}{
		"AutoUpgrade": {"that servers follow the version is real", "privateNodes: {autoUpgrade: {enabled: true}}", nil},
		"Kubelet": {"it has arguments for them",
			"privateNodes: {kubelet: {config: {maxPods: 5, topologyManagerPolicy: single-numa-node}}}", nil},
		"KubeletWithoutArgument": {"kubeadm's ConfigMap says it", "privateNodes: {kubelet: {config: {maxPods: 5, " +
			"shutdownGracePeriod: 30s, memorySwap: {swapBehavior: NoSwap}}}}", []string{prefix + "kubelet.config.memorySwap." +
			"swapBehavior and 1 more:" + none + "the kubelet has no argument for it: write it into the ConfigMap " +
			"kubelet-config of kube-system in the tenant, which kubeadm join reads"}},
		"KubeletReserved": {"Karpenter reckons with it", "privateNodes: {kubelet: {config: {kubeReserved: {cpu: 1}}}}",
			[]string{prefix + "kubelet.config.kubeReserved:" + none + "set overhead.kubeReserved of the NodeType, which " +
				"Karpenter reckons with"}},
	} {
		t.Run(name, func(t *testing.T) {
			says(t, tc.reason, TenantCluster(newCluster(t), open, tenantWith(t, "c", tc.set)), tc.want...)
		})
	}
}

func TestUnknownProperties(t *testing.T) {
	const label = none + "it is a label of the nodes at most: for a property of your own use a domain of your own"
	for name, tc := range map[string]struct {
		reason, key string
		want        []string
	}{
		"Environment": {"there is no such kind", v1alpha1.ReferenceNetworkEnvironment, []string{
			"there are no NodeEnvironments: write its properties into the pool, the NodeType or the NodeProvider"}},
		"Misspelled": {"it looks like one of the reference's", v1alpha1.ReferenceDomain + "/osimage", []string{label}},
		"KubeVirt":   {"of another provider", "kubevirt." + v1alpha1.ReferenceDomain + "/disk", []string{label}},
		"Metal3":     {"of another version of the reference", "metal3." + v1alpha1.ReferenceDomain + "/other", []string{label}},
		"Ours":       {"a typing error", v1alpha1.Group + "/osimage", []string{label}},
		"Size":       {"a label of each type, which may be written", v1alpha1.InstanceGPUNameLabelKey, nil},
		"NTP":        {"read elsewhere", v1alpha1.PropertyNTPServers, nil},
		"Alias":      {"read elsewhere", v1alpha1.ReferenceKey(v1alpha1.PropertyNTPServers), nil},
		"Type":       {"a label of each type", v1alpha1.NodeTypeLabelKey, nil},
		"Own":        {"a property of one's own", "example.com/" + v1alpha1.ReferenceDomain, nil},
		"Plain":      {"a property of one's own", "rack", nil},
		"Suffix":     {"another domain", "my" + v1alpha1.ReferenceDomain + "/a", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Result{}
			r.values(nil, properties.Layer{Source: "pool p", Values: env.Properties(t, map[string]string{tc.key: "a"})})
			for i := range tc.want {
				tc.want[i] = "warning: [\"" + tc.key + "\"]: has no effect here: " + strings.TrimPrefix(tc.want[i], none)
			}
			says(t, tc.reason, r.done(), tc.want...)
		})
	}
}
