// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	stdcmp "cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

// grouped makes a pod one of a PodGroup. It has no affinity.
func grouped(group string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = nil
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
	}
}

// groupOf is a PodGroup, basic if minCount is 0.
func groupOf(name string, minCount int32, keys ...string) *schedulingv1alpha2.PodGroup {
	group := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if minCount > 0 {
		group.Spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: minCount}
	} else {
		group.Spec.SchedulingPolicy.Basic = &schedulingv1alpha2.BasicSchedulingPolicy{}
	}
	for _, key := range keys {
		group.Spec.SchedulingConstraints = &schedulingv1alpha2.PodGroupSchedulingConstraints{
			Topology: []schedulingv1alpha2.TopologyConstraint{{Key: key}}}
	}
	return group
}

func TestPodGroups(t *testing.T) {
	twoDomains := []*v1alpha1.NodeType{h100(in("n1", 4), in("n2", 6))}
	for name, tc := range map[string]struct {
		reason       string
		objects      []client.Object
		want         map[string]int
		waits, short string
	}{
		"all fit": {
			reason:  "the pods have no affinity and may be anywhere",
			objects: append(members("train", 8, wholeServer, grouped("g")), groupOf("g", 8)),
			want:    map[string]int{"": 8},
		},
		"more than fit": {
			reason: "none gets a server", objects: append(members("train", 11, wholeServer, grouped("g")), groupOf("g", 11)), want: map[string]int{},
			short: "with all servers free and no quota used, there is capacity for 10 of the 11 pods of the gang; it waits until there are more",
		},
		"one domain": {
			reason:  "nothing in the pods says so to Karpenter",
			objects: append(members("train", 5, wholeServer, grouped("g")), groupOf("g", 5, nvlink)), want: map[string]int{"n2": 5},
		},
		"no domain for all": {
			reason: "kube-scheduler would bind none", objects: append(members("train", 7, wholeServer, grouped("g")), groupOf("g", 7, nvlink)),
			want: map[string]int{},
			short: "with all servers free and no quota used, no nvlink-domain has capacity for all 7 pods of the gang: n2 has capacity for 6, " +
				"n1 for 4; it waits until there are more",
		},
		"incomplete": {
			reason:  "another scheduler may show them as unschedulable",
			objects: append(members("train", 3, wholeServer, grouped("g")), groupOf("g", 4)),
			want:    map[string]int{}, waits: "3 of the 4 pods of the gang exist: it gets no server before all do",
		},
		"basic": {
			reason:  "each may run by itself, and none waits for more",
			objects: append(members("train", 3, wholeServer, grouped("g")), groupOf("g", 0)),
			want:    map[string]int{"": 3},
		},
		"annotation": {
			reason:  "it is of this provider, and wins",
			objects: append(members("train", 3, wholeServer, grouped("g"), minCount(5)), groupOf("g", 2)), want: map[string]int{},
			waits: "3 of the 5 pods of the gang exist: it gets no server before all do",
		},
		"no such group": {
			reason: "its size is not known", objects: members("train", 3, wholeServer, grouped("g")), want: map[string]int{},
			waits: "PodGroup g does not exist",
		},
		"one that runs": {
			reason: "the others must be in its domain", objects: slices.Concat(
				members("train", 3, wholeServer, grouped("g"))[1:], server("s1", "n1", members("train", 1, wholeServer, grouped("g"))[0]),
				[]client.Object{&corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "s1", Labels: map[string]string{nvlink: "n1", corev1.LabelHostname: "s1"}},
					Spec:       corev1.NodeSpec{ProviderID: "metal3://metal3-system/s1/s1"}}, groupOf("g", 3, nvlink)}),
			want: map[string]int{"n1": 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlanner(t, planning.Plan{Types: twoDomains, Objects: tc.objects}, Dependencies{})
			got, pod := p.plans(), tc.objects[0].(*corev1.Pod)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]string{tc.waits, tc.short}, []string{p.placer().Waits(pod), p.placer().Shortage(pod)}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestDisruptionRepeatsPodGroups: the disruption controller plans the pods of a PodGroup with the requirements that they were planned with,
// whether or not they have an affinity, too.
func TestDisruptionRepeatsPodGroups(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){"alone": grouped("g"), "affinity": func(pod *corev1.Pod) {
		grouped("g")(pod)
		planning.Together("racks", "rack")(pod)
	}} {
		t.Run(name, func(t *testing.T) {
			plan := planning.Plan{Types: []*v1alpha1.NodeType{h100(planning.Domain(6, nvlink, "n1", "rack", "r1"))},
				Objects: append(members("train", 5, wholeServer, change), groupOf("g", 5, nvlink))}
			var listed client.Client
			plan, _ = placed(plan, Dependencies{})
			decorate := plan.Decorate
			plan.Decorate = func(c client.Client, catalog *instancetypes.Catalog) client.Client {
				listed = decorate(c, catalog)
				return listed
			}
			plan.Planner(t)
			requirements := func(controller string) []corev1.NodeSelectorRequirement {
				ctx := injection.WithControllerName(planning.Options(t).ToContext(t.Context()), controller)
				pods := &corev1.PodList{}
				if err := listed.List(ctx, pods, client.MatchingFields{byNode: ""}); err != nil || len(pods.Items) != 5 {
					t.Fatalf("%d pods, error %v", len(pods.Items), err)
				}
				return pods.Items[0].Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions
			}
			want := requirements("provisioner")
			if len(want) < 2 { // the mark is one
				t.Fatalf("the pods must be in %v", want)
			}
			if diff := cmp.Diff(want, requirements(disruption)); diff != "" {
				t.Errorf("(-provisioner +disruption):\n%s", diff)
			}
		})
	}
}

// serving returns a client of a cluster that serves these versions of PodGroups, the preferred one first, and has the PodGroup default/g.
func serving(served []string, spec map[string]any) client.WithWatch {
	var versions []schema.GroupVersion
	for _, version := range served {
		versions = append(versions, schema.GroupVersion{Group: podGroups.Group, Version: version})
	}
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(versions)
	builder := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper)
	for i, version := range served {
		kind := schema.GroupVersionKind{Group: podGroups.Group, Version: version, Kind: podGroups.Kind}
		mapper.Add(kind, meta.RESTScopeNamespace)
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		if i > 0 {
			continue
		}
		group := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		group.SetGroupVersionKind(kind)
		group.SetNamespace("default")
		group.SetName("g")
		builder = builder.WithObjects(group)
	}
	return builder.Build()
}

// TestVersionsOfPodGroups: of the versions that a cluster serves, the one that it prefers is read.
func TestVersionsOfPodGroups(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		served []string
		parent string
		want   podGroup
	}{
		"1.36": {reason: "v1alpha2 alone", served: []string{"v1alpha2"}, want: podGroup{minCount: 4, key: nvlink}},
		"1.37": {reason: "v1beta1 first", served: []string{"v1beta1", "v1alpha3"}, want: podGroup{minCount: 4, key: nvlink}},
		"none": {reason: "most clusters", want: podGroup{}},
		"part of a bigger": {"its own size is not that of the whole", []string{"v1alpha3"}, "all", podGroup{minCount: 4, key: nvlink,
			problem: "PodGroup g is part of CompositePodGroup all, which is not read: say by the annotation " +
				"gang.karpenter.metal3.io/min-count of the pods how many must run at one time"}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := serving(tc.served, map[string]any{
				"schedulingPolicy":            map[string]any{"gang": map[string]any{"minCount": int64(4)}},
				"schedulingConstraints":       map[string]any{"topology": []any{map[string]any{"key": nvlink}}},
				"parentCompositePodGroupName": tc.parent,
			})
			placer := NewPlacer(Dependencies{Client: cluster, Live: cluster})
			pods := members("train", 1, wholeServer, grouped("g"))
			got, err := placer.readGroup(t.Context(), client.ObjectKey{Namespace: "default", Name: PodGroupOf(pods[0].(*corev1.Pod))})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(podGroup{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestDisruptionModes: the field is a word in the first version, and a union in those that followed.
func TestDisruptionModes(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Group: podGroups.Group, Resource: "podgroups"}, "g", errors.New("RBAC"))
	for name, tc := range map[string]struct {
		reason  string
		served  []string
		mode    any
		ask     string
		err     error
		want    bool
		unknown bool
	}{
		"PodGroup":  {reason: "1.36 calls it so", served: []string{"v1alpha2"}, mode: "PodGroup", want: true},
		"Pod":       {reason: "each by itself", served: []string{"v1alpha2"}, mode: "Pod"},
		"All":       {reason: "1.37 calls it so", served: []string{"v1beta1"}, mode: map[string]any{"all": map[string]any{}}, want: true},
		"Single":    {reason: "the default of 1.37", served: []string{"v1beta1"}, mode: map[string]any{"single": map[string]any{}}},
		"Unset":     {reason: "each by itself is the default", served: []string{"v1beta1"}},
		"Gone":      {reason: "nothing says so now", served: []string{"v1beta1"}, mode: map[string]any{"all": map[string]any{}}, ask: "other"},
		"NotServed": {reason: "the gate was switched off while the pods ran"},
		"Forbidden": {reason: "with the rights of an earlier version drift goes on as before", served: []string{"v1beta1"},
			mode: map[string]any{"all": map[string]any{}}, err: refused},
		"Unread": {reason: "it may say so", served: []string{"v1beta1"}, err: errors.New("etcd"), unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			reads, now := 0, clocktesting.NewFakeClock(time.Now())
			cluster := serving(tc.served, map[string]any{"disruptionMode": tc.mode})
			modes := NewDisruptionModes(cluster.RESTMapper(), interceptor.NewClient(cluster, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
					if reads++; tc.err != nil {
						return tc.err
					}
					return c.Get(ctx, key, object)
				},
			}), now)
			key := client.ObjectKey{Namespace: "default", Name: stdcmp.Or(tc.ask, "g")}
			for range 2 {
				got, err := modes.Together(t.Context(), key)
				if got != tc.want || (err != nil) != tc.unknown {
					t.Errorf("%s: together is %v, error %v; want %v, unknown %v", tc.reason, got, err, tc.want, tc.unknown)
				}
			}
			if want := len(tc.served); !tc.unknown && reads != want {
				t.Errorf("it was read %d times, want %d", reads, want)
			}
			now.Step(modePeriod + time.Second)
			if _, err := modes.Together(t.Context(), key); (err != nil) != tc.unknown || len(tc.served) > 0 && reads < 2 {
				t.Errorf("it was read %d times after a while, error %v; a PodGroup of that name may be another one by then", reads, err)
			}
		})
	}
}
