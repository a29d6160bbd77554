// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxSteps of the walk of one pod: more are too many to remember.
const maxSteps = 12

var step = regexp.MustCompile("`([\\w./-]+\\.go)` (\\w+)")

// TestWalk: docs/architecture.md follows one pod by file and function. Each of them is there. A file without a folder is in one that is
// named before.
func TestWalk(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "## One pod through the code\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("docs/architecture.md does not follow a pod")
	}
	steps, named := 0, 0
	var folders []string
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| #") {
			continue
		}
		steps++
		for _, match := range step.FindAllStringSubmatch(line, -1) {
			named++
			file, function := match[1], match[2]
			if folder := path.Dir(file); folder != "." {
				folders = append(folders, folder)
			}
			if !defines(t, folders, path.Base(file), function) {
				t.Errorf("step %d: %s has no function %s, in %v", steps, file, function, folders)
			}
		}
	}
	if steps == 0 || named < steps {
		t.Fatalf("%d steps name %d functions", steps, named)
	}
	if steps > maxSteps {
		t.Errorf("%d steps, want at most %d", steps, maxSteps)
	}
}

// defines returns whether a file of that name in one of the folders has the function.
func defines(t *testing.T, folders []string, file, function string) bool {
	t.Helper()
	declaration := regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + function + `[\[(]`)
	for _, folder := range folders {
		source, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(folder), file))
		if err == nil && declaration.Match(source) {
			return true
		}
	}
	return false
}
