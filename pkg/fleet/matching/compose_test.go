// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package matching

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestCompose(t *testing.T) {
	const nodeType, instanceType = "karpenter.metal3.io/node-type", corev1.LabelInstanceTypeStable
	in := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	not := corev1.NodeSelectorRequirement{Key: nodeType, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"cpu"}}
	alsoA := in("type.karpenter.metal3.io/customer-a", "true")
	for name, tc := range map[string]struct {
		reason    string
		from      []corev1.NodeSelectorRequirement
		want      []corev1.NodeSelectorRequirement
		wantError string
	}{
		"one type": {"nothing changes", []corev1.NodeSelectorRequirement{in("rack", "r1"), in(nodeType, "h100")}, nil, ""},
		"no type":  {"as above", []corev1.NodeSelectorRequirement{in("rack", "r1"), in("rack", "r2")}, nil, ""},
		"not":      {"it names none", []corev1.NodeSelectorRequirement{not, in(nodeType, "h100")}, nil, ""},
		"the same": {"nothing is added", []corev1.NodeSelectorRequirement{in(nodeType, "h100"), in(instanceType, "h100")}, nil, ""},
		"narrower": {"both can be met by one type",
			[]corev1.NodeSelectorRequirement{in(nodeType, "h100", "a100"), in(nodeType, "a100")}, nil, ""},
		"wildcards": {"they name no type", []corev1.NodeSelectorRequirement{in(nodeType, "h100"), in(nodeType, "*-a")}, nil, ""},
		"two": {"the first is what the servers are of",
			[]corev1.NodeSelectorRequirement{in(nodeType, "h100"), in("rack", "r1"), in(nodeType, "customer-a")},
			[]corev1.NodeSelectorRequirement{in(nodeType, "h100"), in("rack", "r1"), alsoA}, ""},
		"either name": {"the labels have the same values", []corev1.NodeSelectorRequirement{in(instanceType, "h100"), in(nodeType, "customer-a")},
			[]corev1.NodeSelectorRequirement{in(instanceType, "h100"), alsoA}, ""},
		"several first": {"any of them, if it matches the other type as well",
			[]corev1.NodeSelectorRequirement{in(nodeType, "h100", "a100"), in(nodeType, "customer-a")},
			[]corev1.NodeSelectorRequirement{in(nodeType, "h100", "a100"), alsoA}, ""},
		"three": {"each narrows",
			[]corev1.NodeSelectorRequirement{in(nodeType, "h100"), in(nodeType, "customer-a"), in(nodeType, "edge.v2")},
			[]corev1.NodeSelectorRequirement{in(nodeType, "h100"), alsoA, in("type.karpenter.metal3.io/edge.v2", "true")}, ""},
		"narrowed, then another": {"what is left of the first counts",
			[]corev1.NodeSelectorRequirement{in(nodeType, "h100", "a100"), in(nodeType, "h100"), in(nodeType, "a100")},
			[]corev1.NodeSelectorRequirement{in(nodeType, "h100", "a100"), in(nodeType, "h100"), in("type.karpenter.metal3.io/a100", "true")}, ""},
		"several later": {"a label says one or the other", []corev1.NodeSelectorRequirement{in(nodeType, "h100"), in(nodeType, "a", "b")}, nil,
			`nodeTypeSelector[1]: Invalid value: "a, b": the servers are of NodeType h100 by an earlier entry, and can be narrowed down to those ` +
				"that match one other type as well: name one type here, or make a pool for each"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Compose(field.NewPath("nodeTypeSelector"), tc.from)
			if tc.wantError != "" {
				if err == nil || err.Error() != tc.wantError {
					t.Fatalf("%s: got %v, want %s", tc.reason, err, tc.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == nil {
				tc.want = tc.from
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A NodeType with a name as long as Kubernetes allows has a label, too, and no other type has the same.
func TestComposeLongNames(t *testing.T) {
	long := strings.Repeat("h100.", 50)
	keys := map[string]bool{}
	for _, name := range []string{long + "a", long + "b", strings.Repeat("x", 53) + ".-" + strings.Repeat("y", 20)} {
		first := corev1.NodeSelectorRequirement{Key: "karpenter.metal3.io/node-type", Operator: corev1.NodeSelectorOpIn,
			Values: []string{"h100"}}
		other := first
		other.Values = []string{name}
		composed, err := Compose(nil, []corev1.NodeSelectorRequirement{first, other})
		if err != nil {
			t.Fatal(err)
		}
		if _, errs := Requirement(nil, composed[1]); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
		keys[composed[1].Key] = true
	}
	if len(keys) != 3 {
		t.Errorf("three types have the labels %v", keys)
	}
}
