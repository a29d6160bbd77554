// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ownWaits are the test files that may wait without test/poll, and why.
var ownWaits = map[string]string{
	"test/bench/claims_test.go":                       "it measures for a time",
	"test/bench/dra_test.go":                          "it measures for a time",
	"test/bench/sandbox_test.go":                      "it measures how long something takes",
	"test/bench/yardstick_test.go":                    "it measures for a time",
	"test/metal/agents_test.go":                       "it plays an agent that repeats its requests, until it is stopped",
	"test/neighbours/move_test.go":                    "it plays another controller, until it is stopped",
	"pkg/controllers/management/machine/race_test.go": "it has writers wait for a random time",
	"pkg/dra/memory_test.go":                          "it plays the manager of the controllers, until it is stopped",
}

// TestWaits: tests wait by test/poll, which has one patience for all. A wait of its own would be too short on some machine.
func TestWaits(t *testing.T) {
	found := map[string][]string{}
	for path, source := range texts(t) {
		if strings.HasPrefix(path, "tools/") {
			continue
		}
		waits, err := ownWaitsIn(path, source)
		if err != nil {
			t.Fatal(err)
		}
		if len(waits) > 0 {
			found[path] = waits
		}
	}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		if ownWaits[path] == "" {
			t.Errorf("%s waits by %s: use test/poll", path, strings.Join(found[path], ", "))
		}
	}
	for path := range ownWaits {
		if found[path] == nil {
			t.Errorf("%s does not wait by itself any more: remove it from ownWaits", path)
		}
	}
}

// TestOwnWaitsIn: the rule finds each kind of wait.
func TestOwnWaitsIn(t *testing.T) {
	const head = "package x\nimport (\n\"testing\"\n\"time\"\n\"k8s.io/apimachinery/pkg/util/wait\"\n)\n"
	for name, tc := range map[string]struct {
		reason, path, source string
		want                 []string
	}{
		"Poll":     {"a loop", "x_test.go", "func f() { wait.PollUntilContextTimeout(nil) }", []string{"wait.PollUntilContextTimeout"}},
		"Time":     {"a time", "x_test.go", "func f() { <-time.After(1); time.Sleep(1) }", []string{"time.After", "time.Sleep"}},
		"Constant": {"a patience", "x_test.go", "const (\nwaitTimeout = 30 * time.Second\n)", []string{"waitTimeout"}},
		"Support":  {"what takes a testing.TB", "x.go", "func f(t testing.TB) { time.Sleep(1) }", []string{"time.Sleep"}},
		"Units":    {"what is no wait", "x_test.go", "const period = time.Second\nvar d = time.Now()", nil},
	} {
		waits, err := ownWaitsIn(tc.path, []byte(head+tc.source))
		if err != nil || !slices.Equal(waits, tc.want) {
			t.Errorf("%s: got %v, %v, want %v: %s", name, waits, err, tc.want, tc.reason)
		}
	}
	waits, err := ownWaitsIn("x.go", []byte("package x\nimport \"time\"\nfunc f() { time.Sleep(1) }"))
	if err != nil || waits != nil {
		t.Errorf("a program waits as it likes, and the rule finds %v, %v", waits, err)
	}
}

// patienceName is how a constant of patience is called.
var patienceName = regexp.MustCompile(`(?i)(timeout|patience)$`)

// ownWaitsIn are the functions and constants by which a file of tests waits. Support of tests imports package testing; other files have
// none.
func ownWaitsIn(path string, source []byte) (waits []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	imported := map[string]bool{}
	for _, i := range file.Imports {
		name, _ := strconv.Unquote(i.Path.Value) // it was parsed
		imported[name] = true
	}
	if !strings.HasSuffix(path, "_test.go") && !imported["testing"] {
		return nil, nil
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.SelectorExpr:
			from, is := node.X.(*ast.Ident)
			if !is {
				return true
			}
			polls := from.Name == "wait" && imported["k8s.io/apimachinery/pkg/util/wait"] && strings.HasPrefix(node.Sel.Name, "Poll")
			times := from.Name == "time" && slices.Contains([]string{"After", "NewTimer", "NewTicker", "Tick", "Sleep"}, node.Sel.Name)
			if polls || times {
				waits = append(waits, from.Name+"."+node.Sel.Name)
			}
		case *ast.GenDecl:
			for _, spec := range node.Specs {
				value, is := spec.(*ast.ValueSpec)
				if is && node.Tok == token.CONST && patienceName.MatchString(value.Names[0].Name) && namesTime(value) {
					waits = append(waits, value.Names[0].Name)
				}
			}
		}
		return true
	})
	return waits, nil
}

// namesTime returns whether a value is made of a unit of time.
func namesTime(value *ast.ValueSpec) (named bool) {
	ast.Inspect(value, func(node ast.Node) bool {
		if selector, is := node.(*ast.SelectorExpr); is {
			from, is := selector.X.(*ast.Ident)
			named = named || is && from.Name == "time"
		}
		return !named
	})
	return named
}
