// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const root = "../.."

// apiPackage is the import path of the API's types.
const apiPackage = module + "pkg/apis/v1alpha1"

// mentions are the names and the words in strings of Go code.
type mentions map[string]bool

// read adds what the Go files below a folder mention.
func (m mentions) read(t *testing.T, folder string, wanted func(path string) bool) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || !wanted(path) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.SelectorExpr:
				m[node.Sel.Name] = true
			case *ast.KeyValueExpr:
				if key, isName := node.Key.(*ast.Ident); isName {
					m[key.Name] = true
				}
			case *ast.BasicLit:
				separator := func(r rune) bool { return strings.ContainsRune(" \t\n\"'`{}[],:()", r) }
				for _, word := range strings.FieldsFunc(node.Value, separator) {
					m[word] = true
					for _, part := range strings.Split(word, ".") {
						m[part] = true
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func isTest(path string) bool { return strings.HasSuffix(path, "_test.go") }

func isProduct(path string) bool {
	return !isTest(path) && !strings.Contains(path, "pkg/apis/") && !strings.Contains(path, "zz_generated")
}

// isMethodOfAPI is a file with code of the API package, which is more than declarations.
func isMethodOfAPI(path string) bool {
	return !isTest(path) && strings.Contains(path, "pkg/apis/v1alpha1") && !strings.Contains(path, "zz_generated")
}

// fieldsOf adds the fields of a type of the API, and of the types in it, by path.
func fieldsOf(path string, from reflect.Type, fields map[string]reflect.StructField) {
	for from.Kind() == reflect.Pointer || from.Kind() == reflect.Slice || from.Kind() == reflect.Map {
		from = from.Elem()
	}
	if from.Kind() != reflect.Struct || from.PkgPath() != apiPackage {
		return
	}
	for i := range from.NumField() {
		field := from.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		at := path + "." + name
		if name == "" { // embedded
			at = path
		} else if _, seen := fields[at]; !seen {
			fields[at] = field
		}
		fieldsOf(at, field.Type, fields)
	}
}

// readAndTested is what the code of the product mentions, and what its tests do, with those files of folder test.
func readAndTested(t *testing.T, ofTest func(path string) bool) (read, tested mentions) {
	t.Helper()
	read, tested = mentions{}, mentions{}
	for _, folder := range []string{"pkg", "cmd"} {
		read.read(t, folder, isProduct)
		tested.read(t, folder, isTest)
	}
	read.read(t, "pkg/apis/v1alpha1", isMethodOfAPI)
	tested.read(t, "test", ofTest)
	return read, tested
}

// TestFieldsHaveEffect: a field of a spec that no code reads is accepted and does nothing; one that no test mentions may.
func TestFieldsHaveEffect(t *testing.T) {
	read, tested := readAndTested(t, isTest)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	fields := map[string]reflect.StructField{}
	for kind, goType := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		if spec, has := goType.FieldByName("Spec"); has && goType.PkgPath() == apiPackage {
			fieldsOf(kind+".spec", spec.Type, fields)
		}
	}
	if len(fields) < 100 {
		t.Fatalf("found %d fields: the search finds nothing", len(fields))
	}
	for path, field := range fields {
		name := path[strings.LastIndexByte(path, '.')+1:]
		if !read[field.Name] && name != "displayName" { // a column of kubectl get
			t.Errorf("%s is accepted, and no code reads it: implement it, or remove the field", path)
		}
		if !tested[field.Name] && !tested[name] {
			t.Errorf("%s is in no test: write one in which its value makes a difference", path)
		}
	}
}

// internal are the keys that only the controllers write: tests see what comes of them.
var internal = []string{
	"NodeClassTerminationFinalizer", "ChosenHostAnnotationKey", "MachineAnnotationKey", "AddressPoolAnnotationKey",
	"SavedNetworkDataAnnotationKey",
}

// TestKeysHaveEffect: what TestFieldsHaveEffect shows of fields, for the keys of properties, labels and annotations.
func TestKeysHaveEffect(t *testing.T) {
	read, tested := readAndTested(t, func(string) bool { return true })
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "pkg/apis/v1alpha1/keys.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, declaration := range file.Decls {
		constants, is := declaration.(*ast.GenDecl)
		if !is || constants.Tok != token.CONST {
			continue
		}
		for _, spec := range constants.Specs {
			value := spec.(*ast.ValueSpec)
			for i, name := range value.Names {
				keys[name.Name] = ""
				if literal, is := value.Values[i].(*ast.BasicLit); is {
					keys[name.Name] = strings.Trim(literal.Value, `"`)
				}
			}
		}
	}
	if _, found := keys["PropertyDNSServers"]; !found {
		t.Fatalf("found %d keys: the search finds nothing", len(keys))
	}
	for name, value := range keys {
		if !read[name] {
			t.Errorf("%s is documented, and no code reads it: implement it, or remove the key", name)
		}
		if !tested[name] && !tested[value] && !slices.Contains(internal, name) {
			t.Errorf("%s is in no test: write one in which its value makes a difference", name)
		}
	}
}
