// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestSelector(t *testing.T) {
	expression := func(operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "tenant", Operator: metav1.LabelSelectorOpDoesNotExist}, {Key: "gpu", Operator: operator, Values: values}}}
	}
	for name, tc := range map[string]struct {
		reason   string
		selector metav1.LabelSelector
		want     string
		problem  string
	}{
		"Good": {reason: "both forms together",
			selector: metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "h100"},
				MatchExpressions: expression("In", "a").MatchExpressions[:1]}, want: "gpu=h100,!tenant"},
		"Empty": {reason: "every host of the provider", selector: metav1.LabelSelector{}, want: labels.Everything().String()},
		"Operator": {reason: "names the requirement", selector: expression("Is", "h100"),
			problem: `bareMetalHosts.selector.matchExpressions[1] (gpu Is [h100]) is not valid: "Is" is not a valid label selector operator`},
		"NoValues": {reason: "names the requirement", selector: expression("In"),
			problem: `bareMetalHosts.selector.matchExpressions[1] (gpu In []) is not valid: values: Invalid value: null: for 'in', 'notin' ` +
				`operators, values set can't be empty`},
		"Label": {reason: "names the label", selector: metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "H 100"}},
			problem: `bareMetalHosts.selector.matchLabels (gpu: H 100) is not valid: values[0][gpu]: Invalid value: "H 100": a valid label must ` +
				`be ` +
				`an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. ` +
				`'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`},
	} {
		t.Run(name, func(t *testing.T) {
			got, problem := "", ""
			if selector, err := Selector(&tc.selector); err != nil {
				problem = err.Error()
			} else {
				got = selector.String()
			}
			if diff := cmp.Diff([]string{tc.want, tc.problem}, []string{got, problem}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAllocatable(t *testing.T) {
	nodeType := &v1alpha1.NodeType{}
	nodeType.Spec.Resources = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"),
		"hugepages-2Mi":  resource.MustParse("64Mi"),
		"nvidia.com/gpu": resource.MustParse("8")}
	nodeType.Spec.Overhead = &v1alpha1.NodeTypeOverhead{KubeReserved: corev1.ResourceList{
		"cpu": resource.MustParse("500m"), "memory": resource.MustParse("2Gi"), "ephemeral-storage": resource.MustParse("1Gi")}}
	got := map[string]string{}
	for name, quantity := range (Kubelet{}).Allocatable(ServerOf(nodeType, nil)) {
		got[string(name)] = quantity.String()
	}
	want := map[string]string{"cpu": "1500m", "memory": "0", "nvidia.com/gpu": "8",
		"ephemeral-storage": "17407Mi", "hugepages-2Mi": "64Mi"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("clamped at zero, and with a disk in any case (-want +got):\n%s", diff)
	}
	if before := nodeType.Spec.Resources["cpu"]; before.String() != "2" || len(nodeType.Spec.Resources) != 4 {
		t.Error("the type itself was changed")
	}
}

func TestEphemeralStorage(t *testing.T) {
	setting := resource.MustParse("20Gi")
	for name, tc := range map[string]struct {
		reason   string
		declared string
		disk     int64
		want     string
	}{
		"Declared":     {"what the type says counts, and nothing else", "1Ti", 480 << 30, "<nil>"},
		"Inspected":    {"a tenth is for other partitions and the tables of the file system", "", 480 << 30, "432Gi"},
		"SmallDisk":    {"boot partitions do not shrink with the disk", "", 8 << 30, "7Gi"},
		"NotInspected": {"a node without any disk would get no pod that asks for a byte", "", 0, "20Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			profile := &v1alpha1.HardwareProfile{Resources: corev1.ResourceList{}}
			if tc.declared != "" {
				profile.Resources[corev1.ResourceEphemeralStorage] = resource.MustParse(tc.declared)
			}
			got := EphemeralStorage(profile, tc.disk, setting)
			if got.String() != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
