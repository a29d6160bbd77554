// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

// TestMetrics: gangs that wait are counted by reason, and the wait of each is observed once, when all that it needs is planned.
func TestMetrics(t *testing.T) {
	now := testclock.NewFakeClock(time.Now().Truncate(time.Second))
	since := func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(now.Now().Add(-time.Minute)) }
	gang := func(name string, count, need int) []client.Object {
		return members(name, count, wholeServer, minCount(need), since)
	}
	p := newPlanner(t, planning.Plan{Types: []*v1alpha1.NodeType{h100(in("n1", 4))},
		Objects: append(append(gang("train", 3, 4), gang("big", 5, 5)...), gang("half", 1, 2)...)}, Dependencies{Clock: now})
	before := observed(t)
	check := func(when string, incomplete, short, planned int, waits uint64, seconds float64) {
		t.Helper()
		p.plans()
		for name, got := range map[string][2]float64{
			"incomplete": {testutil.ToFloat64(waitingGangs.WithLabelValues("GangIncomplete")), float64(incomplete)},
			"short":      {testutil.ToFloat64(waitingGangs.WithLabelValues("InsufficientDomainCapacity")), float64(short)},
			"planned":    {testutil.ToFloat64(plannedGangs), float64(planned)},
		} {
			if got[0] != got[1] {
				t.Errorf("%s, %s: %v gangs, want %v", when, name, got[0], got[1])
			}
		}
		after := observed(t)
		if count, sum := after.count-before.count, after.sum-before.sum; count != waits || sum != seconds {
			t.Errorf("%s: %d waits of %v s, want %d of %v", when, count, sum, waits, seconds)
		}
	}
	check("at first", 2, 1, 0, 0, 0)
	now.Step(time.Minute)
	if err := p.tenant.Create(t.Context(), members("train", 4, wholeServer, minCount(4), since)[3]); err != nil {
		t.Fatal(err)
	}
	check("with the last pod", 1, 1, 1, 1, 120)
	now.Step(time.Minute)
	check("once more", 1, 1, 1, 1, 120)
	if err := p.tenant.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	check("without pods", 0, 0, 0, 1, 120)
}

// waits are how many have been observed, and the sum of their seconds.
type waits struct {
	count uint64
	sum   float64
}

// observed reads what a scrape of the process would.
func observed(t *testing.T) waits {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), "karpenter_metal3_gang_wait") {
			histogram := family.GetMetric()[0].GetHistogram()
			return waits{histogram.GetSampleCount(), histogram.GetSampleSum()}
		}
	}
	t.Fatal("there is no metric of the wait of gangs")
	return waits{}
}
