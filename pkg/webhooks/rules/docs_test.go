// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// joined is what stands between two literals that are concatenated.
var joined = regexp.MustCompile("(\" ?\\+\\s+\")|(` ?\\+\\s+`)")

// TestDocs holds docs/webhook-messages.md to what is said: each rule is in it, and each message of its tables is a rule's, a
// schema's or one that kubectl has printed.
func TestDocs(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	read := func(patterns ...string) string {
		var all strings.Builder
		for _, pattern := range patterns {
			files, err := filepath.Glob(filepath.Join(root, pattern))
			if err != nil || len(files) == 0 {
				t.Fatalf("no files %s (%v)", pattern, err)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				all.Write(text)
			}
		}
		// Go source breaks long messages into literals that are concatenated.
		return joined.ReplaceAllString(all.String(), "")
	}
	docs := read("docs/webhook-messages.md")
	for _, rule := range []Rule{RulePinning, RuleHostSelector, RuleNodeTypeSelector, RuleResources, RuleProperties, RuleReferences, RuleInUse,
		RuleNames,
		RuleNodes, RuleTemplate, RuleSSHKey, RuleAllowed, RuleNodeProfile, RuleQuota, RuleNamespaces, RuleDevices, RuleDeadline,
		RuleKubeletArgs, RulePodClaims, RulePodResources, RuleImmutable, RuleNoEffect, RuleSpelling, RuleTopology, RuleMirrors} {
		if !strings.Contains(docs, "`"+string(rule)+"`") {
			t.Errorf("the rule %s is not in docs/webhook-messages.md", rule)
		}
	}
	source := read("pkg/webhooks/rules/*.go", "pkg/fleet/properties/*.go", "pkg/bootstrap/*.go", "pkg/inventory/*.go",
		"pkg/fleet/quota/*.go", "pkg/fleet/pools/*.go", "pkg/fleet/nodeprofiles/*.go",
		"pkg/fleet/matching/*.go", "pkg/fleet/devices/*.go",
		"pkg/apis/v1alpha1/*.go", "pkg/apis/compat/*.go", "pkg/dra/policy/*.go", "test/webhooks/testdata/*.golden")
	_, tables, _ := strings.Cut(docs, "## The rules")
	tables, _, _ = strings.Cut(tables, "\n## ")
	count := 0
	for line := range strings.Lines(tables) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 3 || !strings.Contains(cells[2], "`") {
			continue
		}
		count++
		for message := range strings.SplitSeq(strings.Trim(cells[2], "` "), "; ") {
			for part := range strings.SplitSeq(message, "…") {
				if !strings.Contains(source, strings.TrimSpace(part)) {
					t.Errorf("no message is %q, of %q", part, cells[0])
				}
			}
		}
	}
	if count < 50 {
		t.Errorf("%d messages: the tables are not where they were", count)
	}
}
