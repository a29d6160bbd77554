// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	// image is the one that the test packs. All would take minutes.
	image = "webhook"
	// password of testdata/cosign.key.
	password = "not-a-secret"
	plugin   = "kubectl-metal3"
)

// checkout is a commit of the files of this repository, as they are now.
type checkout struct {
	dir string
	// tag is the version of the charts, and chart the same as Helm has it.
	tag, chart string
}

func newCheckout(t *testing.T) checkout {
	t.Helper()
	c := checkout{dir: filepath.Join(t.TempDir(), "checkout")}
	for name := range strings.Lines(run(t, repository(t), nil, "git", "ls-files", "-co", "--exclude-standard")) {
		name = strings.TrimSuffix(name, "\n")
		content, err := os.ReadFile(filepath.Join(repository(t), name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(c.dir, name), content)
	}
	var chart struct{ Version, AppVersion string }
	content, err := os.ReadFile(filepath.Join(c.dir, "charts", "karpenter-metal3", "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, &chart); err != nil {
		t.Fatal(err)
	}
	c.chart, c.tag = chart.Version, chart.AppVersion
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}, {"commit", "--quiet", "--message=release"}, {"tag", c.tag}} {
		c.git(t, args...)
	}
	return c
}

// git runs it without the user's configuration, and as if it were always the same time.
func (c checkout) git(t *testing.T, args ...string) {
	t.Helper()
	run(t, c.dir, []string{"HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z",
		"GIT_COMMITTER_DATE=2026-01-02T03:04:05Z"}, "git", args...)
}

// make runs a target on the image and the plugin alone.
func (c checkout) make(t *testing.T, environment []string, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"IMAGES=" + image, "RELEASE_PLATFORMS=linux/amd64 linux/arm64"}, args...)
	command := exec.CommandContext(t.Context(), "make", args...)
	command.Dir = c.dir
	command.Env = slices.Concat(os.Environ(), []string{"MAKEFLAGS=", "COSIGN_KEY=", "COSIGN_PASSWORD=",
		"KUBEBUILDER_ASSETS=" + filepath.Join(repository(t), "bin")}, environment)
	output, err := command.CombinedOutput()
	return string(output), err
}

// release is what `make release` and `make release-sign` make, with the key in testdata.
func (c checkout) release(t *testing.T) dist {
	t.Helper()
	if output, err := c.make(t, nil, "release"); err != nil || strings.Count(output, "nothing is signed yet") != 1 {
		t.Fatalf("make release: %v\n%s", err, output)
	}
	if output, err := c.make(t, signed(t), "release-sign"); err != nil {
		t.Fatalf("make release-sign: %v\n%s", err, output)
	}
	return dist(filepath.Join(c.dir, "dist"))
}

// signed is the environment in which a release is signed.
func signed(t *testing.T) []string {
	t.Helper()
	key, err := filepath.Abs(filepath.Join("testdata", "cosign.key"))
	if err != nil {
		t.Fatal(err)
	}
	return []string{"COSIGN_KEY=" + key, "COSIGN_PASSWORD=" + password}
}

// dist is the folder of a release.
type dist string

// sums are those of its files, by name.
func (d dist) sums(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(string(d))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, entry := range entries {
		all[entry.Name()] = sum(d.read(t, entry.Name()))
	}
	return all
}

func (d dist) read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(string(d), name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func sum(content []byte) string {
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:])
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	mode := os.FileMode(0o644)
	if bytes.HasPrefix(content, []byte("#!")) {
		mode = 0o755
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
}

// run runs a command that must not fail, and returns what it prints.
func run(t *testing.T, dir string, environment []string, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir, command.Env = dir, append(os.Environ(), environment...)
	var problems bytes.Buffer
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, output, problems.String())
	}
	return string(output)
}

func repository(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
