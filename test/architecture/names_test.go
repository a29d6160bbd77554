// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/samber/lo"
)

// noNames are prepositions and pronouns that say nothing of what they name. Those that Go's own packages use are none, such as from.
var noNames = strings.Fields("of one on by said its at with into as beside who whose those these them they that this than it")

// TestNames: no identifier is a preposition or a pronoun.
func TestNames(t *testing.T) {
	for _, path := range goFiles(t) {
		source, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) || strings.HasPrefix(filepath.Base(path), "zz_") {
			continue // deleted, and not committed yet; or generated
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range noNamesIn(t, path, source) {
			t.Errorf("%s: name it for what it is", found)
		}
	}
}

// TestNoNamesIn: the rule finds each kind of declaration, and no use.
func TestNoNamesIn(t *testing.T) {
	for name, tc := range map[string]struct{ reason, source, want string }{
		"Assignment": {"a variable", "func f() { n, of := 1, 2; _, _ = n, of }", "x.go:2: of"},
		"Switch":     {"a variable of several types", "func f(v any) { switch as := v.(type) { case int: _ = as } }", "x.go:2: as"},
		"Range":      {"key and value", "func f() { for at, one := range []int{} { _, _ = at, one } }", "x.go:2: at, x.go:2: one"},
		"Specs":      {"var and const", "var who int\nconst on = 1", "x.go:2: who, x.go:3: on"},
		"Fields":     {"and methods of interfaces", "type s struct {\nby int\n}\ntype i interface{ its() }", "x.go:3: by, x.go:5: its"},
		"Method":     {"all of its names", "func (this t) with(into int) (said int)", "x.go:2: with, x.go:2: this, x.go:2: into, x.go:2: said"},
		"Literal":    {"parameters of a function", "var f = func(whose int) {}", "x.go:2: whose"},
		"None":       {"uses, parts of names, and from", "func byName(from int) { of = from; x.at = p.with(of, One{}) }", ""},
	} {
		if got := strings.Join(noNamesIn(t, "x.go", []byte("package x\n"+tc.source)), ", "); got != tc.want {
			t.Errorf("%s: got %q, want %q: %s", name, got, tc.want, tc.reason)
		}
	}
}

// noNamesIn are the prepositions and pronouns that a file declares, with their lines.
func noNamesIn(t *testing.T, path string, source []byte) (found []string) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	expression := func(name *ast.Ident, _ int) ast.Expr { return name }
	ast.Inspect(file, func(node ast.Node) bool {
		var names []ast.Expr
		switch node := node.(type) {
		case *ast.AssignStmt:
			names = lo.Ternary(node.Tok == token.DEFINE, node.Lhs, nil)
		case *ast.RangeStmt:
			names = lo.Ternary(node.Tok == token.DEFINE, []ast.Expr{node.Key, node.Value}, nil)
		case *ast.ValueSpec:
			names = lo.Map(node.Names, expression)
		case *ast.Field:
			names = lo.Map(node.Names, expression)
		case *ast.FuncDecl:
			names = []ast.Expr{node.Name}
		}
		for _, name := range names {
			if name, is := name.(*ast.Ident); is && slices.Contains(noNames, name.Name) {
				found = append(found, fmt.Sprintf("%s:%d: %s", path, files.Position(name.Pos()).Line, name.Name))
			}
		}
		return true
	})
	return found
}
