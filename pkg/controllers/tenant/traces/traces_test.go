// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// after is a time of the test, so many seconds after the NodeClaim was created.
func after(seconds int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(seconds) * time.Second))
}

// claim is a NodeClaim for which conditions became true after so many seconds: launched, registered, initialized.
func claim(seconds ...int) *karpv1.NodeClaim {
	nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{UID: "nodeclaim", CreationTimestamp: after(0)}}
	for i, second := range seconds {
		nodeClaim.Status.Conditions = append(nodeClaim.Status.Conditions, status.Condition{
			Type:   []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized}[i],
			Status: metav1.ConditionTrue, LastTransitionTime: after(second),
		})
	}
	return nodeClaim
}

// TestClaimSpans: each step begins with the end of the one before, and is sent once.
func TestClaimSpans(t *testing.T) {
	type span struct {
		Name, Parent string
		Start, End   int
	}
	for _, tc := range []struct {
		reason      string
		before, now *karpv1.NodeClaim
		want        []span
	}{
		{"nothing has happened", claim(), claim(), nil},
		{"it has a server", claim(), claim(2), []span{{"Launch", "NodeClaim", 0, 2}}},
		{"it had one before", claim(2), claim(2), nil},
		{"its node has registered", claim(2), claim(2, 50), []span{{"Register", "NodeClaim", 2, 50}}},
		{"its node is initialized", claim(2, 50), claim(2, 50, 60), []span{{"Initialize", "NodeClaim", 50, 60}, {"NodeClaim", "", 0, 60}}},
		{"an update was missed", claim(2), claim(2, 50, 60),
			[]span{{"Register", "NodeClaim", 2, 50}, {"Initialize", "NodeClaim", 50, 60}, {"NodeClaim", "", 0, 60}}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var got []span
			for _, s := range claimSpans(tc.before, tc.now) {
				seconds := func(moment time.Time) int { return int(moment.Sub(after(0).Time).Seconds()) }
				got = append(got, span{s.Name, s.Parent, seconds(s.Start), seconds(s.End)})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPodSpan: only pods that waited for the server are in its trace.
func TestPodSpan(t *testing.T) {
	isController := true
	for _, tc := range []struct {
		reason string
		pod    metav1.ObjectMeta
		claim  *karpv1.NodeClaim
		waited bool
	}{
		{"the server was made for it", metav1.ObjectMeta{CreationTimestamp: after(-5)}, claim(2, 50, 60), true},
		{"it came while the server was installed", metav1.ObjectMeta{CreationTimestamp: after(30)}, claim(2, 50, 60), true},
		{"it is bound before the node is initialized", metav1.ObjectMeta{CreationTimestamp: after(-5)}, claim(2, 50), true},
		{"the node was there already", metav1.ObjectMeta{CreationTimestamp: after(70)}, claim(2, 50, 60), false},
		{"it is of a DaemonSet, and was made for the node", metav1.ObjectMeta{CreationTimestamp: after(51),
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Controller: &isController}}}, claim(2, 50, 60), false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: tc.pod}
			pod.Namespace, pod.Name = "default", "train"
			span, waited := podSpan(pod, tc.claim, testingclock.NewFakePassiveClock(after(61).Time))
			if waited != tc.waited {
				t.Fatalf("waited is %v, want %v", waited, tc.waited)
			}
			if waited && (span.Trace != "nodeclaim" || span.Name != "Pod default/train" || !span.Start.Equal(tc.pod.CreationTimestamp.Time) ||
				!span.End.Equal(after(61).Time)) {
				t.Errorf("the span is %+v", span)
			}
		})
	}
}
