// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// printed is what is printed of events, one a second.
func printed(t *testing.T, lines string, then func(*printer)) (text string, failed bool) {
	t.Helper()
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := newPrinter(&out, func() time.Time { return now })
	for line := range strings.Lines(lines) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		now = now.Add(time.Second)
		p.handle(e)
	}
	then(p)
	return out.String(), p.failed()
}

func TestPrint(t *testing.T) {
	const m = modulePath
	cases := map[string]struct {
		reason string
		events string
		want   string
		failed bool
	}{
		"Passed": {
			reason: "A package is one line, and the last line counts; tests of the other tier are not counted as skipped.",
			events: `{"Action":"run","Package":"` + m + `pkg/a","Test":"TestA"}
{"Action":"output","Package":"` + m + `pkg/a","Test":"TestA","Output":"chatter\n"}
{"Action":"pass","Package":"` + m + `pkg/a","Test":"TestA","Elapsed":1}
{"Action":"run","Package":"` + m + `pkg/a","Test":"TestB"}
{"Action":"skip","Package":"` + m + `pkg/a","Test":"TestB"}
{"Action":"run","Package":"` + m + `pkg/a","Test":"TestC"}
{"Action":"output","Package":"` + m + `pkg/a","Test":"TestC","Output":"    a_test.go:1: ` + system.Skipped + `\n"}
{"Action":"skip","Package":"` + m + `pkg/a","Test":"TestC"}
{"Action":"pass","Package":"` + m + `pkg/a","Elapsed":62.5}
{"Action":"skip","Package":"` + m + `pkg/none"}
`,
			want: "ok        1m02s  pkg/a, 2 tests, 1 skipped, 1 left to make test-system\n" +
				"1 other tests are left to make test-system\nDONE 2 tests, 1 skipped, 0 failed in 10.0s\n",
		},
		"Failed": {
			reason: "A failed test is shown with what it has printed, and no other one.",
			events: `{"Action":"run","Package":"` + m + `pkg/a","Test":"TestA"}
{"Action":"output","Package":"` + m + `pkg/a","Test":"TestA","Output":"want 1\n"}
{"Action":"fail","Package":"` + m + `pkg/a","Test":"TestA","Elapsed":3}
{"Action":"output","Package":"` + m + `pkg/a","Output":"FAIL\n"}
{"Action":"fail","Package":"` + m + `pkg/a","Elapsed":3}
`,
			want: "=== FAILED pkg/a: TestA (3.0s)\nwant 1\nFAILED     3.0s  pkg/a, 1 tests, 1 failed\n" +
				"FAILED pkg/a: TestA\n  want 1\nDONE 1 tests, 0 skipped, 1 failed in 5.0s\n",
			failed: true,
		},
		"FailedWithLongLog": {
			reason: "The first lines of a failed test are repeated at the end, cut, without those of the testing package.",
			events: `{"Action":"output","Package":"` + m + `pkg/a","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"` + m + `pkg/a","Test":"TestA","Output":"` + strings.Repeat("x", 500) + `\n"}
{"Action":"output","Package":"` + m + `pkg/a","Test":"TestA","Output":"` + strings.Repeat(`y\n`, 20) + `"}
{"Action":"fail","Package":"` + m + `pkg/a","Test":"TestA","Elapsed":3}
{"Action":"fail","Package":"` + m + `pkg/a","Elapsed":3}
`,
			want: "=== FAILED pkg/a: TestA (3.0s)\n=== RUN   TestA\n" + strings.Repeat("x", 500) + "\n" + strings.Repeat("y\n", 20) +
				"FAILED     3.0s  pkg/a, 1 tests, 1 failed\n" +
				"FAILED pkg/a: TestA\n  " + strings.Repeat("x", 400) + strings.Repeat("\n  y", 15) +
				"\nDONE 1 tests, 0 skipped, 1 failed in 5.0s\n",
			failed: true,
		},
		"DoesNotCompile": {
			reason: "Compiler errors are printed.",
			events: `{"ImportPath":"` + m + `pkg/a [` + m + `pkg/a.test]","Action":"build-output","Output":"a_test.go:1:1: undefined: x\n"}
{"ImportPath":"` + m + `pkg/a [` + m + `pkg/a.test]","Action":"build-fail"}
{"Action":"start","Package":"` + m + `pkg/a"}
{"Action":"fail","Package":"` + m + `pkg/a","Elapsed":0,"FailedBuild":"` + m + `pkg/a [` + m + `pkg/a.test]"}
`,
			want: "=== FAILED pkg/a\na_test.go:1:1: undefined: x\nFAILED     0.0s  pkg/a, 0 tests\n" +
				"FAILED pkg/a\nDONE 1 tests, 0 skipped, 1 failed in 4.0s\n",
			failed: true,
		},
		"TimesOut": {
			reason: "The test that was running is named.",
			events: `{"Action":"run","Package":"` + m + `pkg/a","Test":"TestA"}
{"Action":"output","Package":"` + m + `pkg/a","Test":"TestA","Output":"panic: test timed out\n"}
{"Action":"output","Package":"` + m + `pkg/a","Output":"FAIL pkg/a\n"}
{"Action":"fail","Package":"` + m + `pkg/a","Elapsed":9}
`,
			want: "=== FAILED pkg/a\nFAIL pkg/a\n=== TestA was running:\npanic: test timed out\nFAILED     9.0s  pkg/a, 0 tests\n" +
				"FAILED pkg/a\nDONE 1 tests, 0 skipped, 1 failed in 4.0s\n",
			failed: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, failed := printed(t, tc.events, (*printer).finish)
			if diff := cmp.Diff(tc.want, got); diff != "" || failed != tc.failed {
				t.Errorf("%s\nfailed: %t, want %t (-want +got)\n%s", tc.reason, failed, tc.failed, diff)
			}
		})
	}
}

func TestPrintRunning(t *testing.T) {
	events := `{"Action":"start","Package":"` + modulePath + `test/e2e"}
{"Action":"run","Package":"` + modulePath + `test/e2e","Test":"TestWaits"}
{"Action":"pause","Package":"` + modulePath + `test/e2e","Test":"TestWaits"}
{"Action":"run","Package":"` + modulePath + `test/e2e","Test":"TestLong"}
{"Action":"run","Package":"` + modulePath + `test/e2e","Test":"TestLong/Part"}
{"Action":"start","Package":"` + modulePath + `pkg/a"}
{"Action":"run","Package":"` + modulePath + `pkg/a","Test":"TestA"}
`
	got, _ := printed(t, events, (*printer).running)
	want := "...        6.0s  test/e2e is running: TestLong for 3.0s\n...        1.0s  pkg/a is running: TestA for 0.0s\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
