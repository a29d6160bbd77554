// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
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
