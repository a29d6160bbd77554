// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// others are the groups of kinds that other projects define.
var others = []string{"monitoring.coreos.com", "cert-manager.io"}

// TestAPIServer: a real API server accepts every object under strict field validation, and the pods in a namespace with
// the restricted Pod Security Standard.
func TestAPIServer(t *testing.T) {
	for _, name := range []string{namespace, "servers", "metal3-system"} {
		if err := environment.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	strict := client.WithFieldValidation(environment.Client, metav1.FieldValidationStrict)
	for name, tc := range releases {
		t.Run(name, func(t *testing.T) {
			taken := 0
			for _, object := range render(t, tc.chart, tc.flags...) {
				if slices.Contains(others, object.GroupVersionKind().Group) {
					continue
				}
				//lint:ignore SA1019 what is applied is no type of ours, and another call takes none
				if err := strict.Patch(t.Context(), object.DeepCopy(), client.Apply, client.DryRunAll, client.ForceOwnership,
					client.FieldOwner("helm")); err != nil {
					t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
				}
				taken++
				if object.GetKind() != "Deployment" {
					continue
				}
				template := convert[appsv1.Deployment](t, object).Spec.Template
				pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
				pod.Namespace, pod.Name = namespace, object.GetName()
				if err := strict.Create(t.Context(), pod, client.DryRunAll); err != nil {
					t.Errorf("pod of %s: %v", object.GetName(), err)
				}
			}
			if taken == 0 {
				t.Error("nothing was asked")
			}
		})
	}
	// Otherwise the test would check nothing.
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bare"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if err := strict.Create(t.Context(), bare, client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "restricted") {
		t.Errorf("a pod without any security is taken: %v", err)
	}
}
