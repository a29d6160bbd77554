// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	provisioning "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
)

func fittingPool() *karpv1.NodePool {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{
		Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: "default",
	}
	return pool
}

// coreFits asks Karpenter's scheduler: it tries the pod, and again with each preference and each alternative less.
func coreFits(t *testing.T, pool *karpv1.NodePool, pod *corev1.Pod) bool {
	t.Helper()
	template, pod := provisioning.NewNodeClaimTemplate(pool), pod.DeepCopy()
	preferences := provisioning.Preferences{ToleratePreferNoSchedule: true}
	for {
		if scheduling.Taints(template.Spec.Taints).ToleratesPod(pod) == nil &&
			template.Requirements.IsCompatible(scheduling.NewPodRequirements(pod), scheduling.AllowUndefinedWellKnownLabels) {
			return true
		}
		if !preferences.Relax(t.Context(), pod) {
			return false
		}
	}
}

// TestPoolFitsAsKarpenterSays: whatever a pod and a NodePool ask for, the answer is that of Karpenter's scheduler.
func TestPoolFitsAsKarpenterSays(t *testing.T) {
	// Known to core as labels of servers, as a label of the NodePool, and as nobody's.
	keys := []string{corev1.LabelTopologyZone, corev1.LabelInstanceTypeStable, karpv1.CapacityTypeLabelKey, karpv1.NodePoolLabelKey,
		karpv1.NodeClassLabelKey(fittingPool().Spec.Template.Spec.NodeClassRef.GroupKind()), "team", "nobody"}
	values := []string{"a", "b", "7", "pool", "default", "reserved"}
	operators := []corev1.NodeSelectorOperator{"In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}
	answers := map[bool]int{}
	alternatives := 0
	for seed := range int64(10_000) {
		random := rand.New(rand.NewSource(seed))
		key := func() string { return keys[random.Intn(len(keys))] }
		value := func() string { return values[random.Intn(len(values))] }
		expression := func() corev1.NodeSelectorRequirement {
			requirement := corev1.NodeSelectorRequirement{Key: key(), Operator: operators[random.Intn(len(operators))]}
			switch requirement.Operator {
			case "In", "NotIn":
				requirement.Values = []string{value(), value()}
			case "Gt", "Lt":
				requirement.Values = []string{fmt.Sprint(random.Intn(10))}
			}
			return requirement
		}
		term := func() corev1.NodeSelectorTerm {
			term := corev1.NodeSelectorTerm{}
			for range random.Intn(3) {
				term.MatchExpressions = append(term.MatchExpressions, expression())
			}
			return term
		}
		pool, pod := fittingPool(), &corev1.Pod{}
		for range random.Intn(3) {
			requirement := expression()
			pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements,
				karpv1.NodeSelectorRequirementWithMinValues{Key: requirement.Key, Operator: requirement.Operator, Values: requirement.Values})
		}
		if random.Intn(2) == 0 {
			pool.Spec.Template.Labels = map[string]string{"team": value()}
		}
		effects := []corev1.TaintEffect{"NoSchedule", "NoExecute", "PreferNoSchedule"}
		for range random.Intn(2) {
			pool.Spec.Template.Spec.Taints = append(pool.Spec.Template.Spec.Taints,
				corev1.Taint{Key: "taint", Value: value(), Effect: effects[random.Intn(len(effects))]})
		}
		for range random.Intn(2) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations,
				corev1.Toleration{Key: "taint", Operator: corev1.TolerationOpEqual, Value: value()})
		}
		if random.Intn(3) == 0 {
			pod.Spec.NodeSelector = map[string]string{key(): value()}
		}
		affinity := &corev1.NodeAffinity{}
		if terms := random.Intn(4); terms > 0 {
			affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
			for range terms {
				affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = append(
					affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, term())
			}
		}
		for range random.Intn(2) {
			preferred := corev1.PreferredSchedulingTerm{Weight: 1 + random.Int31n(9), Preference: term()}
			affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
				affinity.PreferredDuringSchedulingIgnoredDuringExecution, preferred)
		}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: affinity}

		wanted, why := PoolFits(pool, pod, karpv1.WellKnownLabels)
		want := coreFits(t, pool, pod)
		if (why == nil) != want || (len(wanted) > 0) != want {
			text, _ := json.Marshal(map[string]any{"pool": pool.Spec.Template, "pod": pod.Spec})
			t.Fatalf("seed %d: got %v and %d alternatives, want %v: %s", seed, why, len(wanted), want, text)
		}
		answers[want]++
		alternatives = max(alternatives, len(wanted))
	}
	if answers[true] < 1000 || answers[false] < 1000 || alternatives < 2 {
		t.Errorf("the pods and pools are too much alike: %v, at most %d alternatives", answers, alternatives)
	}
}

func TestPoolFits(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*karpv1.NodePool)
		want   string
	}{
		"Fits": {"nothing is against it", func(*karpv1.NodePool) {}, ""},
		"Another class": {"its nodes are not ours", func(p *karpv1.NodePool) {
			p.Spec.Template.Spec.NodeClassRef.Group = "aws"
		}, "no servers"},
		"No class": {"as above", func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef = nil }, "no servers"},
		"Static":   {"it has as many nodes as it says", func(p *karpv1.NodePool) { p.Spec.Replicas = new(int64) }, "static"},
		"Deleting": {"core makes no more", func(p *karpv1.NodePool) {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}, "being deleted"},
		"Not ready": {"core leaves it out", func(p *karpv1.NodePool) {
			p.Status.Conditions = []status.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Message: "no class"}}
		}, "not ready: no class"},
		"Exhausted": {"core makes no more", func(p *karpv1.NodePool) {
			p.Spec.Limits = karpv1.Limits{"nodes": resource.MustParse("2")}
			p.Status.Resources = corev1.ResourceList{"nodes": resource.MustParse("3")}
		}, "nodes"},
		"Tainted": {"the pod does not tolerate it", func(p *karpv1.NodePool) {
			p.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}, "did not tolerate taint"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := fittingPool()
			tc.change(pool)
			_, err := PoolFits(pool, &corev1.Pod{}, karpv1.WellKnownLabels)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// TestPoolFitsServerLabels: a label that servers have need not be among the requirements of a NodePool, even if core
// does not know it.
func TestPoolFitsServerLabels(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"example.com/gpu": "h100"}}}
	nodeType := v1alpha1.NodeType{}
	nodeType.Status.Requirements = []v1alpha1.NodeTypeRequirement{{Key: "example.com/gpu", Values: []string{"h100"}}}
	if _, err := PoolFits(fittingPool(), pod, ServerLabels(nil)); err == nil {
		t.Error("the pool gives its nodes a label that nobody knows")
	}
	wanted, err := PoolFits(fittingPool(), pod, ServerLabels([]v1alpha1.NodeType{nodeType}))
	if err != nil || len(wanted) != 1 || !slices.Equal(wanted[0].Get("example.com/gpu").Values(), []string{"h100"}) ||
		!slices.Equal(wanted[0].Get(karpv1.NodePoolLabelKey).Values(), []string{"pool"}) {
		t.Errorf("got %v and %v, want the label of the pod and that of the pool", wanted, err)
	}
}

func TestWithCoreOperator(t *testing.T) {
	for name, tc := range map[string]struct {
		reason             string
		from, want         corev1.NodeSelectorOperator
		fromValue, toValue string
	}{
		"Gte":       {"4 is among them", karpv1.NodeSelectorOpGte, corev1.NodeSelectorOpGt, "4", "3"},
		"Lte":       {"4 is among them", karpv1.NodeSelectorOpLte, corev1.NodeSelectorOpLt, "4", "5"},
		"No number": {"who reads it names it", karpv1.NodeSelectorOpLte, corev1.NodeSelectorOpLt, "x", "x"},
		"In":        {"Kubernetes has it", corev1.NodeSelectorOpIn, corev1.NodeSelectorOpIn, "4", "4"},
	} {
		t.Run(name, func(t *testing.T) {
			from := corev1.NodeSelectorRequirement{Key: "k", Operator: tc.from, Values: []string{tc.fromValue}}
			want := corev1.NodeSelectorRequirement{Key: "k", Operator: tc.want, Values: []string{tc.toValue}}
			if diff := cmp.Diff(want, WithCoreOperator(from)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if from.Values[0] != tc.fromValue {
				t.Errorf("the given requirement is changed: %v", from)
			}
		})
	}
}

// TestLegalRequirements has every requirement that Karpenter's schema takes in a NodePool reach the manager, which reads it as
// Karpenter's core does.
func TestLegalRequirements(t *testing.T) {
	numbers := []string{"0", "1", "8", "9223372036854775806", "9223372036854775807"}
	texts := append(numbers, "", strings.Repeat("x", 63))
	cases := map[corev1.NodeSelectorOperator]struct {
		reason string
		values []string
	}{
		corev1.NodeSelectorOpIn:           {"a value of a label may be empty, and has up to 63 characters", texts},
		corev1.NodeSelectorOpNotIn:        {"as In", texts},
		corev1.NodeSelectorOpExists:       {"it takes no value", []string{""}},
		corev1.NodeSelectorOpDoesNotExist: {"it takes no value", []string{""}},
		corev1.NodeSelectorOpGt:           {"the schema takes whole numbers from 0 to the largest", numbers},
		corev1.NodeSelectorOpLt:           {"as Gt", numbers},
		karpv1.NodeSelectorOpGte:          {"as Gt", numbers},
		karpv1.NodeSelectorOpLte:          {"as Gt", numbers},
	}
	for operator, tc := range cases {
		for _, value := range tc.values {
			values := []string{value}
			if operator == corev1.NodeSelectorOpExists || operator == corev1.NodeSelectorOpDoesNotExist {
				values = nil
			}
			written := corev1.NodeSelectorRequirement{Key: "example.com/" + strings.Repeat("k", 63), Operator: operator, Values: values}
			became, wrong := matching.Requirement(field.NewPath("requirements"), WithCoreOperator(written))
			if len(wrong) > 0 {
				t.Errorf("%s %v: the manager refuses the Machine: %v (%s)", operator, values, wrong, tc.reason)
				continue
			}
			core := scheduling.NewRequirement(written.Key, operator, values...)
			for _, has := range numbers {
				if got, want := became.Matches(labels.Set{written.Key: has}), core.Has(has); got != want {
					t.Errorf("%s %v: a server with the value %s: the manager says %t, and Karpenter %t", operator, values, has, got, want)
				}
			}
		}
	}
}
