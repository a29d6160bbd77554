// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestRecreatingEvicted(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		foreign bool
		event   *corev1.Event
		want    bool
	}{
		"Evicted": {reason: "kube-controller-manager has seen a taint that is gone",
			event: &corev1.Event{Reason: reasonEvicted, InvolvedObject: corev1.ObjectReference{UID: "first"}}, want: true},
		"Deleted": {reason: "a test deletes its pods"},
		"Before": {reason: "it was deleted after it was created again",
			event: &corev1.Event{Reason: reasonEvicted, InvolvedObject: corev1.ObjectReference{UID: "earlier"}}},
		"OtherEvent": {reason: "a node that is drained evicts, and tests see it",
			event: &corev1.Event{Reason: "Evicted", InvolvedObject: corev1.ObjectReference{UID: "first"}}},
		"Foreign": {reason: "its ReplicaSet creates another", foreign: true,
			event: &corev1.Event{Reason: reasonEvicted, InvolvedObject: corev1.ObjectReference{UID: "first"}}},
	} {
		t.Run(name, func(t *testing.T) {
			plain := fake.NewFakeClient()
			c := RecreatingEvicted(plain)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: types.UID("first")},
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
			if tc.want && got.Spec.NodeName != "node" {
				t.Errorf("it is another pod: %v", got)
			}
		})
	}
}
