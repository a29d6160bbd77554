// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
)

// TestNodeProfile: a Machine that was made by hand registers with its profile. That of a NodeClaim has it from there, and its join
// says nothing more.
func TestNodeProfile(t *testing.T) {
	alias := v1alpha1.ReferenceKey(v1alpha1.NodeProfileLabelKey)
	taint := func(key string) corev1.Taint { return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule} }
	for name, tc := range map[string]struct {
		reason  string
		claim   bool
		profile string
		labels  map[string]string
		taints  []string
		applied string
	}{
		"ByHand": {reason: "no pod may run there before", labels: map[string]string{"rack": "a", "team": "blue", "class": "gpu",
			v1alpha1.NodeProfileLabelKey: "*", alias: "*"}, taints: []string{"gpu", "boot"},
			applied: `{"profile":"*","labels":["class","karpenter.metal3.io/node-profile","` + alias + `"],"taints":["gpu:NoSchedule"],` +
				`"startupTaints":["boot:NoSchedule"]}`},
		"NodeClaim": {reason: "Karpenter has planned with it", claim: true, labels: map[string]string{"rack": "a", "team": "blue"},
			taints: []string{"karpenter.sh/unregistered"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			profile := &v1alpha1.NodeProfile{ObjectMeta: metav1.ObjectMeta{Name: w.cluster.Namespace}, Spec: v1alpha1.NodeProfileSpec{
				// A kubelet that is told to set the second one does not start.
				NodeLabels: map[string]string{"class": "gpu", "node-role.kubernetes.io/gpu": ""},
				Taints:     []corev1.Taint{taint("gpu")}, StartupTaints: []corev1.Taint{taint("boot")},
			}}
			if err := environment.Client.Create(t.Context(), profile); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := environment.Client.Delete(w.Context(), profile); err != nil {
					t.Log(err)
				}
			})
			machine := w.get()
			machine.Spec.ProfileRef = &v1alpha1.NameReference{Name: profile.Name}
			if !tc.claim {
				delete(machine.Labels, v1alpha1.NodeClaimLabelKey)
			}
			if err := environment.Client.Update(t.Context(), machine); err != nil {
				t.Fatal(err)
			}
			w.reconcile()
			join := w.mustHaveJoin()
			for key, value := range tc.labels {
				tc.labels[key] = strings.ReplaceAll(value, "*", profile.Name)
			}
			if diff := cmp.Diff(tc.labels, join.Labels); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			var taints []string
			for _, taint := range join.Taints {
				taints = append(taints, taint.Key)
			}
			if diff := cmp.Diff(tc.taints, taints); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			want := strings.ReplaceAll(tc.applied, "*", profile.Name)
			if got := w.get().Annotations[v1alpha1.NodeProfileAppliedAnnotationKey]; got != want {
				t.Errorf("%s: it records %s\nwant %s", tc.reason, got, want)
			}
			if diff := cmp.Diff(map[string]string{"team": "blue"}, w.get().Spec.Labels); diff != "" {
				t.Errorf("the spec of the Machine was written (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoNodeProfile: without its profile, a server gets no join.
func TestNoNodeProfile(t *testing.T) {
	w := newFixture(t)
	machine := w.get()
	delete(machine.Labels, v1alpha1.NodeClaimLabelKey)
	machine.Spec.ProfileRef = &v1alpha1.NameReference{Name: "missing"}
	if err := environment.Client.Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	_, err := w.controller(&faults.Connection{}).Reconcile(t.Context(), w.get())
	if err == nil || !strings.Contains(err.Error(), `there is no NodeProfile "missing"`) {
		t.Errorf("the error is %v", err)
	}
	if w.get().Spec.Bootstrap.DataSecretName != "" {
		t.Error("it may join")
	}
}
