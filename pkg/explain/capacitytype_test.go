// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

func requires(key string, operator corev1.NodeSelectorOperator, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: operator, Values: values}
}

func TestCapacityTypeOfPods(t *testing.T) {
	const key = karpv1.CapacityTypeLabelKey
	pool := func(name string, requirements ...karpv1.NodeSelectorRequirementWithMinValues) karpv1.NodePool {
		return *planning.Pool(name, func(pool *karpv1.NodePool) { pool.Spec.Template.Spec.Requirements = requirements })
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
		pools  []karpv1.NodePool
		want   string
	}{
		"nothing":       {"it is the server's", func(*corev1.PodSpec) {}, []karpv1.NodePool{plain}, ""},
		"reserved":      {"servers are that", selecting(key, "reserved"), []karpv1.NodePool{plain}, ""},
		"not spot":      {"servers never are", node("NotIn", "spot"), []karpv1.NodePool{plain}, ""},
		"a pool has it": {"Karpenter uses that pool", selecting(key, "on-demand"), []karpv1.NodePool{plain, onDemand}, ""},
		"no pool":       {"Karpenter says that there is none", selecting(key, "on-demand"), nil, ""},
		"on-demand": {"no NodePool allows only that", selecting(key, "on-demand"), []karpv1.NodePool{plain, static},
			"NoCapacityType: no NodePool has servers for nodeSelector/affinity karpenter.sh/capacity-type In [on-demand]: there are " +
				"plain (reserved): " + remedy + "[on-demand]"},
		"not reserved": {"as above", node("NotIn", "reserved"), []karpv1.NodePool{plain},
			"NoCapacityType: no NodePool has servers for nodeSelector/affinity karpenter.sh/capacity-type NotIn [reserved]: there are " +
				"plain (reserved): " + remedy + "[on-demand]"},
		"reserved, of on-demand": {"the other way round", selecting(key, "reserved"), []karpv1.NodePool{onDemand},
			"NoCapacityType: no NodePool has servers for nodeSelector/affinity karpenter.sh/capacity-type In [reserved]: there are " +
				"cloud (on-demand): " + remedy + "[reserved]"},
		"spot": {"no setting makes servers spot", selecting(key, "spot"), []karpv1.NodePool{plain, onDemand},
			"NoCapacityType: no server can ever match nodeSelector/affinity karpenter.sh/capacity-type In [spot]: servers are reserved or " +
				"on-demand, as their NodePool says: leave it out of the pod"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			fleet := Fleet{NodePools: tc.pools}
			if explanation := fleet.noCapacityType(pod(nil, tc.pod)); explanation != (Explanation{}) {
				got = explanation.Reason + ": " + explanation.Message
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
