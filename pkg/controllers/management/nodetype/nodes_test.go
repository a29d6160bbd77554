// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetype

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestNodes: Machines of a type are read only when one of them, or what the type declares, is another than before.
func TestNodes(t *testing.T) {
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "m"}}
	machine.Status.HostRef = &v1alpha1.HostReference{Namespace: "metal3", Name: "s1"}
	machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: "h100"}
	machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionJoined, Status: metav1.ConditionTrue}}
	machine.ReportNode(func(node *v1alpha1.MachineNode) { node.Resources = env.Resources("memory", "7Gi") })
	for name, tc := range map[string]struct {
		reason string
		change func(*nodes, *v1alpha1.NodeType)
		reads  int
	}{
		"Counts": {"each claim changes them", func(_ *nodes, nodeType *v1alpha1.NodeType) { nodeType.Status.Capacity.Claimed++ }, 1},
		"Joined": {"its node may be a small one", func(n *nodes, _ *v1alpha1.NodeType) { n.ofMachine(t.Context(), machine) }, 2},
		"Other": {"it says nothing of this type", func(n *nodes, _ *v1alpha1.NodeType) {
			other := machine.DeepCopy()
			other.Status.NodeTypeRef.Name = "a100"
			n.ofMachine(t.Context(), other)
		}, 1},
		"Booting": {"it says nothing yet", func(n *nodes, _ *v1alpha1.NodeType) {
			other := machine.DeepCopy()
			other.Status.Conditions = nil
			n.ofMachine(t.Context(), other)
		}, 1},
		"Spec": {"its tolerance depends on it", func(_ *nodes, nodeType *v1alpha1.NodeType) { nodeType.Generation++ }, 2},
		"Found": {"inspection says what the spec leaves out",
			func(_ *nodes, nodeType *v1alpha1.NodeType) {
				nodeType.Status.Resources = env.Resources("memory", "512Gi")
			}, 2},
		"Disk": {"the smallest one may be another", func(_ *nodes, nodeType *v1alpha1.NodeType) {
			disk := env.Resources("disk", "1Ti")["disk"]
			nodeType.Status.EphemeralStorage = &disk
		}, 2},
	} {
		reads, known := 0, nodes{}
		reader := fake.NewClientBuilder().WithScheme(env.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
			List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				list.(*v1alpha1.MachineList).Items = []v1alpha1.Machine{*machine}
				reads++
				return nil
			}}).Build()
		nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "h100", Generation: 1}}
		nodeType.Spec.Resources = env.Resources("cpu", "96", "memory", "768Gi")
		for range 2 {
			got, err := known.get(t.Context(), reader, nodeType)
			if err != nil || !slices.Equal(got.Smaller, []string{"acme/m on metal3/s1 (memory 7Gi of 768Gi)"}) {
				t.Errorf("%s: small are %q, %v; want that of the Machine", name, got.Smaller, err)
			}
		}
		tc.change(&known, nodeType)
		if _, err := known.get(t.Context(), reader, nodeType); err != nil || reads != tc.reads {
			t.Errorf("%s: %s: Machines are read %d times, want %d (%v)", name, tc.reason, reads, tc.reads, err)
		}
	}
}
