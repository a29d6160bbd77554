// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestDualStackTemplate: the template of the examples, for another network.
func TestDualStackTemplate(t *testing.T) {
	template, err := dualStack(netip.MustParsePrefix("fc00:f853:ccd:e793::/64"), netip.MustParseAddr("fc00:f853:ccd:e793::1"))
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"networkDataTemplate": "- fc00:f853:ccd:e793::{{ .Values.AllocatedIP }}/64\n    gateway4: {{ .Values.Gateway }}\n    " +
			"gateway6: fc00:f853:ccd:e793::1\n",
		"cloudInitTemplate": "--node-ip={{ .Values.AllocatedIP }},fc00:f853:ccd:e793::{{ .Values.AllocatedIP }}\n",
	} {
		text, _, _ := unstructured.NestedString(template.Object, "spec", field) // an absent one is empty
		if !strings.Contains(text, want) || strings.Contains(text, "2001:db8") {
			t.Errorf("%s does not have\n%s\nbut is\n%s", field, want, text)
		}
	}
	if _, err := dualStack(netip.MustParsePrefix("fc00::/48"), netip.MustParseAddr("fc00::1")); err == nil {
		t.Error("a network of another size makes other addresses than the template says")
	}
}
