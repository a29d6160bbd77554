// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// systemPackage is the import path of the package whose function Only marks tests.
const systemPackage = "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"

// marked are the tests that begin with a call of system.Only, by package.
type marked struct {
	order []string
	tests map[string][]string
}

// packages are those with marked tests, in the order in which they were named.
func (m marked) packages() []string { return m.order }

// expression returns the value of -run for the marked tests of all packages. A test of the same name in another package
// runs too.
func (m marked) expression() string {
	var all []string
	for _, tests := range m.tests {
		all = append(all, tests...)
	}
	slices.Sort(all)
	return "^(" + strings.Join(slices.Compact(all), "|") + ")$"
}

// markedIn finds the marked tests in the packages that go list finds for the patterns, in their order.
func markedIn(ctx context.Context, first, patterns []string) (marked, error) {
	found := marked{tests: map[string][]string{}}
	for _, list := range [][]string{first, patterns} {
		if len(list) == 0 {
			continue
		}
		packages, err := goList(ctx, list)
		if err != nil {
			return marked{}, err
		}
		for _, p := range packages {
			if _, done := found.tests[p.ImportPath]; done {
				continue
			}
			tests, err := p.marked()
			if err != nil {
				return marked{}, err
			}
			if len(tests) > 0 {
				found.order = append(found.order, p.ImportPath)
				found.tests[p.ImportPath] = tests
			}
		}
	}
	if len(found.order) == 0 {
		return marked{}, fmt.Errorf("no test in %v begins with system.Only", patterns)
	}
	return found, nil
}

// goPackage is a package in the output of go list.
type goPackage struct {
	Dir, ImportPath           string
	TestGoFiles, XTestGoFiles []string
}

func goList(ctx context.Context, patterns []string) ([]goPackage, error) {
	output, err := exec.CommandContext(ctx, "go",
		append([]string{"list", "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles"}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages %v, %w", patterns, err)
	}
	var packages []goPackage
	decoder := json.NewDecoder(bytes.NewReader(output))
	for {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the output of go list, %w", err)
		}
		packages = append(packages, p)
	}
}

// marked returns the names of the tests of a package that begin with system.Only. A call anywhere else is an error: such a
// test would be skipped by `make test` and not be run by `make test-system`.
func (p goPackage) marked() ([]string, error) {
	var names []string
	for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("reading the tests of %s, %w", p.ImportPath, err)
		}
		inFile, err := markedInFile(files, file)
		if err != nil {
			return nil, err
		}
		names = append(names, inFile...)
	}
	return names, nil
}

func markedInFile(files *token.FileSet, file *ast.File) ([]string, error) {
	imported := slices.IndexFunc(file.Imports, func(i *ast.ImportSpec) bool {
		path, _ := strconv.Unquote(i.Path.Value) // it was parsed
		return path == systemPackage
	})
	if imported < 0 {
		return nil, nil
	}
	if name := file.Imports[imported].Name; name != nil {
		return nil, fmt.Errorf("%s: import test/system under its own name, or make test-system does not find its tests",
			files.Position(name.Pos()))
	}
	var names []string
	begins := map[ast.Node]bool{}
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Recv != nil || !strings.HasPrefix(function.Name.Name, "Test") || function.Body == nil || len(function.Body.List) == 0 {
			continue
		}
		if statement, ok := function.Body.List[0].(*ast.ExprStmt); ok && isOnly(statement.X) {
			begins[statement.X] = true
			names = append(names, function.Name.Name)
		}
	}
	var misplaced error
	ast.Inspect(file, func(node ast.Node) bool {
		if call, ok := node.(*ast.CallExpr); ok && isOnly(call) && !begins[node] {
			misplaced = fmt.Errorf("%s: system.Only is not the first statement of a test, and make test-system would not run it",
				files.Position(node.Pos()))
		}
		return misplaced == nil
	})
	return names, misplaced
}

// isOnly returns whether an expression is a call of system.Only.
func isOnly(expression ast.Expr) bool {
	call, ok := expression.(*ast.CallExpr)
	if !ok {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != "Only" {
		return false
	}
	name, ok := selector.X.(*ast.Ident)
	return ok && name.Name == "system"
}
