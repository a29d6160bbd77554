// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

var lower = flag.Bool("lower", false, "lower the numbers of weights.txt to what was measured")

// definesFlag finds the call that defines a flag of a program.
var definesFlag = regexp.MustCompile(`\.(String|Bool|U?[Ii]nt(32|64)?|Float(32|64)|Duration|StringSlice|StringArray|StringToString)?` +
	`(VarP?|P)\("?`)

// hardPhrase is a phrase in a comment that leaves out what it is about.
var hardPhrase = regexp.MustCompile(`\b(those of|is that of|of which|what [^.;:]{1,60} says?)\b`)

// noEffect begins the description of a property that is accepted and does nothing.
const noEffect = "No effect"

// TestWeight holds the size of the code, the API and the command lines, and how many phrases of comments are hard to read: weights.txt has
// the most that each may be. A number may be lowered ("go test ./test/architecture -run TestWeight -lower" does it). A commit that raises
// a number lowers another by as much.
func TestWeight(t *testing.T) {
	file := filepath.Join("testdata", "weights.txt")
	text, err := os.ReadFile(file)
	if err != nil && !*lower {
		t.Fatal(err)
	}
	most := map[string]int{}
	for line := range strings.Lines(string(text)) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if most[name], err = strconv.Atoi(number); err != nil {
			t.Fatalf("%s, line %q: want a number and a name", file, line)
		}
	}
	measured := weights(t)
	if *lower {
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(measured)) {
			if limit, found := most[name]; found {
				measured[name] = min(measured[name], limit)
			}
			fmt.Fprintf(&b, "%d %s\n", measured[name], name)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	for name, number := range measured {
		if limit, found := most[name]; !found || number > limit {
			t.Errorf("%s: %d, want at most %d (0 if it is not in %s). Delete something, or raise the number and lower another one",
				name, number, limit, file)
		}
	}
	for name := range most {
		if _, found := measured[name]; !found {
			t.Errorf("%s: there is no %q any more: remove the line", file, name)
		}
	}
}

// weights measures what weights.txt has.
func weights(t *testing.T) map[string]int {
	t.Helper()
	result := map[string]int{}
	for file, text := range texts(t) {
		program := strings.HasPrefix(file, "cmd/")
		if strings.HasSuffix(file, "_test.go") || !program && !strings.HasPrefix(file, "pkg/") || generated(text) {
			continue
		}
		lines := bytes.Count(text, []byte("\n"))
		result["hard phrases in comments"] += len(hardPhrase.FindAllString(comments(t, file, text), -1))
		folder := path.Dir(file)
		if program {
			folder = strings.Join(strings.SplitN(file, "/", 3)[:2], "/")
			result["flags of "+folder] += len(definesFlag.FindAll(text, -1))
		} else {
			result["lines of pkg"] += lines
		}
		result["lines of "+folder] += lines
	}
	result["keys"] = keys(t)
	definitions, err := filepath.Glob(filepath.Join(root, "pkg", "apis", "crds", "*.yaml"))
	if err != nil || len(definitions) == 0 {
		t.Fatalf("%d CRDs, error %v", len(definitions), err)
	}
	for _, definition := range definitions {
		text, err := os.ReadFile(definition)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			t.Fatalf("%s, %v", definition, err)
		}
		result["kinds"]++
		for _, version := range crd.Spec.Versions {
			properties, without := count(version.Schema.OpenAPIV3Schema.Properties["spec"], false)
			result["properties of spec"] += properties
			result["properties of spec without effect"] += without
		}
	}
	return result
}

// count returns how many properties are below a schema, and how many of them have no effect or are below one that has none.
func count(schema apiextensionsv1.JSONSchemaProps, without bool) (all, noEffects int) {
	add := func(child apiextensionsv1.JSONSchemaProps, property bool) {
		none := without || strings.HasPrefix(child.Description, noEffect)
		if property {
			all++
			if none {
				noEffects++
			}
		}
		below, noneBelow := count(child, none)
		all, noEffects = all+below, noEffects+noneBelow
	}
	for _, child := range schema.Properties {
		add(child, true)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		add(*schema.Items.Schema, false)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		add(*schema.AdditionalProperties.Schema, false)
	}
	return all, noEffects
}

// comments are the comments of a file in small letters, without the markers of generators.
func comments(t *testing.T, path string, text []byte) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, group := range file.Comments {
		for line := range strings.Lines(group.Text()) {
			if !strings.HasPrefix(line, "+") {
				words = append(words, strings.Fields(strings.ToLower(line))...)
			}
		}
		words = append(words, ".")
	}
	return strings.Join(words, " ")
}

// generated returns whether a generator has written a file.
func generated(text []byte) bool {
	head, _, _ := bytes.Cut(text, []byte("\npackage "))
	return bytes.Contains(head, []byte("// Code generated"))
}

// keys is how many constants the file of labels, annotations, finalizers and properties has.
func keys(t *testing.T) (number int) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "pkg", "apis", "v1alpha1", "keys.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, declaration := range file.Decls {
		if general, is := declaration.(*ast.GenDecl); is && general.Tok == token.CONST {
			for _, spec := range general.Specs {
				number += len(spec.(*ast.ValueSpec).Names)
			}
		}
	}
	return number
}
