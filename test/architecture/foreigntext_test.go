// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// These tests list each text that becomes a part of a command, a path or a process. Text of a tenant, or of an API server that
// may lie, is among the words of commands, which pkg/apis/shell quotes, and in the name of a log in a support bundle, which fileName
// makes, and nowhere else. docs/tenant-fields.md has the same from the tenant's side.

// commandWords are what is not a constant in the commands that messages tell a person to run, by file. All of them are names and
// namespaces of objects, but for tokens of confirmations, and labels and patches of ours.
var commandWords = map[string][]string{
	"cmd/kubectl-metal3/internal/view/explain.go": {"claim.Name", "machine.Name", "machine.Namespace", "nameOf(machine)"},
	"cmd/kubectl-metal3/internal/view/issues.go": {"class.Name", `machine.Namespace + "/" + machine.Name`, "name", "provider.Name",
		"tenant.Name", "tenant.Namespace"},
	"cmd/kubectl-metal3/propose.go": {"providers[0].Name",
		"slices.Concat([]string{proposal.Namespace}, proposal.Servers, pairs(proposal.Labels))"},
	"cmd/kubectl-metal3/verbs.go":                         {"nameOf(machine)"},
	"pkg/apis/v1alpha1/confirmation.go":                   {`key + "=" + token`, "t.Name", "t.Namespace"},
	"pkg/controllers/management/hosts/host.go":            {"host.Name", "host.Namespace"},
	"pkg/controllers/management/tenantcluster/ready.go":   {"tenant.Namespace"},
	"pkg/controllers/tenant/identity/guard.go":            {`cluster.Name + "-kubeconfig"`, "cluster.Namespace"},
	"pkg/controllers/tenant/nodeclaimstatus/resources.go": {"node"},
	"pkg/fleet/quota/standalone.go":                       {"label", "machine.Namespace"},
	"pkg/inventory/remedy.go": {`annotation + "-"`, `bmov1alpha1.InspectAnnotationPrefix + "="`, "change", "host.Name", "host.Namespace",
		"host.Spec.ConsumerRef.Name", "host.Spec.ConsumerRef.Namespace",
		`v1alpha1.CAPINodeReuseLabelKey + "-"`},
	"pkg/preflight/hosts.go":     {"h.namespace", "host.Name", "host.Namespace", "user.Name"},
	"pkg/preflight/ironic.go":    {"object.GetName()", "object.GetNamespace()"},
	"pkg/preflight/providers.go": {"tenant.Name", "tenant.Namespace"},
}

// paths are what names the files that our programs write, by file. The name on the command line is the user's own.
var paths = map[string][]string{
	"cmd/kubectl-metal3/bundle.go":  {`"karpenter-metal3/" + file.name`, "name"},
	"cmd/kubectl-metal3/explain.go": {"arguments[0]"},
}

// sources parses what our programs are made of.
func sources(t *testing.T) (map[string]*ast.File, *token.FileSet) {
	t.Helper()
	positions, parsed := token.NewFileSet(), map[string]*ast.File{}
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") || !strings.HasPrefix(path, "pkg/") && !strings.HasPrefix(path, "cmd/") {
			continue
		}
		file, err := parser.ParseFile(positions, filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed[path] = file
	}
	return parsed, positions
}

// called is the package and name of the function of a call, as "shell.Command".
func called(call *ast.CallExpr) string {
	if selector, is := call.Fun.(*ast.SelectorExpr); is {
		if pkg, is := selector.X.(*ast.Ident); is {
			return pkg.Name + "." + selector.Sel.Name
		}
	}
	return ""
}

// TestForeignText compares the lists with the code.
func TestForeignText(t *testing.T) {
	parsed, positions := sources(t)
	text := func(node ast.Node) string {
		var printed bytes.Buffer
		if err := printer.Fprint(&printed, positions, node); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(printed.String()), " ")
	}
	words, written := map[string][]string{}, map[string][]string{}
	add := func(to map[string][]string, path string, expression ast.Expr) {
		if literal, is := expression.(*ast.BasicLit); !is || literal.Kind != token.STRING {
			to[path] = append(to[path], text(expression))
		}
	}
	for path, file := range parsed {
		for _, imported := range file.Imports {
			if name, _ := strconv.Unquote(imported.Path.Value); name == "os/exec" {
				t.Errorf("%s starts processes: list here what of a tenant reaches them", path)
			}
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch found := node.(type) {
			case *ast.CallExpr:
				switch called(found) {
				case "shell.Command":
					for _, word := range found.Args[1:] {
						add(words, path, word)
					}
				case "os.OpenFile", "os.Create", "os.WriteFile", "os.Mkdir", "os.MkdirAll", "os.Rename", "os.Remove", "os.RemoveAll", "os.Symlink":
					add(written, path, found.Args[0])
				case "os.StartProcess", "syscall.Exec", "syscall.ForkExec", "unix.Exec":
					t.Errorf("%s starts a process: list here what of a tenant reaches it", path)
				}
			case *ast.CompositeLit:
				if found.Type != nil && text(found.Type) == "tar.Header" {
					for _, field := range found.Elts {
						if pair := field.(*ast.KeyValueExpr); text(pair.Key) == "Name" {
							add(written, path, pair.Value)
						}
					}
				}
			}
			return true
		})
	}
	for _, found := range []map[string][]string{words, written} {
		for path, expressions := range found {
			slices.Sort(expressions)
			found[path] = slices.Compact(expressions)
		}
	}
	if diff := cmp.Diff(commandWords, words); diff != "" {
		t.Errorf("words of commands (-listed +found):\n%s", diff)
	}
	if diff := cmp.Diff(paths, written); diff != "" {
		t.Errorf("names of files (-listed +found):\n%s", diff)
	}
}

var (
	command = regexp.MustCompile(`\bkubectl [a-z-][^\n]*`)
	verb    = regexp.MustCompile(`%[^%\s]`)
)

// TestCommandsAreQuoted: shell.Command writes each command that has a part which is not a constant.
func TestCommandsAreQuoted(t *testing.T) {
	parsed, positions := sources(t)
	for _, path := range slices.Sorted(maps.Keys(parsed)) {
		if strings.HasPrefix(path, "pkg/apis/shell/") {
			continue
		}
		var parents []ast.Node
		ast.Inspect(parsed[path], func(node ast.Node) bool {
			if node == nil {
				parents = parents[:len(parents)-1]
				return true
			}
			if literal, is := node.(*ast.BasicLit); is && literal.Kind == token.STRING && goesOn(literal, parents) {
				t.Errorf("%s: a command has parts that are not constant: have shell.Command of pkg/apis/shell write it", positions.Position(node.Pos()))
			}
			parents = append(parents, node)
			return true
		})
	}
}

// goesOn returns whether a literal has a command, outside of shell.Command, that is filled in or goes on with what is not constant.
func goesOn(literal *ast.BasicLit, parents []ast.Node) bool {
	value, err := strconv.Unquote(literal.Value)
	found := command.FindString(value)
	if err != nil || found == "" {
		return false
	}
	formatted, last := false, ast.Node(literal)
	for _, parent := range slices.Backward(parents) {
		switch above := parent.(type) {
		case *ast.BinaryExpr:
			if _, constant := above.Y.(*ast.BasicLit); above.Op == token.ADD && above.X == last && !constant &&
				strings.HasSuffix(value, found) {
				return true
			}
			if above.X != last { // what comes after it is further up
				last = above
				continue
			}
		case *ast.CallExpr:
			if called(above) == "shell.Command" {
				return false
			}
			formatted = true
		}
		last = parent
	}
	return formatted && verb.MatchString(found)
}
