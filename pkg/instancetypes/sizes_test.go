// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestOwnNodes: what the tenant's own nodes had counts for the tenant, for the type and the class that they are of, without a bound.
func TestOwnNodes(t *testing.T) {
	class := &v1alpha1.MetalNodeClass{}
	class.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: "ubuntu", v1alpha1.PropertyNetworkData: "x"}
	edited := class.DeepCopy()
	edited.Spec.Properties[v1alpha1.PropertyOSImage] = "debian"
	argued := class.DeepCopy()
	argued.Spec.KubeletArgs = v1alpha1.KubeletArgs{"max-pods": "200"}
	machine := func(uid types.UID, pairs ...string) *v1alpha1.Machine {
		machine := env.JoinedMachine("h100", class, pairs...)
		machine.UID = uid
		return machine
	}
	drifted, left := machine("1", "memory", "1Gi"), machine("1", "memory", "1Gi")
	drifted.Status.Conditions = append(drifted.Status.Conditions,
		metav1.Condition{Type: v1alpha1.ConditionDrifted, Status: metav1.ConditionTrue})
	left.Status.Conditions[0].Status = metav1.ConditionFalse
	for name, tc := range map[string]struct {
		reason   string
		observed []*v1alpha1.Machine
		gone     *v1alpha1.Machine
		since    time.Duration
		nodeType string
		class    *v1alpha1.MetalNodeClass
		want     corev1.ResourceList
	}{
		"None": {reason: "nothing is known"},
		"Small": {reason: "the tenant may make it useless for itself",
			observed: []*v1alpha1.Machine{machine("1", "memory", "1Ki")}, want: env.Resources("memory", "1Ki")},
		"Least": {reason: "of each resource",
			observed: []*v1alpha1.Machine{machine("1", "memory", "9Gi", "cpu", "5"), machine("2", "memory", "8Gi", "cpu", "6")},
			want:     env.Resources("memory", "8Gi", "cpu", "5")},
		"Corrected": {reason: "the newest report counts",
			observed: []*v1alpha1.Machine{machine("1", "memory", "1Gi"), machine("1", "memory", "2Gi")}, want: env.Resources("memory", "2Gi")},
		"OtherType":  {reason: "they are other servers", observed: []*v1alpha1.Machine{machine("1", "memory", "1Gi")}, nodeType: "a100"},
		"OtherImage": {reason: "it may set less aside", observed: []*v1alpha1.Machine{machine("1", "memory", "1Gi")}, class: edited},
		"OtherArgs":  {reason: "they may set less aside", observed: []*v1alpha1.Machine{machine("1", "memory", "1Gi")}, class: argued},
		"NotJoined":  {reason: "there is no node", observed: []*v1alpha1.Machine{left}},
		"Drifted": {reason: "another would be installed with something else",
			observed: []*v1alpha1.Machine{machine("1", "memory", "1Gi"), drifted}},
		"Gone": {reason: "or its server would be launched again at once", observed: []*v1alpha1.Machine{machine("1", "memory", "1Gi")},
			gone: machine("1"), since: sizeMemory - 1, want: env.Resources("memory", "1Gi")},
		"Forgotten": {reason: "the server may be repaired",
			observed: []*v1alpha1.Machine{machine("1", "memory", "1Gi"), machine("2", "memory", "2Gi")},
			gone:     machine("1"), since: sizeMemory, want: env.Resources("memory", "2Gi")},
		"GoneUnknown": {reason: "it never had a node", gone: machine("1")},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			catalog := NewCatalog(DefaultPods)
			catalog.sizes.clock = clk
			for _, machine := range tc.observed {
				catalog.Observe(machine)
			}
			if tc.nodeType == "" {
				tc.nodeType = "h100"
			}
			if tc.class == nil {
				tc.class = class
			}
			if tc.gone != nil {
				catalog.OwnNodes(NewFilter(nil, tc.class))(tc.nodeType) // a sum of before
				catalog.Forget(tc.gone)
			}
			clk.SetTime(clk.Now().Add(tc.since))
			for range 2 { // the second from memory
				if diff := cmp.Diff(tc.want, catalog.OwnNodes(NewFilter(nil, tc.class))(tc.nodeType)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
			if got := catalog.OwnNodes(NewFilter(nil, nil))(tc.nodeType); got != nil {
				t.Errorf("of whatever class: %v", got)
			}
		})
	}
}
