// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package apis

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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

// TestNotMoved: clusterctl takes none of our objects to another cluster. It would lose their status, and delete them in the old one.
func TestNotMoved(t *testing.T) {
	management, err := ManagementCRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range management {
		for label := range crd.Labels {
			if strings.HasPrefix(label, "clusterctl.cluster.x-k8s.io") {
				t.Errorf("%s has the label %s", crd.Name, label)
			}
		}
	}
}

// TestDisplayed: each kind that people write says what it is called and for, in a bounded text.
func TestDisplayed(t *testing.T) {
	management, err := ManagementCRDs()
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := TenantCRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range append(management, tenant...) {
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		schemas := map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}
		switch crd.Spec.Names.Kind {
		case "IPAddress", "HostUsage": // the manager writes them
			continue
		case "NodeProvider":
			schemas["spec.metal3.nodeTypes[]"] = *spec.Properties["metal3"].Properties["nodeTypes"].Items.Schema
		}
		for path, schema := range schemas {
			for field, want := range map[string]int64{"displayName": 256, "description": 1024} {
				if got := schema.Properties[field]; got.MaxLength == nil || *got.MaxLength != want {
					t.Errorf("%s: %s.%s is not a text of at most %d characters: %+v", crd.Spec.Names.Kind, path, field, want, got)
				}
			}
		}
	}
}
