// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package unschedulable

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/record"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

func TestMain(m *testing.M) {
	if err := instancetypes.Register(topology.Defaults()); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

type recorded []events.Event

func (r *recorded) Publish(all ...events.Event) { *r = append(*r, all...) }

func requires(key string, operator corev1.NodeSelectorOperator, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: operator, Values: values}
}

func TestNodePoolRequirements(t *testing.T) {
	catalog := instancetypes.NewCatalog(instancetypes.DefaultPods)
	catalog.Set(planning.NodeType("a100", 4, planning.Domain(0, "rack", "r1"), planning.Domain(2, "rack", "r2")))
	shared := planning.NodeType("t4", 4, planning.Domain(0))
	shared.Status.Requirements = append(shared.Status.Requirements, v1alpha1.NodeTypeRequirement{
		Key: v1alpha1.TypeLabelKey("customer-a"), Values: []string{"true"}})
	catalog.Set(shared)
	everything := instancetypes.NewFilter(nil, nil)
	for name, tc := range map[string]struct {
		reason      string
		requirement karpv1.NodeSelectorRequirementWithMinValues
		want        []string
	}{
		"reserved": {"it is what servers are", requires(karpv1.CapacityTypeLabelKey, "In", "reserved", "spot"), nil},
		"not spot": {"as above", requires(karpv1.CapacityTypeLabelKey, "NotIn", "spot"), nil},
		"on-demand": {"servers are that to a NodePool that allows nothing else",
			requires(karpv1.CapacityTypeLabelKey, "In", "on-demand", "spot"),
			nil},
		"spot": {"nothing of that is to be had", requires(karpv1.CapacityTypeLabelKey, "In", "spot"),
			[]string{"NoCapacityType: requirement karpenter.sh/capacity-type In [spot] allows neither reserved nor on-demand, and servers are " +
				"nothing else: allow one of the two"}},
		"a full rack": {"servers come back", requires("rack", "In", "r1"), nil},
		"no such rack": {"none will ever be there", requires("rack", "In", "r9"),
			[]string{"NoServerMatches: requirement rack In [r9] is met by no server that this tenant may have: correct it, or label the " +
				"BareMetalHosts"}},
		"label of no host": {"as above", requires("nvlink-domain", "Exists"),
			[]string{"NoServerMatches: requirement nvlink-domain Exists is met by no server that this tenant may have: correct it, or label the " +
				"BareMetalHosts"}},
		"without a label": {"all are", requires("nvlink-domain", "DoesNotExist"), nil},
		"type":            {"by either name", requires(v1alpha1.NodeTypeLabelKey, "In", "a100"), nil},
		"no such type": {"it is a mistake, or the type is created later", requires(corev1.LabelInstanceTypeStable, "In", "h100"),
			[]string{"NoServerMatches: requirement node.kubernetes.io/instance-type In [h100] is met by no server that this tenant may have: " +
				"correct it, or label the BareMetalHosts"}},
		"more than":    {"every bound is met by some server", requires("gpus", karpv1.NodeSelectorOpGte, "8"), nil},
		"another type": {"a server of the a100 matches it too", requires("type.karpenter.metal3.io/customer-a", "In", "true"), nil},
		"no such other type": {"no server does", requires("type.karpenter.metal3.io/customer-b", "In", "true"),
			[]string{"NoServerMatches: requirement type.karpenter.metal3.io/customer-b In [true] is met by no server that this tenant may have: " +
				"correct it, or label the BareMetalHosts"}},
		"own label": {"NodePools may give their nodes any other label", requires("team", "In", "blue"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			nodePool := planning.Pool("pool", func(pool *karpv1.NodePool) {
				pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{tc.requirement}
			})
			recorder := &recorded{}
			c := NewNodePoolController(nil,
				func(_ context.Context, _ *karpv1.NodePool, requirements ...*labels.Requirement) (bool, error) {
					return catalog.Meets(everything, requirements...), nil
				}, recorder)
			if _, err := c.Reconcile(t.Context(), nodePool); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, event := range *recorder {
				got = append(got, event.Reason+": "+event.Message)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A server of one type may match another type as well, and those of the type that the NodePool names do not.
func TestNodePoolOfTwoTypes(t *testing.T) {
	catalog := instancetypes.NewCatalog(instancetypes.DefaultPods)
	for name, also := range map[string]string{"a100": "customer-a", "h100": "customer-b"} {
		nodeType := planning.NodeType(name, 4, planning.Domain(2))
		nodeType.Status.Requirements = append(nodeType.Status.Requirements, v1alpha1.NodeTypeRequirement{
			Key: v1alpha1.TypeLabelKey(also), Values: []string{"true"}})
		catalog.Set(nodeType)
	}
	for also, want := range map[string]int{"customer-a": 0, "customer-b": 1} {
		recorder := &recorded{}
		c := NewNodePoolController(nil, func(_ context.Context, _ *karpv1.NodePool, requirements ...*labels.Requirement) (bool, error) {
			return catalog.Meets(instancetypes.NewFilter(nil, nil), requirements...), nil
		}, recorder)
		nodePool := planning.Pool("pool", func(pool *karpv1.NodePool) {
			pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
				requires(v1alpha1.NodeTypeLabelKey, "In", "a100"), requires(v1alpha1.TypeLabelKey(also), "In", "true")}
		})
		if _, err := c.Reconcile(t.Context(), nodePool); err != nil {
			t.Fatal(err)
		}
		if len(*recorder) != want {
			t.Errorf("%s: %d events, want %d: %v", also, len(*recorder), want, *recorder)
		}
	}
}

// While the servers are not known, no event says that there are none.
func TestNoEventBeforeCacheSync(t *testing.T) {
	recorder := record.NewFakeRecorder(10)
	notSynced := errors.New("the cache of the management cluster is not filled yet")
	c := NewNodePoolController(nil, func(context.Context, *karpv1.NodePool, ...*labels.Requirement) (bool, error) {
		return false, notSynced
	}, events.NewRecorder(recorder))
	nodePool := planning.Pool("pool", func(pool *karpv1.NodePool) {
		pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{requires("rack", "In", "r9")}
	})
	if _, err := c.Reconcile(t.Context(), nodePool); !errors.Is(err, notSynced) {
		t.Errorf("got %v, want the error", err)
	}
	if len(recorder.Events) > 0 {
		t.Errorf("an event: %s", <-recorder.Events)
	}
}
