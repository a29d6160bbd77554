// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// harm finds the writes by which a server or a pod is gone for more than a minute: a Machine, a NodeClaim or a Node is deleted, or a host
// is quarantined, rebooted, switched off, emptied or given back.
var harm = regexp.MustCompile(`Delete\((q\.)?ctx, (c\.[\w.]+, )?(machine|nodeClaim|node)\b|` +
	`SetMetaDataAnnotation\(&host\.ObjectMeta, bmov1alpha1\.Reboot|AnnotateOnce\(ctx, host, .*v1alpha1\.Quarantined|` +
	`Spec\.Online = false|Spec\.Image\b.* = nil|Spec\.ConsumerRef = nil`)

// TestEvidence compares the table of docs/internals.md with the code: each function that it names is there, and each function that takes
// a server or a pod away is in it. Each row says which evidence is needed, what else could cause that, and how the effect ends.
func TestEvidence(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "internals.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Evidence before harm\n")
	if !found {
		t.Fatal("docs/internals.md has no section Evidence before harm")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	named, declared := map[string]bool{}, map[string]bool{}
	for _, line := range strings.Split(section, "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Action ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 5 {
			t.Errorf("%q has %d cells, want action, code, evidence, what else could cause it, and how the effect ends", line, len(cells))
			continue
		}
		for _, name := range strings.Split(cells[1], ", ") {
			named[strings.Trim(name, "`")] = true
		}
	}
	for path, text := range texts(t) {
		if !strings.HasPrefix(path, "pkg/") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			function, isFunction := declaration.(*ast.FuncDecl)
			if !isFunction {
				continue
			}
			name := strings.TrimPrefix(filepath.Dir(path), "pkg/") + "." + function.Name.Name
			body := string(text[files.Position(function.Pos()).Offset:files.Position(function.End()).Offset])
			if harm.MatchString(body) && !named[name] {
				t.Errorf("%s in %s takes a server or a pod away (%s), and is not in the table of docs/internals.md: add which evidence it needs",
					name, path, harm.FindString(body))
			}
			declared[name] = true
		}
	}
	for name := range named {
		if !declared[name] {
			t.Errorf("the table of docs/internals.md names %s, which is not in pkg", name)
		}
	}
}
