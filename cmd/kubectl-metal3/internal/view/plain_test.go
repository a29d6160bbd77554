// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func TestPlain(t *testing.T) {
	for name, tc := range map[string]struct{ reason, text, want string }{
		"text":      {"nothing is taken", "a  “b” é 服务器 ✗ →", "a  “b” é 服务器 ✗ →"},
		"line":      {"it is one", "a\r\n\tb\vc\u2028d\u2029e\u0085f", "a b c d e f"},
		"cursor":    {"it does not move", "a\x1b[2K\x1b[1Ab", "ab"},
		"clipboard": {"it stays as it is", "a\x1b]52;c;Y3Vy\ab\x1b]0;title\x1b\\c", "abc"},
		"C1":        {"as a rune, and as a byte", "a\u009b2Kb\x9b2Kc", "a 2Kbc"},
		"direction": {"it does not turn", "a\u202eb\u2066c\u200fd\u061ce", "a b c d e"},
		"half":      {"a sequence that does not end", "a\x1b", "a"},
		"hidden":    {"a sequence that another one would make", "a\x1b\u200b[2Kb", "a [2Kb"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Plain(tc.text); got != tc.want || strings.ContainsFunc(got, unseen) {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
	if got := Shown(strings.Repeat("é", 3*maxShown)); got != strings.Repeat("é", maxShown-1)+"…" {
		t.Errorf("Shown returns %d bytes", len(got))
	}
	if got := PlainLines("a\n\tb\x1b[2Kc\u202e\n"); got != "a\n\tb [2Kc \n" {
		t.Errorf("PlainLines returns %q", got)
	}
}

func TestPlainAll(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a\nb", Annotations: map[string]string{"k\x1b": "v\n", "x": "y"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c\t", Resources: corev1.ResourceRequirements{
			Limits: env.Resources("cpu", "2")}}}, SecurityContext: &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Value: "\x1b[2Kd"}}}},
	}
	want := pod.DeepCopy()
	want.Name, want.Annotations = "a b", map[string]string{"k": "v", "x": "y"}
	want.Spec.Containers[0].Name, want.Spec.SecurityContext.Sysctls[0].Value = "c", "d"
	PlainAll(pod)
	if diff := cmp.Diff(want, pod); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	value := map[string]any{"a": []any{"b\n", 1.0, nil, map[string]any{"c": "\ad"}}}
	PlainAll(value)
	if diff := cmp.Diff(map[string]any{"a": []any{"b", 1.0, nil, map[string]any{"c": "d"}}}, value); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
