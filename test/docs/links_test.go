// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// allPages are the pages for people, by their paths in the repository.
func allPages(t *testing.T) []string {
	t.Helper()
	var pages []string
	for _, pattern := range []string{"*.md", ".github/*.md", "docs/*.md", "docs/*/*.md", "designs/*.md", "charts/*/*.md", "test/*/*.md"} {
		found, err := filepath.Glob(root(pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			page, err := filepath.Rel(root(), path)
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, filepath.ToSlash(page))
		}
	}
	return pages
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinks: the targets of links exist, headings included.
func TestLinks(t *testing.T) {
	links := 0
	for _, page := range allPages(t) {
		for _, found := range link.FindAllStringSubmatch(read(t, page), -1) {
			path, heading, _ := strings.Cut(found[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			links++
			target := page
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(page), path))
			}
			if _, err := os.Stat(root(target)); err != nil {
				t.Errorf("%s links to %s: %v", page, found[1], err)
				continue
			}
			if heading != "" && !slices.Contains(headings(read(t, target)), heading) {
				t.Errorf("%s links to %s: there is no such heading", page, found[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("%d links: the test does not find them", links)
	}
}

// TestIndex: docs/README.md names every page of docs.
func TestIndex(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, page := range allPages(t) {
		name, ok := strings.CutPrefix(page, "docs/")
		if ok && name != "README.md" && (!strings.Contains(name, "/") || strings.HasSuffix(name, "/README.md")) &&
			!strings.Contains(index, "("+name+")") {
			t.Errorf("docs/README.md does not name %s", name)
		}
	}
}

// testName is the name of a test, as pages write it.
var testName = regexp.MustCompile(`\bTest[A-Z][A-Za-z]+\b`)

// TestNamedTests: the tests that a page names, for example as what holds a threat off, exist. A name can be the beginning of some.
func TestNamedTests(t *testing.T) {
	sources, err := exec.Command("git", "-C", "../..", "grep", "-hoE", `^func Test[A-Za-z]+\(`, "--", "*_test.go").Output()
	if err != nil {
		t.Fatalf("listing the tests, %v", err)
	}
	named := 0
	for _, page := range allPages(t) {
		for _, name := range testName.FindAllString(read(t, page), -1) {
			named++
			if !bytes.Contains(sources, []byte("func "+name)) {
				t.Errorf("%s names %s, and there is no such test", page, name)
			}
		}
	}
	if named < 50 {
		t.Errorf("%d names: the test does not find them", named)
	}
}

// TestRows: no row of a table is there twice, nor two about the same threat or account, as when one is written anew and the earlier stays.
func TestRows(t *testing.T) {
	for _, page := range allPages(t) {
		head, seen := "", map[string]bool{}
		for line := range strings.Lines(read(t, page)) {
			if !strings.HasPrefix(line, "| ") {
				if !strings.HasPrefix(line, "|-") {
					head, seen = "", map[string]bool{}
				}
				continue
			}
			first, _, _ := strings.Cut(line[len("| "):], " |")
			if head == "" {
				head = first
			}
			if head == "threat" || head == "account" {
				line = first
			}
			if seen[line] {
				t.Errorf("%s has this row twice: %s", page, line)
			}
			seen[line] = true
		}
	}
}

var dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// headings are the anchors of a page, as GitHub makes them.
func headings(page string) []string {
	var all []string
	fenced := false
	for line := range strings.Lines(page) {
		fenced = fenced != strings.HasPrefix(line, "```")
		if text := strings.TrimLeft(line, "#"); !fenced && text != line {
			all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(text)), ""), " ", "-"))
		}
	}
	return all
}
