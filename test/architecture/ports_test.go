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
	"slices"
	"strings"
	"testing"
)

// TestPorts: nothing releases a port of Linux's choice to listen on it later. Linux gives it to the next who asks: of 2000 ports that were
// taken so, 250 were the same as one before. Tests take ports by test/freeport.
func TestPorts(t *testing.T) {
	for _, path := range goFiles(t) {
		source, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		released, err := releasedPortsIn(source)
		if err != nil {
			t.Fatal(err)
		}
		if len(released) > 0 {
			t.Errorf("%s releases a port before it is used, in %s: use test/freeport", path, strings.Join(released, ", "))
		}
	}
}

// TestReleasedPortsIn: the rule finds the common ways to release a port.
func TestReleasedPortsIn(t *testing.T) {
	const open = "func f() string { l, _ := net.Listen(\"tcp\", \"127.0.0.1:0\"); "
	for name, tc := range map[string]struct {
		reason, source string
		want           []string
	}{
		"Deferred": {"what is returned is closed by then", open + "defer l.Close(); return l.Addr().String() }", []string{"f"}},
		"Closure":  {"it is closed in a deferred function", open + "defer func() { _ = l.Close() }(); return l.Addr().String() }", []string{"f"}},
		"Inline": {"the address is used after the end", "func f() { l, _ := net.ListenPacket(\"udp\", net.JoinHostPort(\"::1\", \"0\")); " +
			"a := l.LocalAddr(); if err := l.Close(); err != nil { panic(err) }; use(a) }", []string{"f"}},
		"Inner": {"a closure is a function, too", "func f() { t.Run(\"x\", func() string { l, _ := net.Listen(\"tcp\", \":0\"); " +
			"defer l.Close(); return l.Addr().String() }) }", []string{"f"}},
		"Kept":    {"it is closed when the test ends", open + "t.Cleanup(func() { l.Close() }); return l.Addr().String() }", nil},
		"Busy":    {"others find it taken until the end", open + "defer l.Close(); use(l.Addr()); return \"\" }", nil},
		"Address": {"the caller names the port", "func f() { l, _ := net.Listen(\"tcp\", address); l.Close() }", nil},
	} {
		released, err := releasedPortsIn([]byte("package x\n" + tc.source))
		if err != nil || !slices.Equal(released, tc.want) {
			t.Errorf("%s: got %v, %v, want %v: %s", name, released, err, tc.want, tc.reason)
		}
	}
}

// portZero is an argument by which Linux chooses the port.
var portZero = regexp.MustCompile(`[:"]0"`)

// releasedPortsIn are the functions that close a listener at port 0, and do so before they return or return what it had.
func releasedPortsIn(source []byte) (functions []string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	text := func(node ast.Node) string {
		return string(source[files.Position(node.Pos()).Offset:files.Position(node.End()).Offset])
	}
	for _, declaration := range file.Decls {
		function, is := declaration.(*ast.FuncDecl)
		if !is || function.Body == nil {
			continue
		}
		bodies := []*ast.BlockStmt{function.Body}
		ast.Inspect(function.Body, func(node ast.Node) bool {
			if literal, is := node.(*ast.FuncLit); is {
				bodies = append(bodies, literal.Body)
			}
			return true
		})
		if slices.ContainsFunc(bodies, func(body *ast.BlockStmt) bool { return releases(body, text) }) {
			functions = append(functions, function.Name.Name)
		}
	}
	return functions, nil
}

// releases returns whether a body of a function, without the functions in it, is one of releasedPortsIn.
func releases(body *ast.BlockStmt, text func(ast.Node) string) bool {
	var listeners []string
	var closed, deferred, returned bool
	closes := func(node ast.Node) bool {
		return slices.ContainsFunc(listeners, func(name string) bool { return strings.Contains(text(node), name+".Close()") })
	}
	ast.Inspect(body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.AssignStmt:
			call, is := node.Rhs[0].(*ast.CallExpr)
			if is && strings.HasPrefix(text(call), "net.Listen") && portZero.MatchString(text(call)) {
				listeners = append(listeners, text(node.Lhs[0]))
			}
		case *ast.DeferStmt:
			deferred = deferred || closes(node)
			return false
		case *ast.FuncLit, *ast.GoStmt:
			return false
		case *ast.CallExpr:
			selector, is := node.Fun.(*ast.SelectorExpr)
			closed = closed || is && selector.Sel.Name == "Close" && closes(node)
		case *ast.ReturnStmt:
			returned = returned || slices.ContainsFunc(listeners, func(name string) bool { return strings.Contains(text(node), name+".") })
		}
		return true
	})
	return closed || deferred && returned
}
