// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package matching

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

func requirement(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func TestRequirements(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		from   corev1.NodeSelectorRequirement
		want   string
		wrong  string
	}{
		"In":           {reason: "one of several", from: requirement("rack", "In", "r2", "r1"), want: "rack in (r1,r2)"},
		"NotIn":        {reason: "none of several", from: requirement("rack", "NotIn", "r1"), want: "rack notin (r1)"},
		"Exists":       {reason: "whatever the value", from: requirement("rack", "Exists"), want: "rack"},
		"DoesNotExist": {reason: "no value", from: requirement("rack", "DoesNotExist"), want: "!rack"},
		"Gt":           {reason: "numbers", from: requirement("gpus", "Gt", "3"), want: "gpus>3"},
		"Lt":           {reason: "numbers", from: requirement("gpus", "Lt", "3"), want: "gpus<3"},
		"NoOperator":   {reason: "names the field", from: requirement("rack", ""), wrong: `spec[0].operator: Unsupported value: ""`},
		"NoValues": {reason: "names the entry", from: requirement("rack", "In"),
			wrong: "spec[0]: Invalid value: \"rack In\": for 'in', 'notin' operators, values set can't be empty"},
		"Key": {reason: "names the entry", from: requirement("a b", "Exists"),
			wrong: `spec[0]: Invalid value: "a b Exists": name part must consist of`},
	} {
		t.Run(name, func(t *testing.T) {
			valid, errs := Requirements(field.NewPath("spec"), []corev1.NodeSelectorRequirement{tc.from})
			got := ""
			if len(valid) > 0 {
				got = valid[0].String()
			}
			if got != tc.want || (tc.wrong == "") != (len(errs) == 0) || len(errs) > 0 && !strings.HasPrefix(errs[0].Error(), tc.wrong) {
				t.Errorf("%s: got %q and %v, want %q and %q", tc.reason, got, errs, tc.want, tc.wrong)
			}
		})
	}
}

func TestNodeTypeSelector(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		entry  v1alpha1.NodeTypeSelectorRequirement
		want   corev1.NodeSelectorRequirement
		wrong  string
	}{
		"Default": {"no operator means In", v1alpha1.NodeTypeSelectorRequirement{Property: "tier", Value: "gold"},
			requirement("tier", "In", "gold"), ""},
		"Values": {"one of several", v1alpha1.NodeTypeSelectorRequirement{Property: "tier", Operator: "NotIn", Values: []string{"a", "b"}},
			requirement("tier", "NotIn", "a", "b"), ""},
		"NotExists": {"without values", v1alpha1.NodeTypeSelectorRequirement{Property: "tier", Operator: "NotExists"},
			requirement("tier", "DoesNotExist"), ""},
		"Operator": {"is none", v1alpha1.NodeTypeSelectorRequirement{Property: "tier", Operator: "Is"}, requirement("tier", ""),
			`at.operator: Unsupported value: "Is"`},
		"Both": {"one is a mistake", v1alpha1.NodeTypeSelectorRequirement{Property: "tier", Value: "a", Values: []string{"b"}},
			requirement("tier", "In", "a"), "at.value: Invalid value"},
		"Neither": {"compares with nothing", v1alpha1.NodeTypeSelectorRequirement{Property: "tier"}, requirement("tier", "In"),
			"at.value: Required value"},
		"TooMuch": {"says something else", v1alpha1.NodeTypeSelectorRequirement{Property: "tier", Operator: "Exists", Value: "a"},
			requirement("tier", "Exists", "a"), "at.value: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := NodeTypeSelector(field.NewPath("at"), tc.entry)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if (err == nil) != (tc.wrong == "") || err != nil && !strings.HasPrefix(err.Error(), tc.wrong) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.wrong)
			}
		})
	}
}

func TestOffered(t *testing.T) {
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}
	nodeType.Status.Requirements = []v1alpha1.NodeTypeRequirement{{Key: "rack", Values: []string{"r1", "r2"}},
		{Key: "gpus", Values: []string{"8"}}}
	for name, tc := range map[string]struct {
		reason string
		asked  corev1.NodeSelectorRequirement
		want   bool
	}{
		"Value":         {"one of its values", requirement("rack", "In", "r2", "r3"), true},
		"OtherValue":    {"none of its values", requirement("rack", "In", "r3"), false},
		"NotIn":         {"another value is left", requirement("rack", "NotIn", "r1"), true},
		"NotAnyOf":      {"no value is left", requirement("rack", "NotIn", "r1", "r2"), false},
		"More":          {"8 is more than 4", requirement("gpus", "Gt", "4"), true},
		"Less":          {"8 is not less than 4", requirement("gpus", "Lt", "4"), false},
		"NoSuchLabel":   {"none of its nodes has it", requirement("nvlink-domain", "Exists"), false},
		"WithoutLabel":  {"none of its nodes has it", requirement("nvlink-domain", "DoesNotExist"), true},
		"Name":          {"is known without a server", requirement(corev1.LabelInstanceTypeStable, "In", "h100"), true},
		"OtherName":     {"is known without a server", requirement(v1alpha1.NodeTypeLabelKey, "In", "a100"), false},
		"ZoneNotKnown":  {"no server has said its zone, so nothing speaks against it", requirement(corev1.LabelTopologyZone, "In", "z1"), true},
		"OperatingSys":  {"always Linux", requirement(corev1.LabelOSStable, "In", "windows"), false},
		"WithoutZone":   {"a zone is always there, but which is not known", requirement(corev1.LabelTopologyZone, "NotIn", "z1"), true},
		"RackIsNotThat": {"some server has one", requirement("rack", "DoesNotExist"), false},
	} {
		t.Run(name, func(t *testing.T) {
			requirement, errs := Requirement(nil, tc.asked)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if got := OfferedBy(nodeType).Meets(requirement); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		resources := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return resources
	}
	gpus := NewType("h100", "metal", capacity.Server{
		Resources: list("cpu", "96", "nvidia.com/gpu", "8", "ephemeral-storage", "2Ti"), KubeReserved: list("cpu", "6"),
	}, []string{"gpu.nvidia.com"}, nil)
	shown := NewType("a100", "metal", capacity.Server{Resources: list("cpu", "96")}, nil, []string{"gpu-model=a100"})
	virt := NewType("virt", "metal", capacity.Server{Resources: list("cpu", "64", "devices.kubevirt.io/kvm", "1k")}, nil, nil)
	none := func(string, string) bool { return false }
	for name, tc := range map[string]struct {
		reason  string
		request Request
		want    Reason
		words   string
	}{
		"Shown": {"the type names nothing, and its servers have GPUs", Request{Resources: list("cpu", "1")}, Accelerated,
			"has accelerators (gpu-model=a100) and the pod requests none of them"},
		"ShownAsked": {"how many there are nobody has said", Request{Resources: list("cpu", "1", "nvidia.com/gpu", "1")}, TooSmall,
			"has no nvidia.com/gpu in its resources, although its servers show accelerators (gpu-model=a100)"},
		"ShownSmall": {"more cpu is not what is missing there", Request{Resources: list("cpu", "97")}, TooSmall,
			"too small: asks cpu 97, has 96"},
		"ShownStatic": {"the claim of a static NodePool names types, and no resources", Request{}, Fits, ""},
		"ShownDriver": {"core has found devices for it", Request{Resources: list("cpu", "1"), Drivers: []string{"gpu.nvidia.com"}}, Fits, ""},
		"ShownNamed":  {"an explicitly named type wins", Request{NodeType: "a100", Resources: list("cpu", "1")}, Fits, ""},
		"VirtPlain":   {"each server can have virtual machines", Request{Resources: list("cpu", "50")}, Fits, ""},
		"VirtAsked":   {"asks for what is there", Request{Resources: list("cpu", "50", "devices.kubevirt.io/kvm", "1")}, Fits, ""},
		"Fits": {"asks for what is there",
			Request{Resources: list("cpu", "90", "nvidia.com/gpu", "1", "pods", "300", "ephemeral-storage", "1Ti")}, Fits, ""},
		"Driver": {"asks for a device", Request{Resources: list("cpu", "1"), Drivers: []string{"gpu.nvidia.com"}}, Fits, ""},
		"Reserved": {"kubeReserved is not for pods", Request{Resources: list("cpu", "91", "nvidia.com/gpu", "9")}, TooSmall,
			"too small: asks cpu 91, has 90 and asks nvidia.com/gpu 9, has 8"},
		"Missing": {"there is none of it", Request{Resources: list("cpu", "91", "amd.com/gpu", "1")}, TooSmall, "has no amd.com/gpu"},
		"NotInspected": {"every server has memory", Request{Resources: list("cpu", "1", "memory", "1Gi")}, TooSmall,
			"of unknown size: resources leaves out cpu or memory, and Metal3 has inspected none of its servers"},
		"NotInspectedMissing": {"what inspection would not find comes first", Request{Resources: list("memory", "1Gi", "amd.com/gpu", "1")},
			TooSmall, "has no amd.com/gpu"},
		"Accelerated": {"it would keep the GPUs from others", Request{Resources: list("cpu", "1")}, Accelerated,
			"has accelerators (nvidia.com/gpu, gpu.nvidia.com) and the pod requests none of them"},
		"Named":      {"an explicitly named type wins", Request{NodeType: "h100", Resources: list("cpu", "1000")}, Fits, ""},
		"NotAllowed": {"the tenant may not have it", Request{NodeType: "h100", Allowed: none}, NotAllowed, "not allowed for this tenant"},
		"Worse": {"that it does not fit comes first", Request{Resources: list("cpu", "1"), Allowed: none}, Accelerated,
			"has accelerators (nvidia.com/gpu, gpu.nvidia.com) and the pod requests none of them"},
	} {
		t.Run(name, func(t *testing.T) {
			got := gpus.Check(&tc.request)
			if strings.HasPrefix(name, "Shown") {
				got = shown.Check(&tc.request)
			}
			if name == "VirtPlain" || name == "VirtAsked" {
				got = virt.Check(&tc.request)
			}
			if got.Reason != tc.want || got.Describe("pod") != tc.words {
				t.Errorf("%s: got %s, %q; want %s, %q", tc.reason, got.Reason, got.Describe("pod"), tc.want, tc.words)
			}
		})
	}
}
