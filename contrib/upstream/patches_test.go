// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// module is what the patches are for.
const module = "sigs.k8s.io/karpenter"

// tools has a module whose go.mod has all that Karpenter's own tests import.
var tools = filepath.Join("..", "..", "tools", "upstream")

// TestPatchesApply applies each patch to Karpenter as go.mod has it, without the others and after those before it.
func TestPatchesApply(t *testing.T) {
	karpenter := moduleDir(t)
	all := patches(t)
	stacked := t.TempDir()
	for n, name := range all {
		content := read(t, name)
		if number := fmt.Sprintf("%04d-", n+1); !strings.HasPrefix(name, number) {
			t.Errorf("%s is not patch %s: number them without gaps", name, number)
		}
		for _, part := range []string{"From: karpenter-provider-metal3 <", "\n**What**\n", "\n**Why**\n", "\n**How was this change tested?**\n"} {
			if !strings.Contains(content, part) {
				t.Errorf("%s lacks %q", name, part)
			}
		}
		if !slices.ContainsFunc(touched(content), func(file string) bool { return strings.HasSuffix(file, "_test.go") }) {
			t.Errorf("%s has no test", name)
		}
		alone := t.TempDir()
		for _, dir := range []string{alone, stacked} {
			for _, file := range touched(content) {
				copyMissing(t, filepath.Join(karpenter, file), filepath.Join(dir, file))
			}
			if output, err := apply(t, dir, name); err != nil {
				t.Errorf("%s does not apply to %s (alone: %v), %v:\n%s", name, karpenter, dir == alone, err, output)
			}
		}
	}
}

// row is a row of the tables of changes: the code in the first cell, the others as they are.
var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+) \\|$")

// TestREADME compares the table with the one of pkg/karpenter, and with the patches.
func TestREADME(t *testing.T) {
	var want, got, named []string
	for _, match := range row.FindAllStringSubmatch(read(t, filepath.Join("..", "..", "pkg", "karpenter", "README.md")), -1) {
		want = append(want, match[1])
	}
	for _, match := range row.FindAllStringSubmatch(read(t, "README.md"), -1) {
		got = append(got, match[1])
		cells := strings.Split(match[2], " | ")
		if len(cells) != 2 || slices.ContainsFunc(cells, func(cell string) bool { return strings.TrimSpace(cell) == "" }) {
			t.Errorf("not three cells with text: %s", match[0])
		}
		for _, link := range regexp.MustCompile(`\]\((\d{4}-[^)]+\.patch)\)`).FindAllStringSubmatch(match[2], -1) {
			named = append(named, link[1])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the tables have other rows (-pkg/karpenter +README.md):\n%s", diff)
	}
	slices.Sort(named)
	if diff := cmp.Diff(patches(t), slices.Compact(named)); diff != "" {
		t.Errorf("the table has other patches than the folder (-folder +README.md):\n%s", diff)
	}
}

// everything is the environment variable that has the test files of all patches run, and not those of one package only.
const everything = "UPSTREAM_PATCHES"

// TestPatchesPass runs the specs in the test files that the patches change, on Karpenter with all patches. Core's own suites take long, so
// make test-system runs those of one package, and make upstream-patches all.
func TestPatchesPass(t *testing.T) {
	system.Only(t)
	patched := filepath.Join(t.TempDir(), "karpenter")
	if err := os.CopyFS(patched, os.DirFS(moduleDir(t))); err != nil {
		t.Fatal(err)
	}
	for _, name := range patches(t) {
		if output, err := apply(t, patched, name); err != nil {
			t.Fatalf("%s, %v:\n%s", name, err, output)
		}
	}
	modules := t.TempDir()
	for _, file := range []string{"go.mod", "go.sum"} {
		content := read(t, filepath.Join(tools, file))
		if file == "go.mod" {
			content += fmt.Sprintf("\nreplace %s => %s\n", module, patched)
		}
		if err := os.WriteFile(filepath.Join(modules, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	assets, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	specs := map[string][]string{}
	for _, name := range patches(t) {
		for _, file := range touched(read(t, name)) {
			if strings.HasSuffix(file, "_test.go") {
				specs[path.Dir(file)] = append(specs[path.Dir(file)], "-ginkgo.focus-file="+path.Base(file))
			}
		}
	}
	if os.Getenv(everything) == "" {
		const claims = "pkg/scheduling/dynamicresources"
		specs = map[string][]string{claims: specs[claims]}
	}
	for _, dir := range slices.Sorted(maps.Keys(specs)) {
		t.Run(dir, func(t *testing.T) {
			arguments := []string{"test", "-modfile", filepath.Join(modules, "go.mod"), "-vet=off", "-count=1", "-timeout=40m",
				module + "/" + dir, "-args"}
			command := exec.CommandContext(t.Context(), "go", append(arguments, specs[dir]...)...)
			command.Dir, command.Env = tools, append(os.Environ(), "KUBEBUILDER_ASSETS="+assets, "KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=5m")
			if output, err := command.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

// moduleDir is where Karpenter's source is.
func moduleDir(t *testing.T) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	command.Stderr = os.Stderr
	dir, err := command.Output()
	if err != nil {
		t.Fatalf("go list -m %s, %v", module, err)
	}
	return strings.TrimSpace(string(dir))
}

func patches(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("*.patch")
	if err != nil || len(names) == 0 {
		t.Fatalf("no patches, %v", err)
	}
	return names
}

var header = regexp.MustCompile(`(?m)^diff --git a/(\S+) b/\S+$`)

// touched are the files that a patch changes.
func touched(patch string) (files []string) {
	for _, match := range header.FindAllStringSubmatch(patch, -1) {
		files = append(files, match[1])
	}
	return files
}

// apply applies a patch in dir, which is no repository of git.
func apply(t *testing.T, dir, name string) ([]byte, error) {
	t.Helper()
	patch, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "git", "apply", patch)
	command.Dir, command.Env = dir, append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	return command.CombinedOutput()
}

// copyMissing copies a file that is not there yet, and may be new with the patch.
func copyMissing(t *testing.T, from, target string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if os.IsNotExist(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(target); err == nil {
		return
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
