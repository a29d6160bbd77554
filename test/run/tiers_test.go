// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMarkedInFile(t *testing.T) {
	const head = "package p\nimport \"" + systemPackage + "\"\n"
	cases := map[string]struct {
		reason string
		source string
		want   []string
		err    string
	}{
		"First": {reason: "A test that begins with the mark belongs to make test-system.",
			source: head + "func TestA(t *testing.T) { system.Only(t); run() }\nfunc TestB(t *testing.T) {}", want: []string{"TestA"}},
		"NotAll": {reason: "Other packages have functions of this name.", source: "package p\nfunc TestA(t *testing.T) { system.Only(t) }"},
		"Later": {reason: "A test may end before a mark that comes later.",
			source: head + "func TestA(t *testing.T) { prepare(t); system.Only(t) }", err: "not the first statement"},
		"InSubtest": {reason: "-run has names of tests only.",
			source: head + "func TestA(t *testing.T) { t.Run(\"b\", func(t *testing.T) { system.Only(t) }) }", err: "not the first statement"},
		"InHelper": {reason: "The tests that call it would not be found.", source: head + "func prepare(t *testing.T) { system.Only(t) }",
			err: "not the first statement"},
		"Renamed": {reason: "The call would not be found.", source: "package p\nimport s \"" + systemPackage +
			"\"\nfunc TestA(t *testing.T) { s.Only(t) }", err: "under its own name"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, "p_test.go", tc.source, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			got, err := markedInFile(files, file)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s\nerror %v, want %q", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n(-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

// TestEveryTestIsInATier: `make test` skips the marked tests and no others, and `make test-system` runs them all. Nothing
// else may depend on -short, or it would be run by neither.
func TestEveryTestIsInATier(t *testing.T) {
	root := filepath.Join("..", "..")
	packages := 0
	t.Chdir(root)
	list, err := goList(t.Context(), []string{"./..."})
	if err != nil {
		t.Fatal(err)
	}
	found, err := markedIn(t.Context(), nil, []string{"./..."})
	if err != nil {
		t.Fatal(err)
	}
	expression := regexp.MustCompile(found.expression())
	for _, p := range list {
		packages++
		for _, test := range found.tests[p.ImportPath] {
			if !expression.MatchString(test) {
				t.Errorf("make test-system does not run %s of %s", test, p.ImportPath)
			}
		}
	}
	if packages < 50 || len(found.order) < 3 {
		t.Errorf("found %d packages, %d of them with tests of make test-system", packages, len(found.order))
	}
	err = filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && (path == "bin" || strings.HasPrefix(path, ".") && path != ".") {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasPrefix(path, "test/run/") || strings.HasPrefix(path, "test/system/") {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(content, []byte("testing.Short(")) {
			t.Errorf("%s: testing.Short decides what neither make test nor make test-system may run; call system.Only first", path)
		}
		if !strings.HasSuffix(path, "_test.go") && bytes.Contains(content, []byte(systemPackage)) {
			t.Errorf("%s: only tests call system.Only", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
