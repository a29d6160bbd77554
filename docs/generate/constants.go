// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// constant is an exported string of the API package, with its comment.
type constant struct{ name, value, text string }

// vocabulary has the constants of the API: properties, keys, conditions and reasons.
type vocabulary struct{ properties, keys, conditions, reasons []constant }

// constants reads the vocabulary from the source in the folders. The name of a constant decides its section.
func constants(folders ...string) (vocabulary, error) {
	words := vocabulary{}
	declared, known, err := declarations(folders...)
	if err != nil {
		return words, err
	}
	for _, spec := range declared {
		name := spec.Names[0].Name
		value, ok := known[name]
		if !ok || !ast.IsExported(name) {
			continue
		}
		c := constant{name, value, explanation(name, spec.Doc.Text())}
		switch {
		case strings.HasPrefix(name, "Property"):
			words.properties = append(words.properties, c)
		case strings.HasPrefix(name, "Condition"):
			words.conditions = append(words.conditions, c)
		case strings.HasPrefix(name, "Reason") && !key.MatchString(name):
			words.reasons = append(words.reasons, c)
		case strings.HasSuffix(name, "HookPrefix") || name == "HookMessagePrefix":
			c.value += "/<hook>"
			words.keys = append(words.keys, c)
		case strings.HasPrefix(name, "Rule"): // of the webhook, in docs/webhooks.md
		case key.MatchString(name) && !unicode.IsUpper(rune(value[0])):
			words.keys = append(words.keys, c)
		}
	}
	for _, list := range [][]constant{words.properties, words.keys, words.conditions, words.reasons} {
		slices.SortStableFunc(list, func(a, b constant) int { return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.name, b.name)) })
		for _, c := range list {
			if c.text == "" {
				return words, fmt.Errorf("%s has no comment of its own that says what it is", c.name)
			}
		}
	}
	return words, nil
}

// reasonsOf reads the reasons of conditions and events from the source in a folder, whether other packages see them or not.
func reasonsOf(folder string) (reasons []constant, err error) {
	declared, known, err := declarations(folder)
	if err != nil {
		return nil, err
	}
	for _, spec := range declared {
		name := spec.Names[0].Name
		if value := known[name]; reason.MatchString(name) && camelCase.MatchString(value) {
			reasons = append(reasons, constant{name, value, explanation(name, spec.Doc.Text())})
		}
	}
	return reasons, nil
}

var (
	reason    = regexp.MustCompile(`^[rR]eason[A-Z]`)
	camelCase = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
)

// declarations are the constants in the folders, and the values of those that are strings.
func declarations(folders ...string) (declared []*ast.ValueSpec, known map[string]string, err error) {
	var paths []string
	for _, folder := range folders {
		found, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			return nil, nil, fmt.Errorf("listing %s, %w", folder, err)
		}
		paths = append(paths, found...)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, nil, fmt.Errorf("reading %s, %w", path, err)
		}
		for _, declaration := range file.Decls {
			if general, ok := declaration.(*ast.GenDecl); ok && general.Tok == token.CONST {
				declared = append(declared, commented(general)...)
			}
		}
	}
	known = map[string]string{"v1alpha1.Group": v1alpha1.Group}
	// A constant may use one that is found later.
	for range 2 {
		for _, spec := range declared {
			if len(spec.Values) == 1 {
				if value, ok := evaluate(spec.Values[0], known); ok {
					known[spec.Names[0].Name] = value
				}
			}
		}
	}
	return declared, known, nil
}

// commented are the constants of a block. One without a comment of its own has the block's, or shares that of the one before.
func commented(block *ast.GenDecl) []*ast.ValueSpec {
	var all []*ast.ValueSpec
	shared := block.Doc
	for _, spec := range block.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		if value.Doc == nil {
			value.Doc = shared
		}
		if block.Doc == nil {
			shared = value.Doc
		}
		all = append(all, value)
	}
	return all
}

// evaluate returns the value of a string literal, a constant, or a concatenation of those.
func evaluate(expression ast.Expr, known map[string]string) (string, bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		return value, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		value, ok := known[e.Name]
		return value, ok
	case *ast.SelectorExpr:
		value, ok := known[fmt.Sprint(e.X)+"."+e.Sel.Name]
		return value, ok
	case *ast.BinaryExpr:
		left, ok := evaluate(e.X, known)
		right, also := evaluate(e.Y, known)
		return left + right, ok && also && e.Op == token.ADD
	}
	return "", false
}

// key matches the names of constants that are keys of an object's metadata.
var key = regexp.MustCompile(`(Key|Finalizer|Annotation)$`)

// verb matches the verb after the name in a comment.
var verb = regexp.MustCompile(`^((\w+Key )?and \w+ |is |are )`)

var spaces = regexp.MustCompile(`\s+`)

// explanation returns the comment without the constant's name at its beginning.
func explanation(name, comment string) string {
	text := strings.TrimSpace(spaces.ReplaceAllString(comment, " "))
	for _, lead := range []string{name + ": ", name + ", ", name + " "} {
		text = strings.TrimPrefix(text, lead)
	}
	text = verb.ReplaceAllString(text, "")
	if text == "" {
		return ""
	}
	if first, _, _ := strings.Cut(text, " "); strings.ContainsAny(first, ".0123456789") {
		return text // a name
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func (v vocabulary) write(page *strings.Builder) {
	page.WriteString(`## Properties

What a server is installed with. They merge: NodeProvider < NodeType < MetalNodeClass or pool < Machine, the more specific wins, and the
OSImage of the result fills in the rest. Values are strings. Any other key is a property of your own, to select by and
a label of the nodes; its value must be one that a label can have.

| property | |
|---|---|
`)
	rows(page, v.properties)
	page.WriteString("\n## Labels, annotations and finalizers\n\n| key | |\n|---|---|\n")
	rows(page, v.keys)
	page.WriteString("\n## Conditions\n\n| type | |\n|---|---|\n")
	rows(page, v.conditions)
	page.WriteString("\nTheir reasons:\n\n| reason | |\n|---|---|\n")
	rows(page, v.reasons)
	page.WriteString("\n")
}

func rows(page *strings.Builder, constants []constant) {
	for _, c := range constants {
		fmt.Fprintf(page, "| `%s` | %s |\n", c.value, cell(c.text))
	}
}

// cell escapes text for the cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
