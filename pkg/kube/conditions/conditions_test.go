// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTruncate(t *testing.T) {
	for name, tc := range map[string]struct {
		text, want string
		limit      int
	}{
		"Short": {"server", "server", 6},
		"Long":  {"a server of the rack", "a serv ...", 10},
		"Rune":  {"prüfung läuft", "pr ...", 7}, // the cut would be within ü
		"After": {"prüfung läuft", "prü ...", 8},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Truncate(tc.text, tc.limit); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	long := strings.Repeat("Fehler: ü€😀 ", 1000)
	for limit := 4; limit < 100; limit++ {
		if got := Truncate(long, limit); len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("limit %d: %d bytes, valid %v", limit, len(got), utf8.ValidString(got))
		}
	}
}

func TestSetAndFind(t *testing.T) {
	t.Run("Ours", func(t *testing.T) { setAndFind[metav1.Condition](t) })
	t.Run("Karpenter", func(t *testing.T) { setAndFind[status.Condition](t) })
}

func setAndFind[C Condition](t *testing.T) {
	first, later := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	condition := func(kind string, is metav1.ConditionStatus, reason string, since metav1.Time) metav1.Condition {
		return metav1.Condition{Type: kind, Status: is, Reason: reason, LastTransitionTime: since}
	}
	var list []C
	if found := Find(list, "Ready"); found != (metav1.Condition{}) {
		t.Errorf("found %v, want none", found)
	}
	for _, step := range []struct {
		reason  string
		set     metav1.Condition
		want    metav1.Condition
		changed bool
	}{
		{"it is new", condition("Ready", metav1.ConditionFalse, "A", first), condition("Ready", metav1.ConditionFalse, "A", first), true},
		{"nothing is different", condition("Ready", metav1.ConditionFalse, "A", later), condition("Ready", metav1.ConditionFalse, "A", first),
			false},
		{"the status stays", condition("Ready", metav1.ConditionFalse, "B", later), condition("Ready", metav1.ConditionFalse, "B", first), true},
		{"the status changes", condition("Ready", metav1.ConditionTrue, "C", later), condition("Ready", metav1.ConditionTrue, "C", later), true},
		{"another is added", condition("Other", metav1.ConditionTrue, "D", first), condition("Other", metav1.ConditionTrue, "D", first), true},
	} {
		if changed := Set(&list, step.set); changed != step.changed {
			t.Errorf("%s: changed %v, want %v", step.reason, changed, step.changed)
		}
		if got := Find(list, step.want.Type); got != step.want {
			t.Errorf("%s: got %v, want %v", step.reason, got, step.want)
		}
	}
	if len(list) != 2 {
		t.Errorf("%d conditions, want 2", len(list))
	}
}
