// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package accelerators

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/resourceclaims"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

func TestMain(m *testing.M) {
	if err := instancetypes.Register(topology.Defaults()); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// typesOnly is a cloud provider that has instance types and nothing else.
type typesOnly struct {
	cloudprovider.CloudProvider
	catalog *instancetypes.Catalog
}

func (p typesOnly) GetInstanceTypes(context.Context, *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	return p.catalog.InstanceTypes(instancetypes.NewFilter(nil, nil)), nil
}

func (p typesOnly) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&v1alpha1.MetalNodeClass{}}
}

func nodeType(name string, free int32, pairs ...string) *v1alpha1.NodeType {
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: name}}
	nodeType.Spec.Resources = requests(pairs...).Requests
	nodeType.Status.Cost = nodeType.EffectiveCost()
	nodeType.Status.Zones = []v1alpha1.ZoneCapacity{{Name: "dc1", Capacity: v1alpha1.Capacity{Total: free, Available: free}}}
	nodeType.Status.Requirements = []v1alpha1.NodeTypeRequirement{{Key: "rack", Values: []string{"r1"}}}
	return nodeType
}

func a100(free int32) *v1alpha1.NodeType {
	return nodeType("a100-4x", free, "cpu", "64", "memory", "512Gi", "nvidia.com/gpu", "4")
}

func h100(free int32) *v1alpha1.NodeType {
	return nodeType("h100-8x", free, "cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")
}

func plain(free int32) *v1alpha1.NodeType {
	return nodeType("cpu", free, "cpu", "128", "memory", "1Ti")
}

func pod(number int, resources corev1.ResourceRequirements, change ...func(*corev1.Pod)) *corev1.Pod {
	name := fmt.Sprintf("pod-%02d", number)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: resources}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
		}},
	}
	for _, change := range change {
		change(pod)
	}
	return pod
}

// schedule has core's own provisioner plan for the pods, through the client that keeps pods off.
func schedule(t *testing.T, nodeTypes []*v1alpha1.NodeType, objects ...client.Object) scheduling.Results {
	t.Helper()
	return scheduleWith(t, func(*options.Options) {}, nodeTypes, objects...)
}

// scheduleWith is schedule with other options of core.
func scheduleWith(t *testing.T, change func(*options.Options), nodeTypes []*v1alpha1.NodeType,
	objects ...client.Object) scheduling.Results {
	t.Helper()
	settings := planning.Options(t)
	change(settings)
	ctx := settings.ToContext(context.Background())
	catalog := instancetypes.NewCatalog(instancetypes.DefaultPods)
	for _, nodeType := range nodeTypes {
		catalog.Set(nodeType)
	}
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "servers", UID: "pool"}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: "default"}
	pool.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
	pool.StatusConditions().SetTrue(karpv1.ConditionTypeNodeClassReady)
	plainClient := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(append(objects, pool)...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", env.NodeOfPod).
		WithIndex(&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.group",
			func(client.Object) []string { return []string{v1alpha1.Group} }).
		WithIndex(&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.kind",
			func(client.Object) []string { return []string{"MetalNodeClass"} }).
		Build()
	// As CloudProvider.ByDriver, for pods that every type may serve.
	extended := resourceclaims.NewExtended(plainClient, func(context.Context, *corev1.Pod) (bool, error) {
		return slices.ContainsFunc(nodeTypes, func(nodeType *v1alpha1.NodeType) bool { return len(nodeType.Spec.Devices) > 0 }), nil
	})
	kubeClient := interceptor.NewClient(plainClient, resourceclaims.Claims(plainClient), resourceclaims.ListedClaims(),
		extended.Claims(), extended.Pods(), Pods(), Templates())
	provider := typesOnly{catalog: catalog}
	recorder := events.NewRecorder(record.NewFakeRecorder(1000))
	cluster := state.NewCluster(clock.RealClock{}, kubeClient, provider)
	for _, object := range objects {
		if node, ok := object.(*corev1.Node); ok {
			if err := cluster.UpdateNode(ctx, node); err != nil {
				t.Fatal(err)
			}
		}
	}
	allocated := deviceallocation.NewController(kubeClient)
	allocated.Hydrate(ctx)
	provisioner := provisioning.NewProvisioner(kubeClient, recorder, provider, cluster, clock.RealClock{},
		allocated, virtualpods.NewVirtualPodCache(kubeClient))
	results, err := provisioner.Schedule(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func TestCoreSchedulesOntoInstanceTypes(t *testing.T) {
	gpu, cpu := requests("nvidia.com/gpu", "1"), requests("cpu", "1")
	pods := func(count int, resources corev1.ResourceRequirements) (result []client.Object) {
		for i := range count {
			result = append(result, pod(i, resources))
		}
		return result
	}
	inRack := func(rack string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{"r9"}}}},
					{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{rack}}}},
				}},
			}}
		}
	}
	for name, tc := range map[string]struct {
		reason string
		types  []*v1alpha1.NodeType
		pods   []client.Object
		// want is the cheapest type of each NodeClaim that core plans.
		want     []string
		existing int
	}{
		"cpu pod, only GPU servers": {
			reason: "never chosen, even when it is the only type",
			types:  []*v1alpha1.NodeType{a100(2)}, pods: pods(1, cpu),
		},
		"cpu pod, GPU servers and exhausted plain ones": {
			reason: "never chosen, even when all others are taken",
			types:  []*v1alpha1.NodeType{a100(2), plain(0)}, pods: pods(1, cpu),
		},
		"cpu pod with alternatives": {
			reason: "core gives up the first alternative, not our requirement",
			types:  []*v1alpha1.NodeType{a100(2)}, pods: []client.Object{pod(0, cpu, inRack("r1"))},
		},
		"cpu pod that names the type": {
			reason: "naming a type is not asking for its accelerator",
			types:  []*v1alpha1.NodeType{a100(2)}, pods: []client.Object{pod(0, cpu, func(pod *corev1.Pod) {
				pod.Spec.NodeSelector = map[string]string{v1alpha1.NodeTypeLabelKey: "a100-4x"}
			})},
		},
		"cpu pod, plain server": {
			reason: "that is what plain servers are for",
			types:  []*v1alpha1.NodeType{a100(2), plain(1)}, pods: pods(1, cpu), want: []string{"cpu"},
		},
		"gpu pod": {
			reason: "the cheapest that fits",
			types:  []*v1alpha1.NodeType{h100(2), a100(2), plain(1)}, pods: pods(1, gpu), want: []string{"a100-4x"},
		},
		"gpu pod by rack": {
			reason: "topology labels can be selected without a NodePool that lists them",
			types:  []*v1alpha1.NodeType{a100(2)}, pods: []client.Object{pod(0, gpu, inRack("r1"))}, want: []string{"a100-4x"},
		},
		"more pods than servers": {
			reason: "a burst makes as many NodeClaims as there are free servers, not one for each pod",
			types:  []*v1alpha1.NodeType{h100(2)}, pods: pods(10, requests("nvidia.com/gpu", "8")), want: []string{"h100-8x", "h100-8x"},
		},
		"cpu pod, a GPU node that is there": {
			reason: "free capacity of an existing node costs nothing",
			types:  []*v1alpha1.NodeType{a100(2)},
			pods: append(pods(1, cpu), &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "gpu-node", Labels: map[string]string{corev1.LabelHostname: "gpu-node"}},
				Spec:       corev1.NodeSpec{ProviderID: "metal3://metal3/a100-01/gpu-node"},
				Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourcePods: resource.MustParse("110"),
					"nvidia.com/gpu": resource.MustParse("4"),
				}},
			}),
			existing: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			results := schedule(t, tc.types, tc.pods...)
			var got []string
			for _, planned := range results.NewNodeClaims {
				nodeClaim := planned.ToNodeClaim()
				got = append(got, planned.InstanceTypeOptions.OrderByPrice(planned.Requirements)[0].Name)
				for key := range nodeClaim.Labels {
					if key == v1alpha1.AcceleratedLabelKey {
						t.Errorf("the NodeClaim has the label %s, which no node may have", key)
					}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s\nerrors: %v", tc.reason, diff, results.PodErrors)
			}
			placed := 0
			for _, node := range results.ExistingNodes {
				placed += len(node.Pods)
			}
			if placed != tc.existing {
				t.Errorf("%d pods on nodes that are there, want %d: %s; errors: %v", placed, tc.existing, tc.reason, results.PodErrors)
			}
		})
	}
}

// The pod says nothing about accelerators, so its event must.
func TestPodErrorNamesTheRequirement(t *testing.T) {
	results := schedule(t, []*v1alpha1.NodeType{a100(2)}, pod(0, requests("cpu", "1")))
	if len(results.PodErrors) != 1 {
		t.Fatalf("%d errors, want 1", len(results.PodErrors))
	}
	for _, err := range results.PodErrors {
		if want := v1alpha1.AcceleratedLabelKey + " DoesNotExist"; !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not contain %q", err, want)
		}
	}
}
