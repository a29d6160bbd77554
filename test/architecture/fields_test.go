// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// apiPackage is the import path of the API's types.
const apiPackage = module + "pkg/apis/v1alpha1"

// fieldsOf adds the fields of a type of the API, and of the types in it, as "Type.Field" by path.
func fieldsOf(path string, from reflect.Type, fields map[string]string) {
	for from.Kind() == reflect.Pointer || from.Kind() == reflect.Slice || from.Kind() == reflect.Map {
		from = from.Elem()
	}
	if from.Kind() != reflect.Struct || from.PkgPath() != apiPackage {
		return
	}
	for i := range from.NumField() {
		field := from.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fieldPath := path + "." + name
		if name == "" { // embedded
			fieldPath = path
		} else if _, seen := fields[fieldPath]; !seen {
			fields[fieldPath] = from.Name() + "." + field.Name
		}
		fieldsOf(fieldPath, field.Type, fields)
	}
}

// TestFieldsHaveEffect: a field of a spec that no code reads is accepted and does nothing; one that no test sets may.
func TestFieldsHaveEffect(t *testing.T) {
	system.Only(t) // it compiles all tests
	uses, err := usesOfAPI()
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for kind, goType := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		if spec, has := goType.FieldByName("Spec"); has && goType.PkgPath() == apiPackage {
			fieldsOf(kind+".spec", spec.Type, fields)
		}
	}
	if len(fields) < 100 {
		t.Fatalf("found %d fields: the search finds nothing", len(fields))
	}
	set := maps.Clone(uses.tested)
	for path, name := range fields {
		set[name] = set[name] || uses.sets(path)
	}
	for path, name := range fields {
		if strings.HasSuffix(path, ".displayName") || strings.HasSuffix(path, ".description") {
			continue // for people: kubectl shows them
		}
		if !uses.read[name] {
			t.Errorf("%s (%s) is accepted, and no code reads it: implement it or remove it", path, name)
		}
		if !set[name] {
			t.Errorf("%s (%s) is in no test: write one in which its value makes a difference", path, name)
		}
	}
}

// internal are the keys that only the controllers write: tests see what comes of them.
var internal = []string{
	"NodeClassTerminationFinalizer", "ChosenHostAnnotationKey", "MachineAnnotationKey", "AddressPoolAnnotationKey",
	"SavedNetworkDataAnnotationKey", "SavedUserDataAnnotationKey",
}

// TestKeysHaveEffect: what TestFieldsHaveEffect shows of fields, for the keys of properties, labels and annotations.
func TestKeysHaveEffect(t *testing.T) {
	system.Only(t)
	uses, err := usesOfAPI()
	if err != nil {
		t.Fatal(err)
	}
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
		if !uses.constants[name] {
			t.Errorf("%s is documented, and no code reads it: implement it, or remove the key", name)
		}
		if !uses.testedConstants[name] && !uses.words[value] && !slices.Contains(internal, name) {
			t.Errorf("%s is in no test: write one in which its value makes a difference", name)
		}
	}
}
