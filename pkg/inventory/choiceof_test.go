// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestRecall(t *testing.T) {
	reference := v1alpha1.HostReference{Namespace: "a", Name: "h1", UID: "ah1"}
	cases := map[string]struct {
		reason, nodeType string
		known            bool
		want             Choice
		rack             string
	}{
		"Member": {"It is what it would be chosen as, although it is claimed.", "h100", true,
			Choice{Host: reference, NodeType: "h100", Cost: 7}, "r1"},
		"Relabelled": {"A server stays of the type that it was claimed as.", "a100", true, Choice{Host: reference, NodeType: "a100", Cost: 5},
			""},
		"Unknown": {"Without the type, the cost is not known.", "gone", false, Choice{}, ""},
	}
	inventory := NewInventory(Options{})
	host := labelled("a", "h1", map[string]string{"gpu": "h100", "rack": "r1"})
	host.Spec.ConsumerRef = &corev1.ObjectReference{Name: "other"}
	inventory.SetHost(host)
	inventory.SetType(Profile{Name: "h100", Namespace: "a", Selector: parsed(t, "gpu=h100"), Cost: 7})
	inventory.SetType(Profile{Name: "a100", Namespace: "a", Selector: parsed(t, "gpu=a100"), Cost: 5})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, known := inventory.ChoiceOf(host, tc.nodeType)
			if known != tc.known || got.Labels["rack"] != tc.rack || got.Labels["karpenter.metal3.io/node-type"] != tc.want.NodeType {
				t.Errorf("%s\nknown is %t, labels are %v", tc.reason, known, got.Labels)
			}
			got.Labels = nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n%s", tc.reason, diff)
			}
		})
	}
}

// TestFaultLast: a host whose last use ended in a fault is chosen for want of any other, also of other racks and of those that were
// cleaned.
func TestFaultLast(t *testing.T) {
	faulty := map[string]string{v1alpha1.FaultAnnotationKey: "{}"}
	uncleaned := map[string]string{v1alpha1.FaultAnnotationKey: "{}", v1alpha1.LastTenantAnnotationKey: "team-a"}
	for name, tc := range map[string]struct {
		reason string
		// hosts are the annotations of h1, h2 and so on, in racks of their own.
		hosts []map[string]string
		racks []string
		want  string
	}{
		"SameRack":  {"the other is good", []map[string]string{faulty, nil}, []string{"r1", "r1"}, "h2"},
		"OtherRack": {"the other is good", []map[string]string{faulty, nil}, []string{"r1", "r2"}, "h2"},
		"Uncleaned": {"for this tenant alone, but the other is good", []map[string]string{uncleaned, nil}, []string{"r1", "r2"}, "h2"},
		"All":       {"a server that may be broken is better than none", []map[string]string{faulty, faulty}, []string{"r1", "r2"}, "h1"},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := NewInventory(Options{})
			for n, annotations := range tc.hosts {
				host := labelled("a", fmt.Sprintf("h%d", n+1), map[string]string{"gpu": "h100", "rack": tc.racks[n]})
				inventory.SetHost(host)
				changed := host.DeepCopy()
				changed.Annotations = annotations
				inventory.SetHost(changed)
			}
			inventory.SetType(Profile{Name: "h100", Namespace: "a", Selector: parsed(t, "gpu=h100")})
			if got, err := inventory.Choose(Request{Tenant: "team-a"}); err != nil || got.Host.Name != tc.want {
				t.Errorf("%s: it gets %s, %v; want %s", tc.reason, got.Host.Name, err, tc.want)
			}
		})
	}
}
