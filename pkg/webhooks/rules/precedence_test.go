// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestPrecedence: a template that is more specific than a document wins here, and not in the reference.
func TestPrecedence(t *testing.T) {
	const document = "{karpenter.metal3.io/user-data: \"#cloud-config\\n\"}"
	const warning = `warning: spec.metal3.nodeTypes[0].properties["karpenter.metal3.io/user-data-template"]: takes the place of ` +
		`karpenter.metal3.io/user-data of NodeProvider fleet, which is less specific; in the reference the document wins: leave the template ` +
		`out to have it`
	for name, tc := range map[string]struct {
		reason, provider, nodeType string
		want                       []string
	}{
		"Template": {"it takes the place of the document", document, "{karpenter.metal3.io/user-data-template: template}", []string{warning}},
		"TakenAway": {"it is said that the document is not wanted", document,
			"{karpenter.metal3.io/user-data-template: template, karpenter.metal3.io/user-data: ''}", nil},
		"Document": {"the document wins in both", "{karpenter.metal3.io/user-data-template: template}", document, nil},
		"Alone":    {"there is no document", "{}", "{karpenter.metal3.io/user-data-template: template}", nil},
		"Other": {"it is for the network", "{karpenter.metal3.io/network-data: 'links: [{id: a, type: phy}]'}",
			"{karpenter.metal3.io/user-data-template: template}", nil},
	} {
		provider := parse[v1alpha1.NodeProvider](t, "{metadata: {name: fleet}, spec: {properties: "+tc.provider+", metal3: {clusterRef: "+
			"{namespace: metal3-system}, nodeTypes: [{name: h100, "+fine+"bareMetalHosts: {selector: {matchLabels: {gpu: h100}}}, properties: "+
			tc.nodeType+"}]}}}")
		says(t, name+": "+tc.reason, NodeProvider(newCluster(t), nil, provider), tc.want...)
	}
	cluster := newCluster(t)
	cluster.providers[0].Spec.Properties = map[string]string{v1alpha1.PropertyNetworkData: "links: []"}
	nodeType := cluster.types[0].DeepCopy()
	nodeType.Spec.Properties = map[string]string{v1alpha1.PropertyNetworkDataTemplate: "template"}
	mentions(t, "the object itself", NodeType(cluster, cluster.types[0], nodeType),
		`warning: spec.properties["karpenter.metal3.io/network-data-template"]: takes the place of karpenter.metal3.io/network-data of `+
			`NodeProvider fleet`)
}
