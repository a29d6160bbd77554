// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDeflake runs hack/deflake.sh, which make deflake calls.
func TestDeflake(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		environment []string
		fails       bool
		want        []string
	}{
		"Fails": {
			reason: "the third run fails: its log and its seed are printed",
			fails:  true,
			want:   []string{"ok: run 2 of ", ", 1 tests passed, ", "it is the third time", "FAIL: run 3 of ", "SEED="},
		},
		"Passes": {
			reason:      "no run fails within the bound",
			environment: []string{"COUNT=2", "SEED=7"},
			want:        []string{"ok: run 1 of ", ", seed 7\n", "ok: run 2 of "},
		},
		"RunsNothing": {
			reason:      "tests that do not run cannot fail",
			environment: []string{"COUNT=1", "RUN=TestOther"},
			fails:       true,
			want:        []string{"error: no test of ./test/run/testdata/flaky has run: RUN is TestOther"},
		},
		"NoPackage": {
			reason:      "there is nothing to run",
			environment: []string{"PKG="},
			fails:       true,
			want:        []string{"usage: make deflake PKG="},
		},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(filepath.Join("..", "..", "hack", "deflake.sh"))
			command.Env = append(os.Environ(), "FLAKY_RUNS="+t.TempDir(), "PKG=./test/run/testdata/flaky", "LOAD=1")
			command.Env = append(command.Env, tc.environment...)
			command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			output, err := command.CombinedOutput()
			if (err != nil) != tc.fails {
				t.Errorf("it ended with %v: %s", err, tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(output), want) {
					t.Errorf("it does not print %q: %s", want, tc.reason)
				}
			}
			if err := syscall.Kill(-command.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("it has left processes running (%v)", err)
			}
			if t.Failed() {
				t.Logf("its output:\n%s", output)
			}
		})
	}
}
