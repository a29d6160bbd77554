// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package apis

import (
	"strings"
	"testing"

	karpenterapis "sigs.k8s.io/karpenter/pkg/apis"
	"sigs.k8s.io/yaml"
)

// TestKarpenterCRDs: servers do not expire by default, and nothing else differs.
func TestKarpenterCRDs(t *testing.T) {
	crds, err := KarpenterCRDs()
	if err != nil {
		t.Fatal(err)
	}
	for i, crd := range crds {
		ours, err := yaml.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		original, err := yaml.Marshal(karpenterapis.CRDs[i])
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(ours), "default: 720h") {
			t.Errorf("%s has a default of 720h", crd.Name)
		}
		if want := strings.ReplaceAll(string(original), "default: 720h", "default: Never"); string(ours) != want {
			t.Errorf("%s differs in more than the default of expireAfter", crd.Name)
		}
	}
}
