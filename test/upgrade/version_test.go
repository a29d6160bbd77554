// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/release/published"
)

// earlier is the commit of the version that is upgraded.
const earlier = "7cb4001f987f25990dcbab6063b6a2debdb97072"

// version is one version of this project.
type version struct {
	name string
	// charts and programs are folders. Images of a release are unpacked into the second, and its charts are in none.
	charts, programs string
	// release is one that is in a registry.
	release *published.Release
	// architecture is that of the images whose programs run, and emulator what runs these, if it is not that of this machine.
	architecture string
	emulator     []string
}

// released is a release that is in a registry.
func released(t *testing.T, release published.Release) version {
	t.Helper()
	return version{name: "release " + release.Version, programs: t.TempDir(), release: &release, architecture: runtime.GOARCH}
}

// command is what runs a program of the version, for a Deployment that has an image.
func (v version) command(t *testing.T, program, image string) []string {
	t.Helper()
	if v.release == nil {
		return []string{filepath.Join(v.programs, program)}
	}
	if want := v.release.Image(program); image != want {
		t.Errorf("the Deployment of the %s has the image %s, want %s", program, image, want)
	}
	// The program runs longer than a part of the test.
	dir, err := os.MkdirTemp(v.programs, program+"-")
	if err != nil {
		t.Fatal(err)
	}
	return append(slices.Clone(v.emulator), published.Pull(t, image, v.architecture, dir))
}

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
