// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// withAliases are the files that have keys of the reference: the table, the pages about the reference, and the YAML that tests take from
// it, or that an earlier version is installed with.
var withAliases = []string{
	"docs/migration.md", "docs/reference-snippets.md", "pkg/apis/v1alpha1/aliases.go", "test/snippets/", "test/upgrade/testdata/",
	"test/webhooks/testdata/no-effect-", "test/webhooks/testdata/reference/",
}

// TestKeys: keys of the reference are nowhere but there, and in each of these places they are.
func TestKeys(t *testing.T) {
	command := exec.Command("git", "grep", "-I", "-n", "-E", `(^|[^/])\b`+regexp.QuoteMeta(v1alpha1.ReferenceDomain)+"/")
	command.Dir = root()
	found, err := command.Output()
	if err != nil {
		t.Fatalf("git grep, %v", err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(found)) {
		file, _, _ := strings.Cut(line, ":")
		index := slices.IndexFunc(withAliases, func(place string) bool { return strings.HasPrefix(file, place) })
		if index < 0 {
			t.Errorf("a key of the reference, write ours: %s", strings.TrimSpace(line))
			continue
		}
		seen[withAliases[index]] = true
	}
	if len(seen) != len(withAliases) {
		t.Errorf("of %v only %v have keys of the reference", withAliases, seen)
	}
}

// TestAliases: docs/migration.md has each key and its alias.
func TestAliases(t *testing.T) {
	page, all := read(t, "docs/migration.md"), v1alpha1.Aliases()
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `("+regexp.QuoteMeta(v1alpha1.Group)+"/[^`]+)` \\|").FindAllStringSubmatch(page, -1)
	written := map[string]string{}
	for _, row := range rows {
		written[row[2]] = row[1]
	}
	if !maps.Equal(written, all) {
		var want strings.Builder
		for _, key := range slices.Sorted(maps.Keys(all)) {
			fmt.Fprintf(&want, "| `%s` | `%s` |\n", all[key], key)
		}
		t.Errorf("the table of docs/migration.md is to be:\n%s", want.String())
	}
}
