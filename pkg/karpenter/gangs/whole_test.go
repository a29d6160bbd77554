// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/samber/lo"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

func annotated(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) }
}

func minCount(count int) func(*corev1.Pod) {
	return annotated(v1alpha1.GangMinCountAnnotationKey, strconv.Itoa(count))
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value) }
}

func alone(pod *corev1.Pod) { pod.Spec.Affinity = nil }

func kueue(group string, count int) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		labelled(kueueGroup, group)(pod)
		annotated(kueueCount, strconv.Itoa(count))(pod)
	}
}

func selecting(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		labelled(key, value)(pod)
		pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels = map[string]string{key: value}
	}
}

func ownedBy(job string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "batch/v1", Kind: "Job", Name: job, UID: types.UID(job), Controller: ptr.To(true)},
		}
	}
}

func jobOf(name string, parallelism, completions, succeeded int32) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	job.Spec = batchv1.JobSpec{CompletionMode: ptr.To(batchv1.IndexedCompletion), Parallelism: &parallelism, Completions: &completions}
	job.Status.Succeeded = succeeded
	return job
}

func failedIndexes(job *batchv1.Job, failed string) *batchv1.Job {
	job.Status.FailedIndexes = &failed
	return job
}

// ownedByKind has a controller of a kind that nobody knows, with that UID.
func ownedByKind(uid string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "TrainJob", Name: "train", UID: types.UID(uid), Controller: ptr.To(true)},
		}
	}
}

func done(object client.Object) client.Object {
	pod := object.(*corev1.Pod)
	pod.Spec.NodeName, pod.Status = "gone", corev1.PodStatus{Phase: corev1.PodSucceeded}
	return pod
}

// planner is core with a placer, and the pods that they plan.
type planner struct {
	t      *testing.T
	placer func() *Placer
	tenant client.Client
	pass   func() (scheduling.Results, error)
}

func newPlanner(t *testing.T, plan planning.Plan, dependencies Dependencies) *planner {
	t.Helper()
	p := &planner{t: t}
	plan, p.placer = placed(plan, dependencies)
	decorate := plan.Decorate
	plan.Decorate = func(c client.Client, catalog *instancetypes.Catalog) client.Client {
		p.tenant = c
		return decorate(c, catalog)
	}
	p.pass = plan.Planner(t)
	return p
}

// plans returns how many NodeClaims core plans in each domain.
func (p *planner) plans() map[string]int {
	p.t.Helper()
	results, err := p.pass()
	if err != nil {
		p.t.Fatal(err)
	}
	return domainsOf(results)
}

func domainsOf(results scheduling.Results) map[string]int {
	got := map[string]int{}
	for _, claim := range results.NewNodeClaims {
		got[strings.Join(claim.Requirements.Get(nvlink).Values(), ",")]++
	}
	return got
}

// inUse adds servers that are not free to a domain.
func inUse(domain v1alpha1.DomainCapacity, servers int32) v1alpha1.DomainCapacity {
	domain.Total += servers
	return domain
}

func tooSmall(domain v1alpha1.DomainCapacity, servers int32) v1alpha1.DomainCapacity {
	domain.TooSmall = servers
	return domain
}

// inDomainsOf has pods need each other by another label.
func inDomainsOf(key string, pods []client.Object) []client.Object {
	for _, pod := range pods {
		pod.(*corev1.Pod).Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey = key
	}
	return pods
}

func TestWholeOrNotAtAll(t *testing.T) {
	twoDomains := []*v1alpha1.NodeType{h100(in("n1", 4), in("n2", 6))}
	anywhere := func(count int, change ...func(*corev1.Pod)) []client.Object {
		return members("train", count, wholeServer, append([]func(*corev1.Pod){alone}, change...)...)
	}
	const (
		wait = "; it gets no server before there is room for all at one time"
		all  = "with all servers free and no quota used, "
		more = "; it waits until there are more"
	)
	for name, tc := range map[string]struct {
		reason       string
		types        []*v1alpha1.NodeType
		objects      []client.Object
		pools        []*karpv1.NodePool
		quota        *int64
		want         map[string]int
		waits, short string
	}{
		"all fit": {
			reason: "they are planned where all fit", types: twoDomains, objects: members("train", 5, wholeServer, minCount(5)),
			want: map[string]int{"n2": 5},
		},
		"no domain for all": {
			reason: "five of seven would wait for the other two on expensive servers", types: twoDomains,
			objects: members("train", 7, wholeServer, minCount(7)), want: map[string]int{},
			short: all + "no nvlink-domain has capacity for all 7 pods of the gang: n2 has capacity for 6, n1 for 4" + more,
		},
		"64 of 70 servers": {
			reason: "one domain has them", types: []*v1alpha1.NodeType{h100(in("n1", 64), in("n2", 6))},
			objects: members("train", 64, wholeServer, minCount(64)), want: map[string]int{"n1": 64},
		},
		"63 servers": {
			reason: "one is missing", types: []*v1alpha1.NodeType{h100(in("n1", 63), in("n2", 6))},
			objects: members("train", 64, wholeServer, minCount(64)), want: map[string]int{},
			short: all + "no nvlink-domain has capacity for all 64 pods of the gang: n1 has capacity for 63, n2 for 6" + more,
		},
		"the servers are in use": {
			reason: "they come back, and then all fit", types: []*v1alpha1.NodeType{h100(inUse(in("n1", 4), 3), inUse(in("n2", 2), 4))},
			objects: members("train", 7, wholeServer, minCount(7)), want: map[string]int{},
			short: "no nvlink-domain has capacity for all 7 pods of the gang: n1 has capacity for 4, n2 for 2" + wait,
		},
		"in use, and too few": {
			reason: "they would not fit either if all came back", types: []*v1alpha1.NodeType{h100(inUse(in("n1", 4), 2), inUse(in("n2", 0), 5))},
			objects: members("train", 7, wholeServer, minCount(7)), want: map[string]int{},
			short: all + "no nvlink-domain has capacity for all 7 pods of the gang: n1 has capacity for 6, n2 for 5" + more,
		},
		"too small": {
			reason: "servers that are too small are never claimed", types: []*v1alpha1.NodeType{h100(tooSmall(inUse(in("n1", 4), 3), 2))},
			objects: members("train", 6, wholeServer, minCount(6)), want: map[string]int{},
			short: all + "no nvlink-domain has capacity for all 6 pods of the gang: n1 has capacity for 5" + more,
		},
		"another label": {
			reason: "no server has it, and those that there are help to correct it", types: twoDomains,
			objects: inDomainsOf("row", members("train", 2, wholeServer, minCount(2))), want: map[string]int{},
			short: "no server has the label row, of which all 2 pods of the gang need the same value: servers have " +
				"nvlink-domain, topology.kubernetes.io/zone",
		},
		"more than must run": {
			reason: "four of six do, and six fit nowhere", types: []*v1alpha1.NodeType{h100(in("n1", 3), in("n2", 5))},
			objects: members("train", 6, wholeServer, minCount(4)), want: map[string]int{"n2": 5},
		},
		"pods that do not exist": {
			reason: "their servers would be for others", types: twoDomains, objects: members("train", 3, wholeServer, minCount(4)),
			want: map[string]int{}, waits: "3 of the 4 pods of the gang exist: it gets no server before all do",
		},
		"two of six on eight servers": {
			reason: "one of them has room, and half of each does not help", types: []*v1alpha1.NodeType{h100(in("n1", 8))},
			objects: slices.Concat(members("a", 6, wholeServer, minCount(6)), members("b", 6, wholeServer, minCount(6))),
			want:    map[string]int{"n1": 6},
		},
		"limits": {
			reason: "core keeps them, and so the gang waits", types: []*v1alpha1.NodeType{h100(in("n1", 6))},
			pools: []*karpv1.NodePool{planning.Pool("small", func(pool *karpv1.NodePool) {
				pool.Spec.Limits = karpv1.Limits(env.Resources("nvidia.com/gpu", "32"))
			})},
			objects: members("train", 5, wholeServer, minCount(5)), want: map[string]int{},
			short: "no nvlink-domain has capacity for all 5 pods of the gang: n1 has capacity for 4" + wait,
		},
		"quota": {
			reason: "the tenant may have four", types: []*v1alpha1.NodeType{h100(in("n1", 6))}, quota: ptr.To(int64(4)),
			objects: members("train", 5, wholeServer, minCount(5)), want: map[string]int{},
			short: "no nvlink-domain has capacity for all 5 pods of the gang: n1 has capacity for 4" + wait,
		},
		"servers of two types": {
			// Core reserves one of each type that fits for each NodeClaim, so it plans two more the next time.
			reason:  "together they are enough",
			types:   []*v1alpha1.NodeType{h100(in("n1", 2), in("n2", 3)), planning.NodeType("b200-8x", 8, in("n2", 2))},
			objects: members("train", 5, wholeServer, minCount(5)), want: map[string]int{"n2": 3},
		},
		"too few of two types": {
			reason:  "together they are not enough",
			types:   []*v1alpha1.NodeType{h100(in("n1", 2), in("n2", 3)), planning.NodeType("b200-8x", 8, in("n2", 2))},
			objects: members("train", 6, wholeServer, minCount(6)), want: map[string]int{},
			short: all + "no nvlink-domain has capacity for all 6 pods of the gang: n2 has capacity for 5, n1 for 2" + more,
		},
		"others": {
			reason: "they do not wait for the gang", types: []*v1alpha1.NodeType{h100(in("n1", 2))},
			objects: append(members("train", 3, wholeServer, minCount(3)), planning.Pod("single", wholeServer)), want: map[string]int{"": 1},
			short: all + "no nvlink-domain has capacity for all 3 pods of the gang: n1 has capacity for 2" + more,
		},
		"a pod group of Kueue": {
			reason: "it says its size, and may be anywhere", types: twoDomains, objects: anywhere(10, kueue("train", 10)),
			want: map[string]int{"": 10},
		},
		"a pod group of Kueue without capacity": {
			reason: "as above", types: twoDomains, objects: anywhere(11, kueue("train", 11)), want: map[string]int{},
			short: all + "there is capacity for 10 of the 11 pods of the gang" + more,
		},
		"an annotation without affinity": {
			reason: "the pods of one controller are the gang", types: twoDomains, objects: anywhere(11, ownedBy("train"), minCount(11)),
			want:  map[string]int{},
			short: all + "there is capacity for 10 of the 11 pods of the gang" + more,
		},
		"an Indexed Job": {
			reason: "all its pods run at one time", types: twoDomains,
			objects: append(members("train", 7, wholeServer, ownedBy("train")), jobOf("train", 7, 7, 0)), want: map[string]int{},
			short: all + "no nvlink-domain has capacity for all 7 pods of the gang: n2 has capacity for 6, n1 for 4" + more,
		},
		"an Indexed Job that is being made": {
			reason: "its other pods come", types: twoDomains,
			objects: append(members("train", 2, wholeServer, ownedBy("train")), jobOf("train", 5, 5, 0)), want: map[string]int{},
			waits: "2 of the 5 pods of the gang exist: it gets no server before all do",
		},
		"an Indexed Job that is half done": {
			reason: "what is done needs no server", types: twoDomains,
			objects: append(members("train", 2, wholeServer, ownedBy("train")), jobOf("train", 5, 5, 3)), want: map[string]int{"n1": 2},
		},
		"a Job with an annotation, of which one pod is done": {
			reason: "the server of the other one has failed, and no other pod will come", types: twoDomains,
			objects: append(members("train", 1, wholeServer, ownedBy("train"), alone, minCount(2)), jobOf("train", 2, 2, 1)),
			want:    map[string]int{"": 1},
		},
		"the last pods of a Job with an annotation": {
			reason: "two are left of seven, and five ran at one time", types: twoDomains,
			objects: append(members("train", 2, wholeServer, ownedBy("train"), alone, minCount(5)), jobOf("train", 5, 7, 5)),
			want:    map[string]int{"": 2},
		},
		"the last pods of a Job with an annotation are being made": {
			reason: "the other one comes", types: twoDomains,
			objects: append(members("train", 1, wholeServer, ownedBy("train"), alone, minCount(5)), jobOf("train", 5, 7, 5)),
			want:    map[string]int{}, waits: "1 of the 2 pods of the gang exist: it gets no server before all do",
		},
		"indexes of a Job that have failed for good": {
			reason: "they do not come again", types: twoDomains,
			objects: append(members("train", 3, wholeServer, ownedBy("train")), failedIndexes(jobOf("train", 6, 6, 0), "1,3-4")),
			want:    map[string]int{"n1": 3},
		},
		"pods of another controller that are done": {
			reason: "they have run beside the others", types: twoDomains,
			objects: append(members("train", 2, wholeServer, ownedByKind("train"), minCount(2))[:1],
				done(members("train", 2, wholeServer, ownedByKind("train"), minCount(2))[1])),
			want: map[string]int{"n1": 1},
		},
		"pods that are done of an earlier one": {
			reason: "it had the same name", types: twoDomains,
			objects: append(members("train", 2, wholeServer, ownedByKind("train"), minCount(2))[:1],
				done(members("train", 2, wholeServer, ownedByKind("earlier"), minCount(2))[1])),
			want: map[string]int{}, waits: "1 of the 2 pods of the gang exist: it gets no server before all do",
		},
		"a Job of one pod after the other": {
			reason: "each of its pods is of use alone", types: twoDomains,
			objects: append(members("train", 7, wholeServer, ownedBy("train")), jobOf("train", 7, 70, 0)), want: map[string]int{"n2": 6},
			short: "no nvlink-domain has capacity for all 7 pods of the gang: n2 has capacity for 6, n1 for 4",
		},
		"exclusive placement of a JobSet": {
			reason: "its controller makes the others once the leader runs, in the same domain", types: twoDomains,
			objects: append(members("train", 1, wholeServer, ownedBy("train"), annotated(leaderFirst[0], "rack")), jobOf("train", 5, 5, 0)),
			want:    map[string]int{"n2": 1},
		},
		"exclusive placement of a LeaderWorkerSet": {
			reason: "as above", types: twoDomains,
			objects: members("train", 1, wholeServer, selecting(lwsGroup, "0"), annotated(lwsSize, "5"), annotated(leaderFirst[1], "rack")),
			want:    map[string]int{"n2": 1},
		},
		"a leader beside a smaller domain": {
			reason: "the group has room in the larger one only", types: []*v1alpha1.NodeType{h100(in("nv-1", 1), in("nv-2", 3))},
			objects: members("train", 1, wholeServer, selecting(lwsGroupKey, "5d3a9b1e"), annotated(lwsSize, "3"),
				annotated(leaderFirst[1], nvlink)),
			want: map[string]int{"nv-2": 1},
		},
		"exclusive placement where it does not fit": {
			reason: "what its other pods need is not known yet, so that nothing waits for them", types: twoDomains,
			objects: members("train", 1, wholeServer, selecting(lwsGroup, "0"), annotated(lwsSize, "7"), annotated(leaderFirst[1], "rack")),
			want:    map[string]int{"n2": 1},
			short:   "no nvlink-domain has capacity for all 7 pods of the gang: n2 has capacity for 6, n1 for 4",
		},
		"a group of a LeaderWorkerSet": {
			reason: "its pods say how many they are", types: twoDomains,
			objects: members("train", 7, wholeServer, selecting(lwsGroup, "0"), annotated(lwsSize, "7")), want: map[string]int{},
			short: all + "no nvlink-domain has capacity for all 7 pods of the gang: n2 has capacity for 6, n1 for 4" + more,
		},
		"a wrong number": {
			reason: "nobody knows what is meant", types: twoDomains,
			objects: members("train", 5, wholeServer, annotated(v1alpha1.GangMinCountAnnotationKey, "five")), want: map[string]int{},
			waits: `annotation gang.karpenter.metal3.io/min-count of pod train-0 is "five": it must be a whole number from 1, such as 64`,
		},
		"a wrong duration": {
			reason: "as above", types: twoDomains,
			objects: members("train", 5, wholeServer, annotated(v1alpha1.GangIdleDurationAnnotationKey, "5")), want: map[string]int{},
			waits: `annotation gang.karpenter.metal3.io/idle-duration of pod train-0 is "5": it must be a duration, such as 30s`,
		},
		"one that runs": {
			reason: "a gang that has started gets what there is, in its domain", types: []*v1alpha1.NodeType{h100(in("n1", 2), in("n2", 6))},
			objects: slices.Concat(members("train", 5, wholeServer, minCount(5))[1:],
				server("s1", "n1", members("train", 1, wholeServer, minCount(5))[0]), []client.Object{&corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "s1", Labels: map[string]string{nvlink: "n1", corev1.LabelHostname: "s1"}},
					Spec:       corev1.NodeSpec{ProviderID: "metal3://metal3-system/s1/s1"}}}), want: map[string]int{"n1": 2},
			short: "nvlink-domain n1, where other pods of the gang run, has capacity for 2 of these 4 pods",
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planning.Plan{Types: tc.types, Pools: tc.pools, Objects: tc.objects}
			plan.Quota.Quota = &v1alpha1.Quota{Servers: tc.quota}
			p := newPlanner(t, plan, Dependencies{})
			got, pod := p.plans(), tc.objects[0].(*corev1.Pod)
			if pod.Spec.Affinity == nil && len(got) > 0 { // in any domain
				got = map[string]int{"": lo.Sum(lo.Values(got))}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]string{tc.waits, tc.short}, []string{p.placer().Waits(pod), p.placer().Shortage(pod)}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestGangsComeInBatches: pods of gangs come in random batches. Nothing is planned before all are there, or before none has come for
// the idle duration.
func TestGangsComeInBatches(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 3))
		now := testclock.NewFakeClock(time.Now())
		sized := random.IntN(2) == 0
		count, idle := 2+random.IntN(6), time.Duration(1+random.IntN(60))*time.Second
		change := []func(*corev1.Pod){}
		if sized {
			change = append(change, minCount(count))
		} else if random.IntN(2) == 0 {
			change = append(change, annotated(v1alpha1.GangIdleDurationAnnotationKey, idle.String()))
		}
		flag := idle
		if len(change) > 0 {
			flag = time.Hour // the annotation wins
		}
		p := newPlanner(t, planning.Plan{Types: []*v1alpha1.NodeType{h100(in("n1", 8))}}, Dependencies{Clock: now, IdleDuration: flag})
		pods := members("train", count, wholeServer, change...)
		for made := 0; made < count; {
			batch := min(1+random.IntN(3), count-made)
			for _, pod := range pods[made : made+batch] {
				if err := p.tenant.Create(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
			}
			made += batch
			if made == count && sized {
				break
			}
			for range 1 + random.IntN(3) {
				if got := p.plans(); len(got) > 0 {
					t.Fatalf("seed %d: %v is planned when %d of %d pods exist", seed, got, made, count)
				}
				now.Step(time.Duration(random.Int64N(int64(idle) / 4)))
			}
		}
		if !sized {
			now.Step(idle)
		}
		if got := p.plans(); got["n1"] != count {
			t.Errorf("seed %d: planned %v, want %d servers", seed, got, count)
		}
	}
}

// TestMixedGroup: pods of one group of Kueue may have different affinities, or none. Each keeps its own, in whatever order the pods come.
func TestMixedGroup(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		keys   []string
	}{"None": {alone, nil}, "AnotherKey": {planning.Together("racks", "rack"), []string{"rack"}}} {
		for _, first := range []string{"a-other", "z-other"} { // pods are listed by name
			t.Run(name+"/"+first, func(t *testing.T) {
				domain := func(nvl, in string) v1alpha1.DomainCapacity { return planning.Domain(6, nvlink, nvl, "rack", in) }
				p := newPlanner(t, planning.Plan{Types: []*v1alpha1.NodeType{h100(domain("n1", "r1"), domain("n2", "r2"))},
					Objects: append(members("train", 3, wholeServer, kueue("all", 6)), members(first, 3, wholeServer, tc.change, kueue("all", 6))...)},
					Dependencies{})
				results, err := p.pass()
				if err != nil || len(results.NewNodeClaims) != 6 {
					t.Fatalf("%d NodeClaims, error %v; want six", len(results.NewNodeClaims), err)
				}
				for _, claim := range results.NewNodeClaims {
					var keys []string
					for _, term := range requiredAffinity(claim.Pods[0]) {
						keys = append(keys, term.TopologyKey)
					}
					want := []string{nvlink}
					if !strings.HasPrefix(claim.Pods[0].Name, "train") {
						want = tc.keys
					}
					if !slices.Equal(keys, want) {
						t.Errorf("pod %s is planned with affinity by %q, want %q", claim.Pods[0].Name, keys, want)
					}
				}
			})
		}
	}
}

// TestErrorKeepsGangsWaiting: when core cannot be asked, nothing is known of a gang that says its size. Others are as core would have them.
func TestErrorKeepsGangsWaiting(t *testing.T) {
	p := newPlanner(t, planning.Plan{Types: []*v1alpha1.NodeType{h100(in("n1", 6))},
		Objects: append(members("sized", 3, wholeServer, minCount(3)), members("other", 3, wholeServer)...)}, Dependencies{})
	plan, broken := p.placer().Plan, errors.New("no types yet")
	p.placer().Plan = func(context.Context, []*corev1.Pod) (scheduling.Results, error) { return scheduling.Results{}, broken }
	results, err := p.pass()
	if now, _ := perGang(results); err != nil || now["sized"] != 0 || now["other"] != 3 {
		t.Errorf("planned %v, error %v; want the other gang alone", now, err)
	}
	p.placer().Plan = plan
	if results, err = p.pass(); err != nil {
		t.Fatal(err)
	}
	if now, _ := perGang(results); now["sized"] != 3 || now["other"] != 3 {
		t.Errorf("planned %v; want both gangs", now)
	}
}

// TestServersSayTheirGang: what core creates for a gang says so, and has no other trace of it.
func TestServersSayTheirGang(t *testing.T) {
	p := newPlanner(t, planning.Plan{Types: []*v1alpha1.NodeType{h100(in("n1", 4), in("n2", 6))},
		Objects: append(members("train", 5, wholeServer, minCount(5)), planning.Pod("single", wholeServer))}, Dependencies{})
	results, err := p.pass()
	if err != nil || len(results.NewNodeClaims) != 6 {
		t.Fatalf("%d NodeClaims, error %v", len(results.NewNodeClaims), err)
	}
	for _, planned := range results.NewNodeClaims {
		nodeClaim, want := planned.ToNodeClaim(), []v1alpha1.MachineGang{{Name: "default/nvlink-domain gang=train", MinCount: 5}}
		if planned.Pods[0].Name == "single" {
			want = nil
		}
		p.placer().Mark(nodeClaim)
		if got := v1alpha1.GangsOf(nodeClaim); !slices.Equal(got, want) {
			t.Errorf("the NodeClaim for %s is for %v, want %v", planned.Pods[0].Name, got, want)
		}
		for _, requirement := range nodeClaim.Spec.Requirements {
			if strings.HasPrefix(requirement.Key, "gang.") {
				t.Errorf("requirement %+v is left", requirement)
			}
		}
		for key := range nodeClaim.Labels {
			if strings.HasPrefix(key, "gang.") {
				t.Errorf("label %s is left", key)
			}
		}
	}
}

// TestClaimsTogether: a NodeClaim says how many servers of its gang are of no use without each other.
func TestClaimsTogether(t *testing.T) {
	half := []string{"nvidia.com/gpu", "4"}
	for name, tc := range map[string]struct {
		reason  string
		types   []*v1alpha1.NodeType
		objects []client.Object
		want    map[string]int32
	}{
		"whole servers": {"all of them", []*v1alpha1.NodeType{h100(in("n1", 6))}, members("train", 5, wholeServer, minCount(5)),
			map[string]int32{"train": 5}},
		"half servers": {"two pods share one", []*v1alpha1.NodeType{h100(in("n1", 6))}, members("train", 5, half, minCount(5)),
			map[string]int32{"train": 3}},
		"no size": {"each is of use by itself", []*v1alpha1.NodeType{h100(in("n1", 6))}, members("train", 5, wholeServer),
			map[string]int32{"train": 0}},
		"two types": {"core plans the rest when these are claimed",
			[]*v1alpha1.NodeType{h100(in("n1", 3)), planning.NodeType("b200-8x", 8, in("n1", 3))},
			members("train", 5, wholeServer, minCount(5)), map[string]int32{"train": 3}},
		"shared server": {"a Machine is in one gang", []*v1alpha1.NodeType{h100(in("n1", 6))},
			append(members("train", 3, half, minCount(3)), members("other", 1, half, minCount(1))...), map[string]int32{"train": 0, "other": 0}},
		"two gangs": {"each its own", []*v1alpha1.NodeType{h100(in("n1", 6))},
			append(members("train", 2, wholeServer, minCount(2)), members("other", 3, wholeServer, minCount(3))...),
			map[string]int32{"train": 2, "other": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlanner(t, planning.Plan{Types: tc.types, Objects: tc.objects}, Dependencies{})
			results, err := p.pass()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]int32{}
			for _, planned := range results.NewNodeClaims {
				nodeClaim := planned.ToNodeClaim()
				p.placer().Mark(nodeClaim)
				for _, gang := range v1alpha1.GangsOf(nodeClaim) {
					got[gang.Name[strings.LastIndex(gang.Name, "=")+1:]] = gang.MinCount
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// bootingFor is a server in a domain on which nothing runs yet, planned for a gang.
func bootingFor(name, domain, gang string) *karpv1.NodeClaim {
	nodeClaim := server(name, domain)[0].(*karpv1.NodeClaim)
	nodeClaim.Annotations = map[string]string{v1alpha1.GangsAnnotationKey: fmt.Sprintf(`[{"name":"default/nvlink-domain gang=%s"}]`, gang)}
	nodeClaim.Finalizers = []string{"karpenter.sh/termination"}
	nodeClaim.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: nvlink, Operator: corev1.NodeSelectorOpIn, Values: []string{domain}},
	}
	return nodeClaim
}

// TestDecidedOnce: a gang stays where its servers are, whatever comes later, and gets others only when it cannot be there.
func TestDecidedOnce(t *testing.T) {
	now := testclock.NewFakeClock(time.Now())
	mapped := map[string]string{}
	dependencies := Dependencies{Clock: now, NodeClaimOf: func(pod types.NamespacedName) string { return mapped[pod.Name] }}
	plan := func(free ...v1alpha1.DomainCapacity) planning.Plan {
		return planning.Plan{Types: []*v1alpha1.NodeType{h100(free...)}, Objects: append(members("train", 5, wholeServer, minCount(5)),
			bootingFor("s1", "n1", "train"), bootingFor("s2", "n1", "train"), bootingFor("s3", "n1", "train"))}
	}
	// Core is not told of the three servers here, and so plans what is free of the five.
	p := newPlanner(t, plan(in("n1", 2), in("n2", 6)), dependencies)
	if got := p.plans(); !cmp.Equal(got, map[string]int{"n1": 2}) {
		t.Errorf("planned %v; want the rest in n1, where three servers boot", got)
	}

	p = newPlanner(t, plan(in("n1", 1), in("n2", 6)), dependencies)
	for name := range 4 {
		mapped[fmt.Sprint("train-", name)] = "s1"
	}
	living := func() (living int) {
		nodeClaims := &karpv1.NodeClaimList{}
		if err := p.tenant.List(t.Context(), nodeClaims); err != nil {
			t.Fatal(err)
		}
		for i := range nodeClaims.Items {
			if nodeClaims.Items[i].DeletionTimestamp.IsZero() {
				living++
			}
		}
		return living
	}
	if got := p.plans(); got["n2"] != 0 || living() != 3 {
		t.Errorf("planned %v with %d servers; want none elsewhere, what is missing may come back", got, living())
	}
	now.Step(movePeriod)
	if got := p.plans(); len(got) > 0 || living() != 0 {
		t.Errorf("planned %v with %d servers; want them given back first", got, living())
	}
	// Their BMC may never answer.
	if got := p.plans(); !cmp.Equal(got, map[string]int{"n2": 5}) {
		t.Errorf("planned %v; want all in n2 while the servers of n1 are given back", got)
	}
}

// TestMovedEverMoreSeldom: each move throws installations away. A gang whose servers fail in one domain after the other stays for longer
// each time.
func TestMovedEverMoreSeldom(t *testing.T) {
	now := testclock.NewFakeClock(time.Now())
	p := newPlanner(t, planning.Plan{Types: []*v1alpha1.NodeType{h100(in("n2", 6))}, Objects: members("train", 5, wholeServer, minCount(5))},
		Dependencies{Clock: now})
	var moves []time.Duration
	begin := now.Now()
	for now.Since(begin) < 2*time.Hour {
		nodeClaims := &karpv1.NodeClaimList{}
		if err := p.tenant.List(t.Context(), nodeClaims); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(nodeClaims.Items, func(n karpv1.NodeClaim) bool { return n.DeletionTimestamp.IsZero() }) {
			if err := p.tenant.Create(t.Context(), bootingFor(fmt.Sprint("s", len(moves)), "n1", "train")); err != nil {
				t.Fatal(err)
			}
			moves = append(moves, now.Since(begin).Round(time.Minute))
		}
		p.plans()
		now.Step(time.Minute)
	}
	if len(moves) < 3 || len(moves) > 7 {
		t.Errorf("the gang has its first servers after %v, want from two to six moves in two hours, ever more seldom", moves)
	}
}

// TestNeverMoved: servers stay although core plans none for some of the pods, for any of these reasons.
func TestNeverMoved(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		free   []v1alpha1.DomainCapacity
		change func(*karpv1.NodeClaim)
		pods   []func(*corev1.Pod)
	}{
		"Registered": {"one has become a node", []v1alpha1.DomainCapacity{in("n2", 6)}, func(n *karpv1.NodeClaim) {
			n.Status.NodeName = n.Name
		}, nil},
		"Shared": {"it is another gang's as well", []v1alpha1.DomainCapacity{in("n2", 6)}, func(n *karpv1.NodeClaim) {
			n.Annotations[v1alpha1.GangsAnnotationKey] = `[{"name":"default/nvlink-domain gang=train"},{"name":"default/other"}]`
		}, nil},
		"Nowhere": {"no other domain has room", []v1alpha1.DomainCapacity{in("n2", 4)}, func(*karpv1.NodeClaim) {}, nil},
		"Unsized": {"nobody says that the gang needs all", []v1alpha1.DomainCapacity{in("n2", 6)}, func(*karpv1.NodeClaim) {},
			[]func(*corev1.Pod){func(pod *corev1.Pod) { pod.Annotations = nil }}},
		"Anywhere": {"a gang without a topology key has no other domain", []v1alpha1.DomainCapacity{in("n2", 4)}, func(n *karpv1.NodeClaim) {
			n.Annotations[v1alpha1.GangsAnnotationKey] = `[{"name":"default/pod group train"}]`
		}, []func(*corev1.Pod){alone, kueue("train", 5)}},
		"Enough": {"it needs no more in its domain", []v1alpha1.DomainCapacity{in("n1", 5), in("n2", 6)}, func(*karpv1.NodeClaim) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			now := testclock.NewFakeClock(time.Now())
			nodeClaim := bootingFor("s1", "n1", "train")
			tc.change(nodeClaim)
			p := newPlanner(t, planning.Plan{Types: []*v1alpha1.NodeType{h100(tc.free...)},
				Objects: append(members("train", 5, wholeServer, append([]func(*corev1.Pod){minCount(5)}, tc.pods...)...), nodeClaim)},
				Dependencies{Clock: now})
			for range 4 {
				if got := p.plans(); got["n2"] > 0 {
					t.Errorf("%s: planned %v", tc.reason, got)
				}
				now.Step(movePeriod)
			}
			found, err := kube.Find(t.Context(), p.tenant, client.ObjectKeyFromObject(nodeClaim), nodeClaim)
			if err != nil || !found || !nodeClaim.DeletionTimestamp.IsZero() {
				t.Errorf("%s: found %v, error %v, deleted %v", tc.reason, found, err, nodeClaim.DeletionTimestamp)
			}
		})
	}
}

// TestWholeInRandomWorlds: core plans all that a gang needs, or none of it. A gang that is there alone, and that core would plan in some
// domain, is planned.
func TestWholeInRandomWorlds(t *testing.T) { wholeInWorlds(t, 0, 300) }

// TestWholeInMoreWorlds is the same in many more worlds.
func TestWholeInMoreWorlds(t *testing.T) {
	system.Only(t)
	wholeInWorlds(t, 300, 2_000)
}

func wholeInWorlds(t *testing.T, first, end uint64) {
	t.Helper()
	var some, none, parts int
	for seed := first; seed < end; seed++ {
		random := rand.New(rand.NewPCG(seed, 4))
		plan, need, members := world(seed), map[string]int{}, map[string]int{}
		for _, object := range plan.Objects {
			if name := object.GetLabels()["gang"]; name != "" {
				members[name]++
			}
		}
		for _, object := range plan.Objects {
			if name := object.GetLabels()["gang"]; name != "" {
				if need[name] == 0 {
					need[name] = max(1, members[name]-random.IntN(2))
				}
				minCount(need[name])(object.(*corev1.Pod))
			}
		}
		together, _ := placed(plan, Dependencies{})
		results := together.Solve(t)
		now, later := perGang(results)
		for name, need := range need {
			switch {
			case now[name] >= need:
				some++
			case now[name] == 0:
				none++
			case now[name]+later[name] >= need && len(plan.Types) > 1:
				parts++ // core reserves a server of each type for each NodeClaim
			default:
				t.Errorf("seed %d: %d pods of %s are planned, and %d need to be", seed, now[name], name, need)
			}
		}
		if len(need) > 1 || len(plan.Objects) > members["train-0"] || now["train-0"] > 0 {
			continue
		}
		for _, domain := range []string{"n1", "n2", "n3", "n4"} {
			there := world(seed)
			for _, object := range there.Objects {
				planning.Selecting(nvlink, domain)(object.(*corev1.Pod))
			}
			if planned, _ := perGang(there.Solve(t)); planned["train-0"] >= need["train-0"] {
				t.Errorf("seed %d: core plans %d pods in %s, and none with the placer", seed, planned["train-0"], domain)
			}
		}
	}
	// A test in which nothing happens shows nothing.
	if worlds := int(end - first); some < worlds/5 || none < worlds/5 || parts == 0 {
		t.Errorf("of the gangs of %d worlds, %d are planned, %d are not, and %d with servers of several types", worlds, some, none, parts)
	}
}

// perGang counts the pods of each gang that core plans, and those that it leaves for the next pass.
func perGang(results scheduling.Results) (now, later map[string]int) {
	now, later = map[string]int{}, map[string]int{}
	for _, claim := range results.NewNodeClaims {
		for _, pod := range claim.Pods {
			now[pod.Labels["gang"]]++
		}
	}
	for pod := range results.ReservedOfferingErrors() {
		later[pod.Labels["gang"]]++
	}
	return now, later
}
