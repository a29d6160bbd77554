// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake puts a script in the place of docker.
func fake(t *testing.T, script string) {
	t.Helper()
	before := program
	t.Cleanup(func() { program = before })
	program = filepath.Join(t.TempDir(), "docker")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestRun(t *testing.T) {
	fake(t, `case $1 in
images) echo "$@"; echo;;
import) cat;;
logs) echo out; echo err >&2;;
*) echo "docker: Error response from daemon: no such thing." >&2; echo >&2; echo "Run 'docker run --help' for more information" >&2; exit 125;;
esac`)
	if output, err := Run(t.Context(), "images", "-q"); err != nil || output != "images -q" {
		t.Errorf("it returns %q, %v", output, err)
	}
	if output, err := Feed(t.Context(), strings.NewReader("a tar"), "import", "-"); err != nil || output != "a tar" {
		t.Errorf("of what it is given it returns %q, %v", output, err)
	}
	want := "docker run has failed, exit status 125: docker: Error response from daemon: no such thing."
	if _, err := Run(t.Context(), "run", "image"); err == nil || err.Error() != want {
		t.Errorf("the error is\n%v, want\n%s", err, want)
	}
	if tail := Tail(t.Context(), "one", 5); tail != "  out\n  err" {
		t.Errorf("the end of a log is %q", tail)
	}
}

func TestStopped(t *testing.T) {
	fake(t, "exec sleep 1000")
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := Run(ctx, "ps"); !errors.Is(err, cause) {
		t.Errorf("the error is %v", err)
	}
}

func TestNoDocker(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := Check(t.Context()); err == nil || !strings.Contains(err.Error(), "is not in PATH: install Docker") {
		t.Errorf("there is no docker, and the error is %v", err)
	}
}
