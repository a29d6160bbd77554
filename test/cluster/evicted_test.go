// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// evicted is the event that kube-controller-manager writes: it has no UID of the pod.
func evicted(pod string, after time.Duration) *corev1.Event {
	return &corev1.Event{Reason: reasonEvicted, Count: 1, LastTimestamp: metav1.NewTime(created.Add(after)),
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: pod}}
}

var created = metav1.NewTime(time.Unix(1_800_000_000, 0))

func TestRecreatingEvicted(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		foreign bool
		event   *corev1.Event
		want    bool
	}{
		"Evicted": {reason: "kube-controller-manager has seen a taint that is gone", event: evicted("pod", time.Second), want: true},
		"Deleted": {reason: "a test deletes its pods"},
		"Before":  {reason: "a pod of that name was evicted earlier", event: evicted("pod", -time.Minute)},
		"Other":   {reason: "another pod was evicted", event: evicted("other", time.Second)},
		"OtherEvent": {reason: "a node that is drained evicts, and tests see it",
			event: &corev1.Event{Reason: "Evicted", InvolvedObject: corev1.ObjectReference{Name: "pod"}, Count: 1}},
		"Foreign": {reason: "its ReplicaSet creates another", foreign: true, event: evicted("pod", time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			plain := fake.NewFakeClient()
			c := RecreatingEvicted(plain)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: types.UID("first"), CreationTimestamp: created},
				Spec: corev1.PodSpec{NodeName: "node"}}
			creator := client.Client(c)
			if tc.foreign {
				creator = plain
			}
			if err := creator.Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			if err := plain.Delete(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			if tc.event != nil {
				tc.event.Namespace, tc.event.Name = "default", "event"
				if err := plain.Create(t.Context(), tc.event); err != nil {
					t.Fatal(err)
				}
			}
			got := &corev1.Pod{}
			err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), got)
			if (err == nil) != tc.want || (!tc.want && !apierrors.IsNotFound(err)) {
				t.Fatalf("%s: got error %v, want a pod: %v", tc.reason, err, tc.want)
			}
			if !tc.want {
				return
			}
			if got.Spec.NodeName != "node" {
				t.Errorf("it is another pod: %v", got)
			}
			if err := plain.Delete(t.Context(), got); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), got); !apierrors.IsNotFound(err) {
				t.Errorf("a pod that a test deletes comes back once it was evicted: %v", err)
			}
		})
	}
}
