// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// What is refused again as soon as it may be tried again is tried ever more seldom.
func TestBackoffGrows(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		given  string
		want   []time.Duration
	}{
		"invalid": {
			reason: "a class is not corrected within seconds", given: v1alpha1.ReasonInvalidSpec,
			want: []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute},
		},
		"no capacity": {
			reason: "another tenant was faster, and the catalog knows in a moment what is left", given: v1alpha1.ReasonNoCapacity,
			want: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second},
		},
		"too many pending": {
			reason: "there is room again once others have their servers", given: v1alpha1.ReasonTooManyPending,
			want: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, now, key := &refusals{}, time.Unix(0, 0), poolType{"pool", "type"}
			for _, want := range tc.want {
				b, begins := r.record(key, dependencies{}, now, now, metav1.Condition{Reason: tc.given})
				if got := b.until.Sub(now); !begins || got != want {
					t.Fatalf("%s: a backoff of %v begins: %v, want %v", tc.reason, got, begins, want)
				}
				if _, found := r.find(key, dependencies{}, b.until.Add(-time.Nanosecond)); !found {
					t.Fatal("it is over too early")
				}
				if _, found := r.find(key, dependencies{}, b.until); found {
					t.Fatal("it does not end")
				}
				now = b.until.Add(9 * time.Second)
			}
			now = now.Add(time.Hour)
			if b, _ := r.record(key, dependencies{}, now, now, metav1.Condition{Reason: tc.given}); b.until.Sub(now) != tc.want[0] {
				t.Errorf("after a long time without a refusal it starts with %v", b.until.Sub(now))
			}
		})
	}
}

// A backoff ends with a change of what the refusal depends on, and with no other.
func TestBackoffEnds(t *testing.T) {
	refusedOn := dependencies{versions: "1", released: 1, available: 2}
	for name, tc := range map[string]struct {
		reason string
		given  string
		// then is what it depends on, look by look; the last decides.
		then []dependencies
		want bool
	}{
		"no change":     {reason: "it would be refused again", given: v1alpha1.ReasonInvalidSpec, then: []dependencies{refusedOn}, want: true},
		"class changed": {reason: "it may be right now", given: v1alpha1.ReasonInvalidSpec, then: []dependencies{{"2", 1, 2}}},
		"invalid, server back": {reason: "a server more does not correct a class", given: v1alpha1.ReasonInvalidSpec,
			then: []dependencies{{"1", 2, 3}}, want: true},
		"no address, server back": {reason: "it had an address", given: v1alpha1.ReasonNoAddress, then: []dependencies{{"1", 2, 2}}},
		"no address, server of another tenant back": {reason: "the address is another's", given: v1alpha1.ReasonNoAddress,
			then: []dependencies{{"1", 1, 3}}, want: true},
		"ResourceQuota, server back": {reason: "the quota counts Machines", given: reasonInvalidMachine, then: []dependencies{{"1", 2, 2}}},
		"no capacity, server back":   {reason: "there is one more", given: v1alpha1.ReasonNoCapacity, then: []dependencies{{"1", 1, 3}}},
		"too many pending, server back": {reason: "it is for one that waits", given: v1alpha1.ReasonTooManyPending,
			then: []dependencies{{"1", 1, 3}}},
		"no capacity, catalog up to date": {reason: "now it knows that there is none", given: v1alpha1.ReasonNoCapacity,
			then: []dependencies{{"1", 1, 0}}, want: true},
		"no capacity, catalog up to date, server back": {reason: "there is one more than there was",
			given: v1alpha1.ReasonNoCapacity, then: []dependencies{{"1", 1, 0}, {"1", 1, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			r, now, key := &refusals{}, time.Unix(0, 0), poolType{"pool", "type"}
			r.record(key, refusedOn, now, now, metav1.Condition{Reason: tc.given})
			var found bool
			for _, current := range tc.then {
				_, found = r.find(key, current, now)
			}
			if found != tc.want {
				t.Errorf("%s: still refused %v, want %v", tc.reason, found, tc.want)
			}
		})
	}
	t.Run("a burst", func(t *testing.T) {
		r, now, key := &refusals{}, time.Unix(0, 0), poolType{"pool", "type"}
		first, _ := r.record(key, refusedOn, now, now, metav1.Condition{Reason: v1alpha1.ReasonNoCapacity})
		if b, begins := r.record(key, refusedOn, now.Add(-time.Second), now.Add(5*time.Second),
			metav1.Condition{Reason: v1alpha1.ReasonNoCapacity}); begins || b.until != first.until {
			t.Errorf("NodeClaims that were launched together count as tried again: %v", b.until)
		}
	})
}

// What was refused is not offered to its NodePool, with the reason on the NodePool and on the pods, until the class changes.
func TestRefusedTypeIsNotOffered(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	clk := clocktesting.NewFakeClock(time.Now())
	f.clock = clk
	nodePool := &karpenterv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu-" + f.namespace}}
	nodePool.Spec.Template.Spec.NodeClassRef = f.nodeClaim("any").Spec.NodeClassRef
	nodePool.Spec.Template.Spec.Requirements = []karpenterv1.NodeSelectorRequirementWithMinValues{
		{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{f.nodeType}}}
	nodePool.Spec.Template.Spec.ExpireAfter = karpenterv1.MustParseNillableDuration("Never")
	nodePool.Spec.Disruption.ConsolidateAfter = karpenterv1.MustParseNillableDuration("Never")
	nodePool.Spec.Template.Labels = map[string]string{"tenant": f.namespace}
	f.create(nodePool)
	nodeType := &v1alpha1.NodeType{}
	if err := environment.Client.Get(f.ctx, types.NamespacedName{Name: f.nodeType}, nodeType); err != nil {
		t.Fatal(err)
	}
	nodeType.Status.Capacity = v1alpha1.Capacity{Total: 2, Available: 2}
	f.updateStatus(nodeType)
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: nodePool.Spec.Template.Labels, Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: env.Resources("nvidia.com/gpu", "1")}}}}}
	offered := func() bool {
		t.Helper()
		all, err := f.GetInstanceTypes(f.ctx, nodePool)
		if err != nil || len(all) != 1 || len(all[0].Offerings) == 0 {
			t.Fatalf("%d types, %v: a type that vanishes is drift", len(all), err)
		}
		free, err := f.FreeFor(f.ctx, nodePool)
		if err != nil {
			t.Fatal(err)
		}
		if (free > 0) != (len(all[0].Offerings.Available()) > 0) {
			t.Errorf("a static pool could have %d servers, of %d offerings", free, len(all[0].Offerings.Available()))
		}
		return free > 0
	}
	f.eventually("the type to be offered", func() error {
		if free, err := f.FreeFor(f.ctx, nodePool); free == 0 {
			return errors.Join(err, errors.New("no server is free"))
		}
		return nil
	})
	refuse := func(name string) {
		t.Helper()
		nodeClaim := f.nodeClaim(name)
		nodeClaim.Labels[karpenterv1.NodePoolLabelKey] = nodePool.Name
		answering := &sync.WaitGroup{}
		answering.Go(func() { f.answer(name, refuses(v1alpha1.ReasonInvalidSpec, "OSImage missing does not exist")) })
		_, err := f.Create(f.ctx, nodeClaim)
		answering.Wait()
		if !cloudprovider.IsInsufficientCapacityError(err) {
			t.Fatal(err)
		}
	}
	refuse("gpu-1")
	if offered() {
		t.Error("what was refused is offered again at once")
	}
	f.wantEvent(reasonServerRefused, "no NodeClaim is made for NodeType "+f.nodeType, "OSImage missing does not exist")
	if told, err := f.RefusedFor(f.ctx, pod); err != nil || !strings.Contains(told, "OSImage missing does not exist") {
		t.Errorf("a pod that waits is told %q, %v", told, err)
	}
	if why, err := f.Refusal(f.ctx, nodePool, f.nodeType); err != nil || !strings.Contains(why, "OSImage missing does not exist") {
		t.Errorf("a rollout is told %q, %v: it would give a node up for nothing", why, err)
	}
	if wait := f.RetryAfter(nodePool.Name); wait != time.Minute {
		t.Errorf("it is tried again after %v", wait)
	}
	clk.Step(time.Minute)
	if !offered() {
		t.Error("it is never offered again")
	}
	refuse("gpu-2")
	if wait := f.RetryAfter(nodePool.Name); wait != 2*time.Minute {
		t.Errorf("it is tried again after %v", wait)
	}
	f.class.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: "debian"}
	if err := environment.Client.Update(f.ctx, f.class); err != nil {
		t.Fatal(err)
	}
	if !offered() {
		t.Error("the class was corrected, and the type is not offered")
	}
	if told, err := f.RefusedFor(f.ctx, pod); err != nil || told != "" {
		t.Errorf("a pod that waits is told %q, %v", told, err)
	}
}
