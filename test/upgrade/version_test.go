// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
)

// earlier is the commit of the version that is upgraded.
const earlier = "f4f59a3dda5c7ffbae6fa4646c9c385e8e616524"

// version has the folders of one version of this project.
type version struct{ name, charts, programs string }

// present is the version of this checkout.
func present(t *testing.T) version {
	t.Helper()
	return version{name: "the present version", charts: absolute(t, "../../charts"), programs: absolute(t, "../../bin")}
}

// build takes a version out of the history and builds its programs, as "make build" does. It skips the test if the history has no such
// commit.
func build(t *testing.T, commit string) version {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", commit+"^{commit}").Run(); errors.As(err, new(*exec.ExitError)) {
		t.Skipf("the history of this checkout does not have the commit %s, for example because the clone is shallow", commit)
	} else if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	run(t, "bash", "-euo", "pipefail", "-c", `mkdir "$1"; git -C ../.. archive "$0" | tar -x -C "$1"`, commit, source)
	v := version{name: "version " + commit[:7], charts: filepath.Join(source, "charts"), programs: filepath.Join(dir, "bin")}
	run(t, "env", "CGO_ENABLED=0", "go", "-C", source, "build", "-trimpath", "-buildvcs=false", "-o", v.programs+"/",
		"./cmd/manager", "./cmd/provider", "./cmd/webhook")
	return v
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
}
