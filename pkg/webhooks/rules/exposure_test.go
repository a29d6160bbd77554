// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestUnbounded: a TenantCluster as one writes it first has every server there is.
func TestUnbounded(t *testing.T) {
	const (
		types = "warning: spec.allowedNodeTypes: is not set: the tenant may have servers of every NodeType"
		quota = "warning: spec.quota: is not set: the tenant may have every server that is free"
		some  = "warning: spec.quota: bounds only some NodeTypes: of any other the tenant may have every server that is free"
	)
	for name, tc := range map[string]struct {
		reason, before, after string // before is empty when it is made
		want                  []string
	}{
		"Neither": {"it has everything", "", "quota: {}", []string{types, quota}},
		"Types":   {"all servers of them", "", "allowedNodeTypes: [h100]", []string{quota}},
		"NoTypes": {"an empty list is none", "", "allowedNodeTypes: [], quota: {servers: 0}", nil},
		"Quota":   {"of all types", "", "quota: {servers: 3}", []string{types}},
		"GPUs":    {"they bound the servers that have some", "", "quota: {gpus: 8}, allowedNodeTypes: [h100]", nil},
		"Both":    {"as it should be", "", "quota: {servers: 3}, allowedNodeTypes: [h100]", nil},
		"OfTypes": {"of all that it may have", "", "quota: {nodeTypes: {h100: 4}}, allowedNodeTypes: [h100]", nil},
		"OfSome": {"the others have no bound", "", "quota: {nodeTypes: {h100: 4}}, allowedNodeTypes: [h100, cpu]",
			[]string{some}},
		"OfPrefix": {"others may be made later", "", "quota: {nodeTypes: {h100: 4, cpu: 1}}, allowedNodeTypes: [fleet.*]",
			[]string{some}},
		"StaysSo":  {"it was said when it was made", "quota: {}", "quota: {}", nil},
		"Removed":  {"it becomes so", "quota: {servers: 3}, allowedNodeTypes: [h100]", "quota: {}", []string{types, quota}},
		"Enlarged": {"it has bounds", "quota: {servers: 3}, allowedNodeTypes: [h100]", "quota: {servers: 9}, allowedNodeTypes: [h100]", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var before *v1alpha1.TenantCluster
			if tc.before != "" {
				before = tenantWith(t, "c", tc.before)
			}
			mentions(t, tc.reason, TenantCluster(newCluster(t), before, tenantWith(t, "c", tc.after)), tc.want...)
		})
	}
}

// TestReadByAll: providers of all tenants list NodeProviders and NodeTypes.
func TestReadByAll(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, properties string
		warns              []string
	}{
		"Public": {"no secret", "{" + v1alpha1.PropertyImageURL + ": https://images/noble.img}", nil},
		"Password": {"of the image server", "{" + v1alpha1.PropertyImageURL + ": 'https://u:p@images/noble.img'}",
			[]string{v1alpha1.PropertyImageURL}},
		"User": {"half of it", "{" + v1alpha1.PropertyImageURL + ": 'https://token@images/noble.img'}",
			[]string{v1alpha1.PropertyImageURL}},
		"Signed": {"as good as a password", "{" + v1alpha1.PropertyImageURL + ": 'https://images/x?sig=1'}",
			[]string{v1alpha1.PropertyImageURL}},
		"Checksum": {"a URL too", "{" + v1alpha1.PropertyImageChecksum + ": 'https://u:p@images/x'}",
			[]string{v1alpha1.PropertyImageChecksum}},
		"UserData": {"a password", `{` + v1alpha1.PropertyUserData + `: "#cloud-config\npassword: x\n"}`,
			[]string{v1alpha1.PropertyUserData}},
		"Key": {"a key", `{` + v1alpha1.PropertyUserData + `: "#cloud-config\nx: BEGIN PRIVATE KEY\n"}`,
			[]string{v1alpha1.PropertyUserData}},
		"Command": {"a token of a command", `{` + v1alpha1.PropertyUserData + `: "#cloud-config\nruncmd:\n- [join, --token, x]\n"}`,
			[]string{v1alpha1.PropertyUserData}},
		"Pipe": {"a password that a command reads", `{` + v1alpha1.PropertyUserData + `: "#cloud-config\nruncmd:\n- echo root:x | chpasswd\n"}`,
			[]string{v1alpha1.PropertyUserData}},
		"NoSecret": {"packages", `{` + v1alpha1.PropertyUserData + `: "#cloud-config\npackages: [jq]\n"}`, nil},
		"TwoAreTwo": {"each is named",
			`{` + v1alpha1.PropertyImageURL + `: 'https://u:p@i/x', ` + v1alpha1.PropertyUserData + `: "#cloud-config\ntoken: x\n"}`,
			[]string{v1alpha1.PropertyImageURL, v1alpha1.PropertyUserData}},
		"OtherValues": {"a property of the user's own", "{team: red}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			values := parse[map[string]string](t, tc.properties)
			provider := newCluster(t).NodeProviders()[0].DeepCopy()
			provider.Spec.Properties = *values
			nodeType := newCluster(t).NodeType("cpu").DeepCopy()
			nodeType.Spec.Properties = *values
			inTypes := newCluster(t).NodeProviders()[0].DeepCopy()
			if len(inTypes.Spec.Metal3.NodeTypes) == 0 {
				inTypes.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{{Name: "cpu", HardwareProfile: nodeType.Spec.HardwareProfile}}
			}
			inTypes.Spec.Metal3.NodeTypes[0].Properties = *values
			for what, result := range map[string]Result{
				"provider": NodeProvider(newCluster(t), nil, provider), "type": NodeType(newCluster(t), nil, nodeType),
				"type of the provider": NodeProvider(newCluster(t), nil, inTypes),
			} {
				got := map[string]bool{}
				for _, warning := range result.Warnings {
					for _, key := range []string{v1alpha1.PropertyImageURL, v1alpha1.PropertyImageChecksum, v1alpha1.PropertyUserData} {
						if strings.Contains(warning, `"`+key+`"`) && strings.Contains(warning, "providers of all tenants read here") {
							got[key] = true
						}
					}
				}
				for _, key := range tc.warns {
					if !got[key] {
						t.Errorf("%s of a %s: no warning of %s in %q", tc.reason, what, key, result.Warnings)
					}
				}
				if len(got) != len(tc.warns) {
					t.Errorf("%s of a %s: warnings of %v", tc.reason, what, got)
				}
			}
		})
	}
}
