// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// TestNoClockBlamesAServer deletes NodeClaims for any reason while the clocks of the provider, the API server and the node
// differ by up to an hour, and conditions have no time. A server is blamed if core has repaired its node, and never for
// another deletion.
func TestNoClockBlamesAServer(t *testing.T) {
	c := &CloudProvider{}
	blamed := 0
	for seed := range system.Histories(t, 5_000) {
		random := rand.New(rand.NewPCG(seed, 56))
		pick := func(durations ...time.Duration) time.Duration { return durations[random.IntN(len(durations))] }
		// Most clocks differ by a second or less.
		now := func() time.Time {
			most := pick(20*time.Millisecond, time.Second, time.Hour)
			return time.Unix(1e9, 0).Add(time.Duration(random.Int64N(int64(most))) - time.Second/2)
		}
		provider, server, kubelet := now(), now(), now()
		repair := random.IntN(2) == 0
		nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "n",
			DeletionTimestamp: &metav1.Time{Time: server.Truncate(time.Second)}}}
		nodeClaim.Status.NodeName = "n"
		var period time.Duration
		if random.IntN(3) > 0 {
			period = pick(0, time.Second, time.Minute, time.Hour)
			nodeClaim.Spec.TerminationGracePeriod = &metav1.Duration{Duration: period}
		}
		// Core's repair bounds how long pods may stay before it deletes the NodeClaim. Any other deletion does so afterwards, if
		// the NodeClaim has a bound.
		end := provider
		if !repair {
			end = nodeClaim.DeletionTimestamp.Add(period)
		}
		if repair || nodeClaim.Spec.TerminationGracePeriod != nil {
			nodeClaim.Annotations = map[string]string{karpv1.NodeClaimTerminationTimestampAnnotationKey: end.Format(time.RFC3339)}
		}
		node := &corev1.Node{}
		condition := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
		switch {
		case repair && random.IntN(2) == 0 && (nodeClaim.Spec.TerminationGracePeriod == nil || period > 0):
			condition.Status = corev1.ConditionUnknown
		case repair:
			condition = corev1.NodeCondition{Type: faults[random.IntN(len(faults))], Status: corev1.ConditionTrue}
		case random.IntN(2) == 0:
			condition.Status = corev1.ConditionFalse // for a moment, or because it goes
		}
		if random.IntN(4) > 0 { // optional in Kubernetes
			condition.LastTransitionTime = metav1.NewTime(kubelet.Add(-pick(time.Second, time.Hour)).Truncate(time.Second))
		}
		node.Status.Conditions = []corev1.NodeCondition{condition}
		var why *v1alpha1.UnhealthyNode
		if isRepair(nodeClaim) {
			why = c.unhealthy(node, nodeClaim)
		}
		describe := func() string {
			return fmt.Sprintf("seed %d: a repair: %v, NodeClaim deleted at %v with %v, period %v, node says %+v, Machine says %+v", seed, repair,
				nodeClaim.DeletionTimestamp, nodeClaim.Annotations, nodeClaim.Spec.TerminationGracePeriod, condition, why)
		}
		// A clock that is ahead by the period to the second makes both alike. Then nobody is blamed.
		alike := period > 0 && end.Truncate(time.Second).Equal(nodeClaim.DeletionTimestamp.Add(period))
		switch {
		case why != nil && !repair:
			t.Fatalf("a healthy server is blamed: %s", describe())
		case why == nil && repair && !alike:
			t.Fatalf("a broken server is not blamed: %s", describe())
		case why != nil && why.Since.IsZero():
			t.Fatalf("the API server refuses the record: %s", describe())
		case why != nil:
			blamed++
		}
	}
	t.Logf("%d servers were blamed", blamed)
}
