// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// TestStaticNodesGoOnlyIfTheirServerComesBack: a node of a static pool is given up first because its server is installed
// again for the same pool. If the pool cannot have that server any more, nothing would replace the node.
func TestStaticDriftNeedsAReusableServer(t *testing.T) {
	wants := func(key string, values ...string) []karpv1.NodeSelectorRequirementWithMinValues {
		return []karpv1.NodeSelectorRequirementWithMinValues{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}
	}
	for name, tc := range map[string]struct {
		reason       string
		types        []*cloudprovider.InstanceType
		requirements []karpv1.NodeSelectorRequirementWithMinValues
		refusal      string
		outage       bool
		want         bool
	}{
		"SameType": {reason: "its server comes back", types: []*cloudprovider.InstanceType{full("h100")}, want: true},
		"Refused": {reason: "the management cluster admits no Machine for the pool, however free its server is",
			types: []*cloudprovider.InstanceType{full("h100")}, refusal: "InvalidMachine: denied by a policy"},
		"AnotherType": {reason: "the pool has come to require a type of which no server is free",
			types: []*cloudprovider.InstanceType{full("h100"), full("b200")}, requirements: wants(corev1.LabelInstanceTypeStable, "b200")},
		"AnotherZone": {reason: "the pool has come to require another zone", types: []*cloudprovider.InstanceType{full("h100")},
			requirements: wants(corev1.LabelTopologyZone, "dc2")},
		"AnotherCapacityType": {reason: "the pool has come to require on-demand, which its server is then",
			types: []*cloudprovider.InstanceType{onDemand("h100")}, requirements: wants(karpv1.CapacityTypeLabelKey, "on-demand"), want: true},
		"Outage": {reason: "the management cluster does not answer, and core goes on with its other methods",
			types: []*cloudprovider.InstanceType{full("h100")}, outage: true},
		"TypeNotThere": {reason: "the type is gone, or the tenant may not have it any more", types: []*cloudprovider.InstanceType{full("b200")}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := tenanttest.TenantCluster(t, &environment)
			nodePool, nodeClaim, _ := drifted(t, cluster.Namespace, cluster.Name)
			nodePool.Spec.Replicas, nodePool.Spec.Template.Spec.Requirements = ptr.To(int64(1)), tc.requirements
			management := interceptor.NewClient(tenanttest.WithWatch(&environment), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
					if tc.outage {
						return errors.New("connection refused")
					}
					return c.Get(ctx, key, object, opts...)
				},
			})
			clusters := tenanttest.ClustersOf(cluster, environment.Client, management)
			servers := &catalog{types: tc.types}
			d := Dependencies{
				Client: environment.Client, Clusters: clusters, Cluster: state.NewCluster(clock.RealClock{}, environment.Client, servers),
				CloudProvider: servers,
				Servers:       noneFree{refusal: tc.refusal}, Recorder: events.NewRecorder(record.NewFakeRecorder(10)), Clock: clock.RealClock{},
			}
			method := &StaticDrift{terminator: terminator{Dependencies: d, replacements: newReplacements(d, nil, nil)}}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{
				corev1.LabelInstanceTypeStable: "h100", corev1.LabelTopologyZone: "dc1", karpv1.NodeRegisteredLabelKey: "true",
				karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeReserved,
			}}}
			candidate := &disruption.Candidate{StateNode: &state.StateNode{NodeClaim: nodeClaim.DeepCopy(), Node: node}, NodePool: nodePool}
			commands, _, err := method.computePool(t.Context(), &pool{live: nodePool.DeepCopy(), left: 1}, []*disruption.Candidate{candidate})
			if err != nil {
				t.Fatal(err)
			}
			if went := len(commands) > 0; went != tc.want {
				t.Errorf("%s: the node goes: %v, want %v", tc.reason, went, tc.want)
			}
		})
	}
}

// full is a type whose servers are all in use.
func full(name string) *cloudprovider.InstanceType {
	return &cloudprovider.InstanceType{
		Name:         name,
		Requirements: scheduling.NewRequirements(scheduling.NewRequirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, name)),
		Offerings: cloudprovider.Offerings{{Requirements: scheduling.NewRequirements(
			scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeReserved),
			scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "dc1"),
		)}},
	}
}

// onDemand is full as a pool has it that allows nothing else.
func onDemand(name string) *cloudprovider.InstanceType {
	result := full(name)
	onDemand := scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeOnDemand)
	result.Requirements[karpv1.CapacityTypeLabelKey] = onDemand
	result.Offerings[0].Requirements[karpv1.CapacityTypeLabelKey] = onDemand
	return result
}

// catalog is as much of a cloud provider as is asked here.
type catalog struct {
	cloudprovider.CloudProvider
	types []*cloudprovider.InstanceType
}

func (c *catalog) GetInstanceTypes(context.Context, *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	return c.types, nil
}

// noneFree has no server.
type noneFree struct{ refusal string }

func (noneFree) RefusedLately(string, string) bool { return false }

func (n noneFree) Refusal(context.Context, *karpv1.NodePool, string) (string, error) {
	return n.refusal, nil
}

func (noneFree) FreeFor(context.Context, *karpv1.NodePool) (int64, time.Duration, error) {
	return 0, 0, nil
}
