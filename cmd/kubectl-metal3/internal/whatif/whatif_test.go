// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

// fixture is a tenant with one NodePool, and a fleet with two GPU servers in rack r1, one in r2, and a server without GPUs in each. GPU
// servers usually take 20 minutes to become a node.
func fixture(changes ...func(*view.Snapshot)) *view.Snapshot {
	s := &view.Snapshot{Time: metav1.NewTime(time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)), Tenant: &view.Tenant{UID: "tenant-uid"}}
	provider := v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "metal", UID: "metal"}}
	provider.Spec.Metal3.ClusterRef.Namespace = "metal3"
	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{{Name: "gpu"}, {Name: "cpu"}}
	s.Management.NodeProviders = []v1alpha1.NodeProvider{provider}
	for _, model := range []struct {
		name      string
		resources corev1.ResourceList
	}{
		{"gpu", env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")}, {"cpu", env.Resources("cpu", "32", "memory", "128Gi")},
	} {
		nodeType := v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: model.name, UID: types.UID(model.name),
			OwnerReferences: env.MadeBy("metal")}}
		nodeType.Spec.ProviderRef.Name = "metal"
		nodeType.Spec.HardwareProfile = v1alpha1.HardwareProfile{Resources: model.resources,
			BareMetalHosts: env.HostsWith(map[string]string{"type": model.name})}
		if model.name == "gpu" {
			nodeType.Status.Provisioning = &v1alpha1.ProvisioningEstimate{TypicalSeconds: 1200}
		}
		s.Management.NodeTypes = append(s.Management.NodeTypes, nodeType)
	}
	for _, server := range []struct{ name, nodeType, rack string }{
		{"g1", "gpu", "r1"}, {"g2", "gpu", "r1"}, {"g3", "gpu", "r2"}, {"c1", "cpu", "r1"}, {"c2", "cpu", "r2"},
	} {
		host := env.AvailableHost("metal3", server.name, map[string]string{"type": server.nodeType, "rack": server.rack})
		host.UID = types.UID(server.name)
		host.Status.HardwareDetails.CPU.Count, host.Status.HardwareDetails.RAMMebibytes = 96, 768<<10
		s.Management.Hosts = append(s.Management.Hosts, *host)
	}
	tenant := v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "acme"}}
	tenant.Status.ClusterUID = "tenant-uid"
	s.Management.TenantClusters = []v1alpha1.TenantCluster{tenant}
	class := v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	class.StatusConditions().SetTrue(v1alpha1.ConditionValidationSucceeded)
	s.Tenant.NodeClasses = []v1alpha1.MetalNodeClass{class}
	s.Tenant.NodePools = []karpv1.NodePool{*planning.Pool("default", nil)}
	for _, change := range changes {
		change(s)
	}
	return s
}

// withHost changes a host.
func withHost(name string, change func(*bmov1alpha1.BareMetalHost)) func(*view.Snapshot) {
	return func(s *view.Snapshot) {
		for i := range s.Management.Hosts {
			if s.Management.Hosts[i].Name == name {
				change(&s.Management.Hosts[i])
			}
		}
	}
}

// withNode has the tenant have a node on a GPU server, that has joined or is about to.
func withNode(name, host string, joined bool) func(*view.Snapshot) {
	return func(s *view.Snapshot) {
		withHost(host, func(claimed *bmov1alpha1.BareMetalHost) {
			claimed.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine",
				Namespace: "acme", Name: name}
			claimed.Annotations = map[string]string{v1alpha1.NodeTypeAnnotationKey: "gpu"}
			claimed.Status.Provisioning.State = bmov1alpha1.StateProvisioned
		})(s)
		machine := v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: name, UID: types.UID(name),
			Labels: map[string]string{v1alpha1.NodeClaimLabelKey: name, karpv1.NodePoolLabelKey: "default"}}}
		machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "acme"}
		machine.Status = v1alpha1.MachineStatus{
			Phase: v1alpha1.MachineProvisioning, HostRef: &v1alpha1.HostReference{Namespace: "metal3", Name: host, UID: types.UID(host)},
			NodeTypeRef: &v1alpha1.NameReference{Name: "gpu"}, ProviderID: v1alpha1.ProviderID("metal3", host, name),
			Progress: &v1alpha1.MachineProgress{ExpectedReadyTime: ptr.To(metav1.NewTime(s.Time.Add(5 * time.Minute)))},
		}
		allocatable := env.Resources("cpu", "95", "memory", "700Gi", "nvidia.com/gpu", "8", "pods", "110")
		claim := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{
			karpv1.NodePoolLabelKey: "default", corev1.LabelInstanceTypeStable: "gpu", "rack": "r1", corev1.LabelTopologyZone: "global",
			corev1.LabelHostname: name,
		}}}
		claim.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: "default"}
		claim.Status.ProviderID, claim.Status.Allocatable, claim.Status.Capacity = machine.Status.ProviderID, allocatable, allocatable
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
		if joined {
			machine.Status.Phase, machine.Status.NodeName, machine.Status.Progress = v1alpha1.MachineJoined, name, nil
			claim.Status.NodeName = name
			claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
			claim.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
			node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true"}}}
			for key, value := range claim.Labels {
				node.Labels[key] = value
			}
			node.Spec.ProviderID = machine.Status.ProviderID
			node.Status.Allocatable, node.Status.Capacity = allocatable, allocatable
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			s.Tenant.Nodes = append(s.Tenant.Nodes, node)
		}
		s.Management.Machines = append(s.Management.Machines, machine)
		s.Tenant.NodeClaims = append(s.Tenant.NodeClaims, claim)
	}
}

// withPod has a pod run on a node, of a ReplicaSet or of nothing.
func withPod(name, node string, owned bool, requests ...string) func(*view.Snapshot) {
	return func(s *view.Snapshot) {
		pod := planning.Pod(name, requests)
		pod.Spec.NodeName, pod.Status = node, corev1.PodStatus{Phase: corev1.PodRunning}
		if owned {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web",
				Controller: ptr.To(true)}}
		}
		s.Tenant.Pods = append(s.Tenant.Pods, *pod)
	}
}

func withQuota(servers int64) func(*view.Snapshot) {
	return func(s *view.Snapshot) { s.Management.TenantClusters[0].Spec.Quota = &v1alpha1.Quota{Servers: &servers} }
}

// pods are so many that ask for the same.
func pods(count int, name string, requests []string, change ...func(*corev1.Pod)) []corev1.Pod {
	var all []corev1.Pod
	for i := range count {
		all = append(all, *planning.Pod(fmt.Sprintf("%s-%d", name, i), requests, change...))
	}
	return all
}

// lines is a prediction in short.
func lines(p *Prediction) []string {
	var all []string
	for _, note := range p.Notes {
		all = append(all, "note: "+note)
	}
	for _, server := range p.Servers {
		all = append(all, fmt.Sprintf("%s (%s, %s, %ds): %s", server.Name, server.NodeType, server.Rack, server.TypicalSeconds,
			strings.Join(server.Pods, " ")))
	}
	for _, pod := range p.Pods {
		if !pod.New {
			all = append(all, fmt.Sprintf("%s on %s, %s", pod.Name, pod.Node, pod.Runs.Sub(p.Time.Time)))
		}
	}
	for _, unfit := range p.Unfit {
		message := unfit.Message
		if unfit.Reason == "FailedScheduling" { // core's words are its own
			message = ""
		}
		all = append(all, fmt.Sprintf("%s: %s: %s", unfit.Name, unfit.Reason, message))
	}
	for _, capacity := range p.Capacity {
		if capacity.Before != capacity.After {
			all = append(all, fmt.Sprintf("%s: %d -> %d", capacity.NodeType, capacity.Before, capacity.After))
		}
	}
	for _, quota := range p.Quotas {
		if quota.Servers != nil {
			all = append(all, fmt.Sprintf("%s may have %d more", quota.Tenant, *quota.Servers))
		}
		for _, name := range slices.Sorted(maps.Keys(quota.NodeTypes)) {
			all = append(all, fmt.Sprintf("%s may have %d more of %s", quota.Tenant, quota.NodeTypes[name], name))
		}
	}
	return all
}

func TestPredict(t *testing.T) {
	eight, oneGPU, cores := []string{"nvidia.com/gpu", "8"}, []string{"nvidia.com/gpu", "1"}, []string{"cpu", "20"}
	spread := func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"job": "train"}
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "rack",
			WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels}}}
	}
	noCPU := func(s *view.Snapshot) { s.Management.Hosts = s.Management.Hosts[:3] }
	rackR1, err := labels.Parse("rack=r1")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason string
		fleet  *view.Snapshot
		change Change
		pods   []corev1.Pod
		want   []string
	}{
		"Cheapest": {
			reason: "a pod without GPUs gets a server without, and small pods share one",
			fleet:  fixture(), pods: append(pods(1, "web", cores), pods(2, "infer", oneGPU)...),
			want: []string{"c1 (cpu, r1, 0s): default/web-0", "g1 (gpu, r1, 1200s): default/infer-0 default/infer-1", "cpu: 2 -> 1", "gpu: 3 -> 2"},
		},
		"Full": {
			reason: "the fourth pod finds no server, in the words of the provider's event",
			fleet:  fixture(), pods: pods(4, "train", eight),
			want: []string{"g1 (gpu, r1, 1200s): default/train-0", "g2 (gpu, r1, 1200s): default/train-1", "g3 (gpu, r2, 1200s): default/train-2",
				"train-3: NoServerAvailable: no server available: gpu: 3 servers match, 3 claimed, 0 in error; cpu: has no nvidia.com/gpu",
				"gpu: 3 -> 0"},
		},
		"TooBig": {
			reason: "no server ever fits",
			fleet:  fixture(), pods: pods(1, "huge", []string{"nvidia.com/gpu", "16"}),
			want: []string{"huge-0: NoNodeTypeFits: no NodeType fits: gpu: too small: asks nvidia.com/gpu 16, has 8; cpu: has no nvidia.com/gpu"},
		},
		"Maintenance": {
			reason: "a server in maintenance is not taken",
			fleet: fixture(withHost("g1", func(host *bmov1alpha1.BareMetalHost) {
				host.Annotations = map[string]string{v1alpha1.MaintenanceAnnotationKey: "DIMM"}
			})), pods: pods(1, "train", eight),
			want: []string{"g2 (gpu, r1, 1200s): default/train-0", "gpu: 2 -> 1"},
		},
		"Quota": {
			reason: "the tenant may have one server more",
			fleet:  fixture(withQuota(1)), pods: pods(2, "train", eight),
			want: []string{"g1 (gpu, r1, 1200s): default/train-0",
				"train-1: QuotaReached: TenantCluster acme/acme has 1 servers and its spec.quota.servers is 1: raise the quota, or release a server",
				"gpu: 3 -> 2", "acme/acme may have 0 more"},
		},
		"QuotaOfTypes": {
			reason: "the manager refuses the second of two types, and the pod is told of the quota",
			fleet:  fixture(withQuota(1)), pods: append(pods(1, "train", eight), pods(1, "web", []string{"cpu", "30"})...),
			want: []string{"c1 (cpu, r1, 0s): default/web-0",
				"train-0: QuotaReached: TenantCluster acme/acme has 1 servers and its spec.quota.servers is 1: raise the quota, or release a server",
				"cpu: 2 -> 1", "acme/acme may have 0 more"},
		},
		"QuotaOfType": {
			reason: "the tenant may have one server more of one type, and any of the other",
			fleet: fixture(func(s *view.Snapshot) {
				s.Management.TenantClusters[0].Spec.Quota = &v1alpha1.Quota{NodeTypes: map[string]v1alpha1.ServerCount{"gpu": 1,
					"none": 3}}
			}), pods: append(pods(2, "train", eight), pods(2, "web", []string{"cpu", "30"})...),
			want: []string{"c1 (cpu, r1, 0s): default/web-0", "c2 (cpu, r2, 0s): default/web-1",
				"g1 (gpu, r1, 1200s): default/train-0",
				"train-1: QuotaReached: TenantCluster acme/acme has 1 servers of NodeType gpu and its spec.quota.nodeTypes[gpu] " +
					"is 1: raise the quota, or release a server",
				"cpu: 2 -> 0", "gpu: 3 -> 2", "acme/acme may have 0 more of gpu", "acme/acme may have 3 more of none"},
		},
		"Gang": {
			reason: "pods that must be in one rack are in the one that has room for both",
			fleet:  fixture(withHost("g2", func(host *bmov1alpha1.BareMetalHost) { host.Labels["rack"] = "r2" })),
			pods:   pods(2, "train", eight, planning.Together("train", "rack")),
			want:   []string{"g2 (gpu, r2, 1200s): default/train-0", "g3 (gpu, r2, 1200s): default/train-1", "gpu: 3 -> 1"},
		},
		"PodGroup": {
			reason: "a snapshot has no PodGroups: their pods are planned as any others",
			fleet: fixture(func(s *view.Snapshot) {
				s.Tenant.Pods = pods(1, "old", eight, func(pod *corev1.Pod) {
					pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("train")}
				})
			}),
			want: []string{"g1 (gpu, r1, 1200s): default/old-0", "gpu: 3 -> 2"},
		},
		"Rack": {
			reason: "a pod names its rack",
			fleet:  fixture(), pods: pods(1, "train", eight, planning.Selecting("rack", "r2")),
			want: []string{"g3 (gpu, r2, 1200s): default/train-0", "gpu: 3 -> 2"},
		},
		"Limit": {
			reason: "the NodePool may have one node",
			fleet: fixture(func(s *view.Snapshot) {
				s.Tenant.NodePools[0].Spec.Limits = karpv1.Limits(env.Resources("nodes", "1"))
			}), pods: pods(1, "train", eight),
			want: []string{"g1 (gpu, r1, 1200s): default/train-0", "gpu: 3 -> 2"},
		},
		"Spread": {
			reason: "core knows of r2 only once its server is a node: until then it plans a second pod for r1, which has no place there then",
			fleet:  fixture(noCPU), pods: append(pods(1, "big", []string{"nvidia.com/gpu", "8", "cpu", "50"}, planning.Selecting("rack", "r2")),
				pods(2, "spread", eight, spread)...),
			want: []string{"g3 (gpu, r2, 1200s): default/big-0", "g1 (gpu, r1, 1200s): default/spread-0", "g2 (gpu, r1, 1200s): ",
				"spread-1: NoServerAvailable: no server available: gpu: 3 servers match, 3 claimed, 0 in error; cpu: has no nvidia.com/gpu",
				"gpu: 3 -> 0"},
		},
		"SpreadJoined": {
			reason: "where servers boot faster than core plans again, it does not take the second",
			fleet:  fixture(noCPU, func(s *view.Snapshot) { s.Management.NodeTypes[0].Status.Provisioning.TypicalSeconds = 5 }),
			pods: append(pods(1, "big", []string{"nvidia.com/gpu", "8", "cpu", "50"}, planning.Selecting("rack", "r2")),
				pods(2, "spread", eight, spread)...),
			want: []string{"g3 (gpu, r2, 5s): default/big-0", "g1 (gpu, r1, 5s): default/spread-0", "spread-1: FailedScheduling: ",
				"gpu: 3 -> 1"},
		},
		"Node": {
			reason: "a node that there is has room, at once",
			fleet:  fixture(withNode("default-a", "g1", true), withPod("busy", "default-a", true, "nvidia.com/gpu", "4")),
			pods:   pods(1, "infer", []string{"nvidia.com/gpu", "4"}),
			want:   []string{"infer-0 on default-a, 0s"},
		},
		"InTransit": {
			reason: "so has a node that is on its way, once it joins",
			fleet:  fixture(withNode("default-a", "g1", false)), pods: pods(1, "train", eight),
			want: []string{"train-0 on default-a, 5m0s"},
		},
		"Waiting": {
			reason: "pods that wait already take part",
			fleet:  fixture(func(s *view.Snapshot) { s.Tenant.Pods = pods(2, "old", eight) }), pods: pods(2, "train", eight),
			want: []string{"g1 (gpu, r1, 1200s): default/old-0", "g2 (gpu, r1, 1200s): default/old-1", "g3 (gpu, r2, 1200s): default/train-0",
				"train-1: NoServerAvailable: no server available: gpu: 3 servers match, 3 claimed, 0 in error; cpu: has no nvidia.com/gpu",
				"gpu: 3 -> 0"},
		},
		"Drain": {
			reason: "what runs on the server moves, but for a pod without a controller",
			fleet: fixture(withNode("default-a", "g1", true), withPod("web", "default-a", true, "nvidia.com/gpu", "4"),
				withPod("bare", "default-a", false, "nvidia.com/gpu", "4")),
			change: Drain("g1"),
			want: []string{"note: pod default/bare on node default-a has no controller that would make it again",
				"note: server metal3/g1 is in maintenance", "g2 (gpu, r1, 1200s): default/web", "gpu: 2 -> 1"},
		},
		"Without": {
			reason: "a rack is gone, with the node in it",
			fleet: fixture(withNode("default-a", "g1", true), withPod("web", "default-a", true, "nvidia.com/gpu", "8"),
				withNode("default-b", "g3", true), withPod("full", "default-b", true, "nvidia.com/gpu", "8")),
			change: Without(rackR1),
			want: []string{"note: 3 servers are gone: metal3/g1, metal3/g2, metal3/c1",
				"web: NoServerAvailable: no server available: gpu: 1 server matches, 1 claimed, 0 in error; cpu: has no nvidia.com/gpu",
				"cpu: 2 -> 1", "gpu: 1 -> 0"},
		},
		"Add": {
			reason: "more servers of a type serve what does not fit",
			fleet:  fixture(), change: Add(2, "gpu"), pods: pods(4, "train", eight),
			want: []string{
				"note: the new servers are like metal3/g1, and where that is: rack=r1,type=gpu",
				"g1 (gpu, r1, 1200s): default/train-0", "g2 (gpu, r1, 1200s): default/train-1",
				"gpu-new-1 (gpu, r1, 1200s): default/train-2", "gpu-new-2 (gpu, r1, 1200s): default/train-3",
				"gpu: 3 -> 1"},
		},
		"NoTenant": {
			reason: "what is left can be told without a tenant",
			fleet:  fixture(func(s *view.Snapshot) { s.Tenant = nil }), change: Without(rackR1),
			want: []string{"note: 3 servers are gone: metal3/g1, metal3/g2, metal3/c1",
				"note: no tenant cluster was read: which pods would move, and where to, is not shown", "cpu: 2 -> 1", "gpu: 3 -> 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.fleet.DeepCopy()
			got, err := Predict(t.Context(), tc.fleet, Question{Change: tc.change, Pods: tc.pods, Topology: topology.Default()})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, lines(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, tc.fleet, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the snapshot has changed (-before +after):\n%s", diff)
			}
			for _, server := range got.Servers {
				if !slices.ContainsFunc(view.New(got.After()).Servers(), func(known view.Server) bool {
					return known.Name == server.Name && known.State == view.State(v1alpha1.MachineClaimed) && known.Tenant == "acme/acme"
				}) {
					t.Errorf("server %s is not claimed in the fleet as it would be", server.Name)
				}
			}
		})
	}
}

// TestPredictRollout is about the nodes of a type that gets another image.
func TestPredictRollout(t *testing.T) {
	installed := func(name, image, own string) func(*view.Snapshot) {
		return func(s *view.Snapshot) {
			for i := range s.Management.Machines {
				if machine := &s.Management.Machines[i]; machine.Name == name {
					machine.Status.Installed = []v1alpha1.InstalledField{{Field: v1alpha1.PropertyOSImage, Value: image}}
					if own != "" {
						machine.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: own}
					}
				}
			}
		}
	}
	budget := func(s *view.Snapshot) {
		s.Tenant.NodePools[0].Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}}
	}
	keep := func(s *view.Snapshot) {
		s.Tenant.Pods[0].Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
	}
	eight := []string{"nvidia.com/gpu", "8"}
	for name, tc := range map[string]struct {
		reason string
		fleet  *view.Snapshot
		want   []string
		least  int64
	}{
		"Spare": {
			reason: "the first is replaced by the free server, and the second by that of the first",
			fleet: fixture(budget, withNode("default-a", "g1", true), withPod("a", "default-a", true, eight...), withNode("default-b", "g2", true),
				withPod("b", "default-b", true, eight...)),
			want:  []string{"default-a: SpareFirst g3, 1 pods: ", "default-b: SpareFirst g1, 1 pods: "},
			least: 2400,
		},
		"NoSpare": {
			reason: "no server is free, so each is installed again",
			fleet: fixture(budget, withNode("default-a", "g1", true), withPod("a", "default-a", true, eight...), withNode("default-b", "g2", true),
				withPod("b", "default-b", true, eight...), withNode("default-c", "g3", true), withPod("c", "default-c", true, eight...)),
			want: []string{
				"default-a: DrainFirst g1, 1 pods: no server is free to replace it before",
				"default-b: DrainFirst g2, 1 pods: no server is free to replace it before",
				"default-c: DrainFirst g3, 1 pods: no server is free to replace it before",
			},
			least: 3600,
		},
		"Quota": {
			reason: "the quota does not allow a spare beside it",
			fleet:  fixture(budget, withQuota(1), withNode("default-a", "g1", true), withPod("a", "default-a", true, eight...)),
			want:   []string{"default-a: DrainFirst g1, 1 pods: no server is free to replace it before"},
			least:  1200,
		},
		"Empty": {
			reason: "a node without pods needs no replacement",
			fleet:  fixture(budget, withNode("default-a", "g1", true)),
			want:   []string{"default-a: Removed , 0 pods: it has no pods"},
			least:  1200,
		},
		"Blocked": {
			reason: "a pod does not allow it",
			fleet:  fixture(budget, withNode("default-a", "g1", true), withPod("a", "default-a", true, eight...), keep),
			want:   []string{"default-a: Blocked , 1 pods: pod default/a has the annotation karpenter.sh/do-not-disrupt"},
		},
		"Stays": {
			reason: "one has the image, and the class of the other names another",
			fleet: fixture(budget, withNode("default-a", "g1", true), withNode("default-b", "g2", true), installed("default-a", "noble-2", ""),
				installed("default-b", "jammy", "jammy")),
			want: []string{"default-a: Stays , 0 pods: it has the image noble-2",
				"default-b: Stays , 0 pods: its class names the image jammy itself"},
		},
		"Starting": {
			reason: "a node that is on its way is replaced later",
			fleet:  fixture(budget, withNode("default-a", "g1", false)),
			want:   []string{": Starting , 0 pods: it is no node yet, and is replaced once it is"},
			least:  1200,
		},
		"OtherTenant": {
			reason: "of the nodes of others nothing is known",
			fleet: fixture(budget, withNode("default-a", "g1", true), func(s *view.Snapshot) {
				s.Management.Machines[0].Spec.TenantClusterRef.Name = "other"
			}),
			want: []string{"default-a: Unknown , 0 pods: it is of another tenant, whose pods are not known"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := PredictRollout(t.Context(), tc.fleet, "gpu", "noble-2", topology.Default())
			if err != nil {
				t.Fatal(err)
			}
			var short []string
			for _, replacement := range got.Replacements {
				short = append(short, fmt.Sprintf("%s: %s %s, %d pods: %s", replacement.Node, replacement.Way,
					strings.TrimPrefix(replacement.By, "metal3/"), replacement.Pods, replacement.Why))
			}
			if diff := cmp.Diff(tc.want, short); diff != "" || got.LeastSeconds != tc.least {
				t.Errorf("%s: at least %d s, want %d (-want +got):\n%s", tc.reason, got.LeastSeconds, tc.least, diff)
			}
		})
	}
}
