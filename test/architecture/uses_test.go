// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const root = "../.."

// uses are what of the API the code of this module uses.
type uses struct {
	// read are the fields, as "Type.Field", that the product reads, and tested those that tests name.
	read, tested map[string]bool
	// constants are the names of the constants that the product refers to, and testedConstants those that tests do.
	constants, testedConstants map[string]bool
	// words are those of the strings in tests, all of them and by string.
	words   map[string]bool
	strings []map[string]bool
}

// usesOfAPI type-checks all packages of this module with their tests, once for all tests.
var usesOfAPI = sync.OnceValues(func() (*uses, error) {
	packages, err := goList("-export", "-deps", "-test", "./pkg/...", "./cmd/...", "./test/...")
	if err != nil {
		return nil, err
	}
	found := &uses{
		read: map[string]bool{}, tested: map[string]bool{}, words: map[string]bool{},
		constants: map[string]bool{}, testedConstants: map[string]bool{},
	}
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(packages[path].Export) })
	for path, pkg := range packages {
		if _, tested := packages[path+" ["+path+".test]"]; tested || !pkg.isOurs() {
			continue
		}
		if err := found.add(pkg, files, imports); err != nil {
			return nil, err
		}
	}
	return found, nil
})

// isOurs returns whether it is a package of this module, or its tests. Others are compiled once more for tests that need it.
func (p pkg) isOurs() bool {
	path, _, _ := strings.Cut(p.ImportPath, " ")
	return strings.HasPrefix(path, module) && !strings.HasSuffix(path, ".test") &&
		(p.ForTest == "" || path == p.ForTest || path == p.ForTest+"_test")
}

// add adds what a package uses.
func (u *uses) add(pkg pkg, files *token.FileSet, imports types.Importer) error {
	var parsed []*ast.File
	for _, name := range pkg.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(pkg.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		parsed = append(parsed, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	// A test package sees its package without what test files add to it: such errors do not matter here.
	config := &types.Config{Importer: imports, Error: func(error) {}}
	path, _, _ := strings.Cut(pkg.ImportPath, " ")
	checked, _ := config.Check(path, files, parsed, info)
	api := checked
	if path != apiPackage {
		var err error
		if api, err = imports.Import(apiPackage); err != nil {
			return err
		}
	}
	names := fieldNames(api)
	inTest := strings.HasPrefix(path, module+"test/")
	for _, file := range parsed {
		name := filepath.Base(files.Position(file.Package).Filename)
		if strings.HasPrefix(name, "zz_generated") {
			continue
		}
		u.addFile(file, info, api, names, inTest || strings.HasSuffix(name, "_test.go"))
	}
	return nil
}

// fieldNames are the names of the fields of the structs of a package, as "Type.Field".
func fieldNames(pkg *types.Package) map[types.Object]string {
	names := map[types.Object]string{}
	for _, name := range pkg.Scope().Names() {
		structure, is := pkg.Scope().Lookup(name).Type().Underlying().(*types.Struct)
		for i := 0; is && i < structure.NumFields(); i++ {
			names[structure.Field(i)] = name + "." + structure.Field(i).Name()
		}
	}
	return names
}

func (u *uses) addFile(file *ast.File, info *types.Info, api *types.Package, names map[types.Object]string, isTest bool) {
	written := map[*ast.Ident]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.AssignStmt:
			for _, target := range node.Lhs {
				if selector, is := target.(*ast.SelectorExpr); is {
					written[selector.Sel] = true
				}
			}
		case *ast.KeyValueExpr:
			if key, is := node.Key.(*ast.Ident); is {
				written[key] = true
			}
		case *ast.Ident:
			object := info.Uses[node]
			if constant, is := object.(*types.Const); is && constant.Pkg() == api {
				u.constants[constant.Name()] = u.constants[constant.Name()] || !isTest
				u.testedConstants[constant.Name()] = u.testedConstants[constant.Name()] || isTest
			}
			if name, is := names[object]; is && isTest {
				u.tested[name] = true
			} else if is && !written[node] {
				u.read[name] = true
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(node.Value); err == nil && isTest && node.Kind == token.STRING {
				u.addWords(text)
			}
		}
		return true
	})
}

// addWords adds the words of a text, and their parts: a path such as spec.zone names each of its fields.
func (u *uses) addWords(text string) {
	words := map[string]bool{}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n\"'`{}[],:()", r) }) {
		words[word] = true
		for part := range strings.SplitSeq(word, ".") {
			words[part] = true
		}
	}
	u.strings = append(u.strings, words)
	maps.Copy(u.words, words)
}

// sets returns whether a manifest in a test sets the field at a path. Many fields have the same name, so that the one above it
// counts, too.
func (u *uses) sets(path string) bool {
	elements := strings.Split(path, ".")
	field, parent := elements[len(elements)-1], elements[len(elements)-2]
	return slices.ContainsFunc(u.strings, func(words map[string]bool) bool { return words[field] && words[parent] })
}
