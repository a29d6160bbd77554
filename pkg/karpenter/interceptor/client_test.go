// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestCreateLeavesTheTemplate: core creates the NodeClaims of a NodePool in parallel, each with the maps of one template. A change of one
// must neither be in another nor be a concurrent write, which ends the program.
func TestCreateLeavesTheTemplate(t *testing.T) {
	shared := metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
		Finalizers: append(make([]string, 0, 2), "example.com/first")}
	want := shared.DeepCopy()
	c := NewClient(fake.NewFakeClient(), OnCreate(func(pod *corev1.Pod) {
		pod.Labels["changed"], pod.Annotations["changed"] = pod.Name, pod.Name
		pod.Finalizers = append(pod.Finalizers, "example.com/"+pod.Name)
	}))
	for _, name := range []string{"one", "two"} {
		pod := &corev1.Pod{ObjectMeta: shared}
		pod.Name = name
		if err := c.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if pod.Annotations["changed"] != name || pod.Labels["changed"] != name {
			t.Errorf("pod %s has %v", name, pod.ObjectMeta)
		}
	}
	if diff := cmp.Diff(want, &shared); diff != "" {
		t.Errorf("the template has changed (-want +got):\n%s", diff)
	}
	if behind := shared.Finalizers[:2][1]; behind != "" {
		t.Errorf("behind the finalizers of the template is %s", behind)
	}
}
