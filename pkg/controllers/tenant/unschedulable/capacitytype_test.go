// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package unschedulable

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

func TestCapacityTypeOfPods(t *testing.T) {
	const key = karpenterv1.CapacityTypeLabelKey
	pool := func(name string, requirements ...karpenterv1.NodeSelectorRequirementWithMinValues) karpenterv1.NodePool {
		return *planning.Pool(name, func(pool *karpenterv1.NodePool) { pool.Spec.Template.Spec.Requirements = requirements })
	}
	static := pool("static", requires(key, "In", "on-demand"))
	static.Spec.Replicas = new(int64)
	plain, onDemand := pool("plain"), pool("cloud", requires(key, "In", "on-demand", "spot"))
	node := func(operator corev1.NodeSelectorOperator, values ...string) func(*corev1.PodSpec) {
		return affine(term(corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}))
	}
	const remedy = "leave it out of the pod, or give a NodePool the requirement karpenter.sh/capacity-type In "
	for name, tc := range map[string]struct {
		reason string
		pod    func(*corev1.PodSpec)
		pools  []karpenterv1.NodePool
		want   string
	}{
		"nothing":       {"it is the server's", func(*corev1.PodSpec) {}, []karpenterv1.NodePool{plain}, ""},
		"reserved":      {"servers are that", selecting(key, "reserved"), []karpenterv1.NodePool{plain}, ""},
		"not spot":      {"servers never are", node("NotIn", "spot"), []karpenterv1.NodePool{plain}, ""},
		"a pool has it": {"Karpenter uses that pool", selecting(key, "on-demand"), []karpenterv1.NodePool{plain, onDemand}, ""},
		"no pool":       {"Karpenter says that there is none", selecting(key, "on-demand"), nil, ""},
		"on-demand": {"no NodePool allows only that", selecting(key, "on-demand"), []karpenterv1.NodePool{plain, static},
			"NoCapacityType: no NodePool has servers for nodeSelector/affinity karpenter.sh/capacity-type In [on-demand]: there are " +
				"plain (reserved): " + remedy + "[on-demand]"},
		"not reserved": {"as above", node("NotIn", "reserved"), []karpenterv1.NodePool{plain},
			"NoCapacityType: no NodePool has servers for nodeSelector/affinity karpenter.sh/capacity-type NotIn [reserved]: there are " +
				"plain (reserved): " + remedy + "[on-demand]"},
		"reserved, of on-demand": {"the other way round", selecting(key, "reserved"), []karpenterv1.NodePool{onDemand},
			"NoCapacityType: no NodePool has servers for nodeSelector/affinity karpenter.sh/capacity-type In [reserved]: there are " +
				"cloud (on-demand): " + remedy + "[reserved]"},
		"spot": {"no setting makes servers spot", selecting(key, "spot"), []karpenterv1.NodePool{plain, onDemand},
			"NoCapacityType: no server can ever match nodeSelector/affinity karpenter.sh/capacity-type In [spot]: servers are reserved or " +
				"on-demand, as their NodePool says: leave it out of the pod"},
	} {
		t.Run(name, func(t *testing.T) {
			selected := newSelector(pod(nil, tc.pod), sets.New(key))
			got := ""
			if explanation := explainCapacityType(selected, tc.pools, instancetypes.DefaultSettings()); selected.names(key) &&
				explanation != (Explanation{}) {
				got = explanation.Reason + ": " + explanation.Message
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
