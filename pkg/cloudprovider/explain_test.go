// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestDaemonSetsBeside: a pod that fits a server, and does not beside the DaemonSets, is told which of them takes what.
func TestDaemonSetsBeside(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	nodePool := f.nodePool()
	f.freeTwo(nodePool)
	tolerates := func(pod *corev1.PodSpec) {
		pod.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	for name, tc := range map[string]struct {
		reason string
		takes  []string
		change func(*corev1.PodSpec)
		asks   []string
		want   []string // parts of the message
	}{
		"Fits": {"there is room for both", []string{"cpu", "1"}, tolerates, []string{"nvidia.com/gpu", "1", "cpu", "50"}, nil},
		"TooMuchDisk": {"no pod of the tenant gets a server", []string{"ephemeral-storage", "30000Gi"}, tolerates,
			[]string{"nvidia.com/gpu", "1"},
			[]string{"NodeType " + f.nodeType + " is too small for the pod beside the DaemonSets: ephemeral-storage: a node has ",
				"the pod asks for 0, DaemonSet " + f.namespace + "/", " takes 30000Gi"}},
		"BothTooMuch": {"each alone would fit", []string{"cpu", "20"}, tolerates, []string{"nvidia.com/gpu", "1", "cpu", "50"},
			[]string{"cpu: a node has ", "the pod asks for 50, DaemonSet ", " takes 20"}},
		"Elsewhere": {"it runs on other nodes", []string{"cpu", "20"}, func(pod *corev1.PodSpec) {
			tolerates(pod)
			pod.NodeSelector = map[string]string{"example.com/other": "true"}
		}, []string{"nvidia.com/gpu", "1", "cpu", "50"}, nil},
		"PodTooBig": {"the DaemonSet is not the reason", []string{"cpu", "20"}, tolerates, []string{"nvidia.com/gpu", "1", "cpu", "500"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: strings.ToLower(name)}}
			daemonSet.Spec.Template.Labels = map[string]string{"app": "agent"}
			daemonSet.Spec.Selector = &metav1.LabelSelector{MatchLabels: daemonSet.Spec.Template.Labels}
			daemonSet.Spec.Template.Spec = podFor(nodePool, env.Resources(tc.takes...)).Spec
			daemonSet.Spec.Template.Spec.Containers[0].Name, daemonSet.Spec.Template.Spec.Containers[0].Image = "main", "agent"
			tc.change(&daemonSet.Spec.Template.Spec)
			if err := environment.Client.Create(f.ctx, daemonSet); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := environment.Client.Delete(f.ctx, daemonSet); err != nil {
					t.Error(err)
				}
			})
			got, err := f.daemonSetsBeside(t.Context(), podFor(nodePool, env.Resources(tc.asks...)),
				func(*appsv1.DaemonSet) *corev1.Pod { return nil })
			if err != nil || (got == "") != (len(tc.want) == 0) {
				t.Errorf("%s: %q, %v", tc.reason, got, err)
			}
			for _, part := range tc.want {
				if !strings.Contains(got, part) {
					t.Errorf("%s: %q does not say %q", tc.reason, got, part)
				}
			}
		})
	}
}
