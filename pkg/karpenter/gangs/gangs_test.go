// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

const nvlink = v1alpha1.NVLinkDomainLabelKey

func TestMain(m *testing.M) {
	if err := instancetypes.Register(topology.Defaults()); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var wholeServer = []string{"nvidia.com/gpu", "8"}

func members(gang string, count int, resources []string, change ...func(*corev1.Pod)) (pods []client.Object) {
	for i := range count {
		pods = append(pods, planning.Pod(fmt.Sprintf("%s-%d", gang, i), resources,
			append([]func(*corev1.Pod){planning.Together(gang, nvlink)}, change...)...))
	}
	return pods
}

func h100(domains ...v1alpha1.DomainCapacity) *v1alpha1.NodeType {
	return planning.NodeType("h100-8x", 8, domains...)
}

func in(domain string, free int32) v1alpha1.DomainCapacity {
	return planning.Domain(free, nvlink, domain)
}

// server is one that the tenant has in a domain already, booted or on the way, with pods on it.
func server(name, domain string, pods ...client.Object) []client.Object {
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{nvlink: domain, corev1.LabelInstanceTypeStable: "h100-8x"}}}
	claim.Status.Allocatable = env.Resources("cpu", "64", "memory", "512Gi", "nvidia.com/gpu", "8", "pods", "110")
	claim.Status.ProviderID = "metal3://metal3-system/" + name + "/" + name
	objects := []client.Object{claim}
	for _, pod := range pods {
		claim.Status.NodeName = name
		pod.(*corev1.Pod).Spec.NodeName = name
		pod.(*corev1.Pod).Status = corev1.PodStatus{Phase: corev1.PodRunning}
		objects = append(objects, pod)
	}
	return objects
}

// cordoned is a server in a domain that is initialized, empty, and takes no pods.
func cordoned(name, domain string) []client.Object {
	objects := server(name, domain)
	claim := objects[0].(*karpv1.NodeClaim)
	claim.Status.NodeName = name
	return append(objects, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			nvlink: domain, corev1.LabelHostname: name, karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true",
		}},
		Spec: corev1.NodeSpec{
			ProviderID: claim.Status.ProviderID, Unschedulable: true,
			Taints: []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}},
		},
	})
}

// poolIn is a NodePool of a domain.
func poolIn(domain string, change func(*karpv1.NodePool)) *karpv1.NodePool {
	return planning.Pool(domain, func(pool *karpv1.NodePool) {
		pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: nvlink,
			Operator: corev1.NodeSelectorOpIn, Values: []string{domain}}}
		if change != nil {
			change(pool)
		}
	})
}

// daemonSet has a pod on each node, which asks for cpu.
func daemonSet(cpu string) *appsv1.DaemonSet {
	logs := map[string]string{"app": "logs"}
	daemons := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs"}}
	daemons.Spec.Selector, daemons.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: logs}, logs
	daemons.Spec.Template.Spec.Containers = []corev1.Container{{Name: "logs", Image: "logs",
		Resources: corev1.ResourceRequirements{Requests: env.Resources("cpu", cpu)}}}
	daemons.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return daemons
}

// placing returns the plan with gangs placed. It stores what Shortage says of a pod after each list.
func placing(plan planning.Plan, short *string, object client.Object, dependencies Dependencies) planning.Plan {
	plan, placer := placed(plan, dependencies)
	decorate := plan.Decorate
	plan.Decorate = func(c client.Client, catalog *instancetypes.Catalog) client.Client {
		return interceptor.NewClient(decorate(c, catalog), interceptor.OnList(func(context.Context, *corev1.PodList, []client.ListOption) error {
			if pod, ok := object.(*corev1.Pod); ok {
				*short = placer().Shortage(pod)
			}
			return nil
		}))
	}
	return plan
}

// placed returns the plan with gangs placed, and the placer once there is a planner.
func placed(plan planning.Plan, dependencies Dependencies) (planning.Plan, func() *Placer) {
	var simulation Simulation
	var placer *Placer
	plan.Made = func(provisioner *provisioning.Provisioner, cluster *state.Cluster) {
		simulation.Provisioner, simulation.Cluster = provisioner, cluster
	}
	plan.Decorate = func(c client.Client, catalog *instancetypes.Catalog) client.Client {
		simulation.Client, simulation.Clock = c, clock.RealClock{}
		dependencies.Client, dependencies.Live = c, c
		if dependencies.Clock == nil {
			dependencies.Clock = clock.RealClock{}
		}
		dependencies.Plan = func(ctx context.Context, pods []*corev1.Pod) (scheduling.Results, error) {
			return simulation.Plan(ctx, pods)
		}
		if dependencies.NodeClaimOf == nil {
			dependencies.NodeClaimOf = func(types.NamespacedName) string { return "" }
		}
		if dependencies.FreeServers == nil {
			dependencies.FreeServers = func(context.Context) ([]instancetypes.FreeServers, error) {
				return instancetypes.LimitServers(plan.Quota, catalog.FreeServers(instancetypes.NewFilter(nil, nil))), nil
			}
		}
		dependencies.AllServers = func(context.Context) ([]instancetypes.FreeServers, error) {
			return catalog.AllServers(instancetypes.NewFilter(nil, nil)), nil
		}
		placer = NewPlacer(dependencies)
		return interceptor.NewClient(c, placer.PendingPods())
	}
	return plan, func() *Placer { return placer }
}

func TestGangIsPlacedInOneDomain(t *testing.T) {
	twoDomains := []*v1alpha1.NodeType{h100(in("n1", 4), in("n2", 6))}
	for name, tc := range map[string]struct {
		reason       string
		types        []*v1alpha1.NodeType
		objects      []client.Object
		dependencies Dependencies
		pools        []*karpv1.NodePool
		class        *v1alpha1.MetalNodeClass
		// want is how many NodeClaims core plans in each domain.
		want  map[string]int
		short string
	}{
		"five into four and six": {
			reason: "only one domain has room for all", types: twoDomains, objects: members("train", 5, wholeServer), want: map[string]int{"n2": 5},
		},
		"three into four and six": {
			reason: "the bigger domain is left for bigger gangs", types: twoDomains, objects: members("train", 3, wholeServer),
			want: map[string]int{"n1": 3},
		},
		"several on a server": {
			reason: "ten halves of a server need five", types: twoDomains, objects: members("train", 10, []string{"nvidia.com/gpu", "4"}),
			want: map[string]int{"n2": 5},
		},
		"two gangs": {
			reason: "room is not given away twice", types: twoDomains,
			objects: slices.Concat(members("a", 4, wholeServer), members("b", 4, wholeServer)), want: map[string]int{"n1": 4, "n2": 4},
		},
		"two gangs in one domain": {
			reason: "what the first has left over is room for the second", types: twoDomains,
			objects: slices.Concat(members("a", 2, wholeServer), members("b", 2, wholeServer)), want: map[string]int{"n1": 4},
		},
		"seven into four and six": {
			reason: "it is no gang scheduling: as many as possible run, and the pods are told", types: twoDomains,
			objects: members("train", 7, wholeServer),
			want:    map[string]int{"n2": 6}, short: "no nvlink-domain has capacity for all 7 pods of the gang: n2 has capacity for 6, n1 for 4",
		},
		"no room at all": {
			reason: "nothing is asked for, and the pods are told", types: []*v1alpha1.NodeType{h100(in("n1", 0), in("n2", 0))},
			objects: members("train", 5, wholeServer),
			want:    map[string]int{}, short: "no nvlink-domain has capacity for all 5 pods of the gang: none has capacity for any of them",
		},
		"the cheapest domain": {
			reason: "the cheapest servers that will do are chosen, as for a single pod",
			types:  []*v1alpha1.NodeType{h100(in("n1", 5)), planning.NodeType("b200-8x", 8, in("n0", 5))}, objects: members("train", 5, wholeServer),
			want: map[string]int{"n0": 5},
		},
		"two types in a domain": {
			// Core reserves one of each type that fits for each NodeClaim, so it asks for two more the next time.
			reason:  "a domain may have servers of several types",
			types:   []*v1alpha1.NodeType{h100(in("n1", 2), in("n2", 3)), planning.NodeType("b200-8x", 8, in("n2", 2))},
			objects: members("train", 5, wholeServer),
			want:    map[string]int{"n2": 3},
		},
		"too small for it": {
			reason: "servers that the pods do not fit on are no room",
			types:  []*v1alpha1.NodeType{planning.NodeType("a100-4x", 4, in("n1", 9)), h100(in("n2", 5))}, objects: members("train", 5, wholeServer),
			want: map[string]int{"n2": 5},
		},
		"shared servers": {
			reason: "a server that has two types is there once",
			types: func() []*v1alpha1.NodeType {
				shared, other, alone := in("n1", 3), in("n1", 3), in("n2", 5)
				shared.SharedWith, other.SharedWith = []string{"h100-too"}, []string{"h100-8x"}
				return []*v1alpha1.NodeType{h100(shared, alone), planning.NodeType("h100-too", 8, other)}
			}(),
			objects: members("train", 5, wholeServer), want: map[string]int{"n2": 5},
		},
		"its own selection": {
			reason:  "what the pods select counts",
			types:   []*v1alpha1.NodeType{h100(planning.Domain(5, nvlink, "n1", "rack", "r1"), planning.Domain(6, nvlink, "n2", "rack", "r2"))},
			objects: members("train", 5, wholeServer, planning.Selecting("rack", "r2")), want: map[string]int{"n2": 5},
		},
		"a pool of one domain": {
			reason: "what no NodePool would have is no room", types: []*v1alpha1.NodeType{h100(in("n1", 5), in("n2", 6))},
			pools:   []*karpv1.NodePool{poolIn("n2", nil)},
			objects: members("train", 5, wholeServer), want: map[string]int{"n2": 5},
		},
		"a node for each": {
			reason: "pods that avoid each other need a server each", types: []*v1alpha1.NodeType{h100(in("n1", 3), in("n2", 6))},
			objects: members("train", 5, []string{"nvidia.com/gpu", "4"}, func(pod *corev1.Pod) {
				pod.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"gang": "train"}},
				}}}
			}), want: map[string]int{"n2": 5},
		},
		"a member that runs": {
			reason: "it has chosen the domain, and core follows it", types: []*v1alpha1.NodeType{h100(in("n1", 4), in("n2", 6))},
			objects: slices.Concat(members("train", 5, wholeServer)[1:], server("s1", "n1", members("train", 1, wholeServer)[0]), []client.Object{
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "s1", Labels: map[string]string{nvlink: "n1", corev1.LabelHostname: "s1"}},
					Spec: corev1.NodeSpec{ProviderID: "metal3://metal3-system/s1/s1"}},
			}), want: map[string]int{"n1": 4},
		},
		"a member that runs where there is no more room": {
			reason: "no server elsewhere would do, and the pods are told", types: []*v1alpha1.NodeType{h100(in("n1", 1), in("n2", 6))},
			objects: slices.Concat(members("train", 5, wholeServer)[1:], server("s1", "n1", members("train", 1, wholeServer)[0]), []client.Object{
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "s1", Labels: map[string]string{nvlink: "n1", corev1.LabelHostname: "s1"}},
					Spec: corev1.NodeSpec{ProviderID: "metal3://metal3-system/s1/s1"}},
			}), want: map[string]int{"n1": 1},
			short: "nvlink-domain n1, where other pods of the gang run, has capacity for 1 of these 4 pods",
		},
		"servers on the way": {
			reason: "the gang stays where its servers boot: n1 has room for all, too, but n2 needs two more only",
			types:  []*v1alpha1.NodeType{h100(in("n1", 5), in("n2", 2))},
			// Core is not told of the three servers here, and so plans all five.
			objects: slices.Concat(members("train", 5, wholeServer), server("s1", "n2"), server("s2", "n2"), server("s3", "n2")),
			want:    map[string]int{"n2": 2},
		},
		"servers on the way where no other is free": {
			reason:  "core does not know the domain of a server that boots, and alone would plan the gang in n2, too",
			types:   []*v1alpha1.NodeType{h100(in("n1", 0), in("n2", 1))},
			objects: slices.Concat(members("train", 4, wholeServer), server("s1", "n1")),
			want:    map[string]int{}, short: "no nvlink-domain has capacity for all 4 pods of the gang: n1 has capacity for 1, n2 for 1",
		},
		"servers on the way for others": {
			reason: "they are not there for the gang", types: []*v1alpha1.NodeType{h100(in("n1", 5), in("n2", 2))},
			dependencies: Dependencies{NodeClaimOf: func(pod types.NamespacedName) string { return strings.TrimPrefix(pod.Name, "other-") }},
			objects: slices.Concat(members("train", 5, wholeServer), server("s1", "n2"), server("s2", "n2"), server("s3", "n2"),
				[]client.Object{planning.Pod("other-s1", wholeServer, elsewhere), planning.Pod("other-s2", wholeServer, elsewhere),
					planning.Pod("other-s3", wholeServer, elsewhere)}),
			want: map[string]int{"n1": 5},
		},
		"a class of another provider": {
			reason: "servers that the class of the pools does not allow are no room",
			types: func() []*v1alpha1.NodeType {
				a, b := planning.NodeType("a-h100", 8, in("n1", 5)), planning.NodeType("b-h100", 8, in("n2", 6))
				a.OwnerReferences, b.OwnerReferences = env.MadeBy("a"), env.MadeBy("b")
				a.Spec.ProviderRef.Name, b.Spec.ProviderRef.Name = "a", "b"
				return []*v1alpha1.NodeType{a, b}
			}(),
			class:   &v1alpha1.MetalNodeClass{Spec: v1alpha1.MetalNodeClassSpec{ProviderRef: &v1alpha1.NameReference{Name: "b"}}},
			objects: members("train", 5, wholeServer), want: map[string]int{"n2": 5},
		},
		"limits": {
			reason: "a NodePool that has reached its limits makes no servers", types: []*v1alpha1.NodeType{h100(in("n1", 5), in("n2", 6))},
			pools: []*karpv1.NodePool{
				poolIn("n1", func(pool *karpv1.NodePool) { pool.Spec.Limits = karpv1.Limits(env.Resources("cpu", "1")) }), poolIn("n2", nil),
			},
			objects: members("train", 5, wholeServer), want: map[string]int{"n2": 5},
		},
		"a DaemonSet": {
			reason: "beside it one pod of the gang fits on a server, and not two", types: []*v1alpha1.NodeType{h100(in("n1", 5), in("n2", 10))},
			objects: append(members("train", 10, []string{"nvidia.com/gpu", "4", "cpu", "32"}), daemonSet("1")),
			want:    map[string]int{"n2": 10},
		},
		"no domain that core would use": {
			reason: "core alone finds none either, and the pods are told", types: []*v1alpha1.NodeType{h100(in("n1", 5), in("n2", 6))},
			pools: []*karpv1.NodePool{planning.Pool("full", func(pool *karpv1.NodePool) {
				pool.Spec.Limits = karpv1.Limits(env.Resources("cpu", "1"))
			})},
			objects: members("train", 5, wholeServer), want: map[string]int{},
			short: "no nvlink-domain has capacity for all 5 pods of the gang: none has capacity for any of them",
		},
		"a server that takes no pods": {
			reason:  "it is cordoned, or about to be replaced: there is no room on it, however much is free",
			types:   []*v1alpha1.NodeType{h100(in("n2", 1))},
			objects: slices.Concat(members("train", 1, wholeServer), cordoned("s1", "n1")), want: map[string]int{"n2": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			short := ""
			results := placing(planning.Plan{Types: tc.types, Class: tc.class, Pools: tc.pools, Objects: tc.objects}, &short, tc.objects[0],
				tc.dependencies).Solve(t)
			got := map[string]int{}
			for _, claim := range results.NewNodeClaims {
				got[strings.Join(claim.Requirements.Get(nvlink).Values(), ",")]++
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s\nerrors: %v", tc.reason, diff, slices.Collect(maps.Values(results.PodErrors)))
			}
			if diff := cmp.Diff(tc.short, short); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// elsewhere keeps a pod out of the count of the test: it is planned already.
func elsewhere(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"rack": "nowhere"} }

// What core gets may be shared with the cache, and the API must never see it.
func TestOnlyListsOfPendingPodsAreChanged(t *testing.T) {
	pods := members("train", 5, wholeServer)
	var listed client.Client
	plan := placing(planning.Plan{Types: []*v1alpha1.NodeType{h100(in("n1", 4), in("n2", 6))}, Objects: pods}, new(string), pods[0],
		Dependencies{})
	decorate := plan.Decorate
	plan.Decorate = func(c client.Client, catalog *instancetypes.Catalog) client.Client {
		listed = decorate(c, catalog)
		return listed
	}
	plan.Planner(t)
	ctx := planning.Options(t).ToContext(t.Context())
	affinityOf := func(opts ...client.ListOption) *corev1.NodeAffinity {
		list := &corev1.PodList{}
		if err := listed.List(ctx, list, opts...); err != nil || len(list.Items) != 5 {
			t.Fatalf("%d pods, error %v", len(list.Items), err)
		}
		return list.Items[0].Spec.Affinity.NodeAffinity
	}
	if affinityOf(client.MatchingFields{byNode: ""}) == nil {
		t.Error("pods without a node are not told their domain")
	}
	if affinityOf() != nil || affinityOf(client.InNamespace("default")) != nil {
		t.Error("other lists are changed too: a part of a gang could be placed by itself")
	}
	stored := &corev1.Pod{}
	if err := listed.Get(t.Context(), client.ObjectKeyFromObject(pods[0]), stored); err != nil || stored.Spec.Affinity.NodeAffinity != nil {
		t.Errorf("the pod itself has changed: %v (%v)", stored.Spec.Affinity, err)
	}
}

// Without the management cluster nothing is known of free servers. Pods are listed all the same: core has other uses
// for them.
func TestOutageLeavesPodsUnchanged(t *testing.T) {
	pods := members("train", 5, wholeServer)
	plan := placing(planning.Plan{Types: []*v1alpha1.NodeType{h100(in("n1", 4))}, Objects: pods}, new(string), pods[0],
		Dependencies{FreeServers: func(context.Context) ([]instancetypes.FreeServers, error) {
			return nil, errors.New("the cache is not filled yet")
		}})
	decorate := plan.Decorate
	plan.Decorate = func(c client.Client, catalog *instancetypes.Catalog) client.Client {
		listed := decorate(c, catalog)
		list := &corev1.PodList{}
		if err := listed.List(t.Context(), list, client.MatchingFields{byNode: ""}); err != nil || len(list.Items) != 5 {
			t.Errorf("%d pods, error %v", len(list.Items), err)
		}
		return listed
	}
	plan.Planner(t)
}

func TestGangOfPod(t *testing.T) {
	term := func(key string, labels map[string]string, namespaces ...string) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, Namespaces: namespaces}
	}
	own := map[string]string{"job": "a"}
	for name, tc := range map[string]struct {
		reason string
		terms  []corev1.PodAffinityTerm
		want   []string
	}{
		"own kind":        {"the first may go anywhere, the others must follow", []corev1.PodAffinityTerm{term("rack", own)}, []string{"rack"}},
		"two keys":        {"both must hold", []corev1.PodAffinityTerm{term("rack", own), term(nvlink, own)}, []string{nvlink, "rack"}},
		"others":          {"it follows others, which core sees to", []corev1.PodAffinityTerm{term("rack", map[string]string{"job": "b"})}, nil},
		"one host":        {"a single server is no domain to choose", []corev1.PodAffinityTerm{term(corev1.LabelHostname, own)}, nil},
		"other namespace": {"it does not select itself", []corev1.PodAffinityTerm{term("rack", own, "elsewhere")}, nil},
		"none":            {"it may run anywhere", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := planning.Pod("pod", wholeServer)
			pod.Labels = own
			pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: tc.terms}}
			var got []string
			if gang := gangOf(pod); gang != nil {
				got = gang.keys
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestDisruptionRepeats: core's disruption controller lists the pending pods for each node that it looks at. It gets the domains that were
// chosen for the provisioner, and core plans nothing for that.
func TestDisruptionRepeats(t *testing.T) {
	pods, asked := members("train", 5, wholeServer), 0
	var listed client.Client
	plan := placing(planning.Plan{Types: []*v1alpha1.NodeType{h100(in("n1", 4), in("n2", 6))}, Objects: pods}, new(string), pods[0],
		Dependencies{FreeServers: func(context.Context) ([]instancetypes.FreeServers, error) {
			asked++
			catalog := instancetypes.NewCatalog(instancetypes.DefaultPods)
			catalog.Set(h100(in("n1", 4), in("n2", 6)))
			return catalog.FreeServers(instancetypes.NewFilter(nil, nil)), nil
		}})
	decorate := plan.Decorate
	plan.Decorate = func(c client.Client, catalog *instancetypes.Catalog) client.Client {
		listed = decorate(c, catalog)
		return listed
	}
	plan.Planner(t)
	domains := func(controller string) []string {
		ctx := injection.WithControllerName(planning.Options(t).ToContext(t.Context()), controller)
		list := &corev1.PodList{}
		if err := listed.List(ctx, list, client.MatchingFields{byNode: ""}); err != nil || len(list.Items) != 5 {
			t.Fatalf("%d pods, error %v", len(list.Items), err)
		}
		node := list.Items[0].Spec.Affinity.NodeAffinity
		if node == nil {
			return nil
		}
		return node.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values
	}
	if got := domains(disruption); got != nil || asked != 0 {
		t.Errorf("before anything was chosen the pods must be in %v, asked %d times", got, asked)
	}
	if got := domains("provisioner"); !slices.Equal(got, []string{"n2"}) || asked != 1 {
		t.Errorf("the provisioner's pods must be in %v, asked %d times", got, asked)
	}
	if got := domains(disruption); !slices.Equal(got, []string{"n2"}) || asked != 1 {
		t.Errorf("the pods must be in %v, asked %d times", got, asked)
	}
}
