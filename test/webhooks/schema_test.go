// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
)

// vclusterPaths lists the fields of the blocks of a vcluster.yaml that a TenantCluster takes, one a line with its type:
// those without fields of their own in the JSON schema of vCluster. [] is an item of a list, and * a key of a map.
const vclusterPaths = "testdata/reference/vcluster-paths.txt"

var vclusterSchema = flag.String("vcluster-schema", "", "the vcluster.schema.json of a vCluster: write "+vclusterPaths)

// inVclusterYAML are the blocks that a TenantCluster takes.
var inVclusterYAML = []string{"privateNodes", "sync"}

// readElsewhere are objects that are taken as they are, and whose fields TestKubeletConfig of package compat is about.
var readElsewhere = []string{"privateNodes.kubelet.config"}

// TestVClusterSchema: each field of these blocks can be written with the strict validation of kubectl, and has an
// effect, or a warning says what to do instead. A field that our schema types, and that no warning is about, has an
// effect: TestFieldsHaveEffect sees to that.
func TestVClusterSchema(t *testing.T) {
	if *vclusterSchema != "" {
		writePaths(t)
	}
	text, err := os.ReadFile(vclusterPaths)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) < 500 {
		t.Fatalf("%s has %d lines: it is not what it was", vclusterPaths, len(lines))
	}
	asked(t)
	schema := tenantClusterSpec(t)
	var mutex sync.Mutex
	var missing, silent []string
	warned := 0
	group := errgroup.Group{}
	group.SetLimit(8)
	for _, line := range lines {
		group.Go(func() error {
			path, kind, _ := strings.Cut(line, " ")
			warnings, err := dryRun(t, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "karpenter.metal3.io/v1alpha1", "kind": "TenantCluster",
				"metadata": map[string]any{"namespace": "team-b", "name": "schema"},
				"spec":     merge(map[string]any{"apiServerEndpoint": "a:6443"}, example(path, kind)),
			}})
			field, _, _ := strings.Cut(path, "[")
			isWarned := slices.ContainsFunc(warnings, func(warning string) bool {
				about, _, says := strings.Cut(warning, ": has no effect here: ")
				return says && strings.HasPrefix("spec."+field, about)
			})
			mutex.Lock()
			defer mutex.Unlock()
			switch {
			case err != nil && strings.Contains(err.Error(), "unknown field"):
				missing = append(missing, path)
			case err == nil && isWarned:
				warned++
			case !typed(schema, strings.Split(path, ".")) && !slices.Contains(readElsewhere, path):
				silent = append(silent, fmt.Sprintf("%s: %v, %q", path, err, warnings))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(missing)
	slices.Sort(silent)
	if len(missing) > 0 {
		t.Errorf("%d fields are unknown: give them an effect, or a place among those without one (compat.IgnoredFields):\n%s",
			len(missing), strings.Join(missing, "\n"))
	}
	if len(silent) > 0 {
		t.Errorf("%d fields do nothing, without a warning:\n%s", len(silent), strings.Join(silent, "\n"))
	}
	if warned < 100 {
		t.Errorf("%d fields are warned of: the webhook is not asked", warned)
	}
}

// example is a spec in which the field of a path has a value.
func example(path, kind string) map[string]any {
	var value any = map[string]any{"string": "x", "any": "x", "boolean": true, "integer": int64(1),
		"object": map[string]any{}, "array": []any{}}[kind]
	segments := strings.Split(path, ".")
	for _, segment := range slices.Backward(segments) {
		name := strings.TrimSuffix(segment, "[]")
		if name != segment {
			if entry, is := value.(map[string]any); is && name == "patches" {
				value = merge(map[string]any{"path": "x"}, entry) // no patch is without
			}
			value = []any{value}
		}
		value = map[string]any{strings.Replace(name, "*", "x", 1): value}
	}
	return value.(map[string]any)
}

func merge(first, second map[string]any) map[string]any {
	maps.Copy(first, second)
	return first
}

// tenantClusterSpec is the schema of the spec.
func tenantClusterSpec(t *testing.T) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	crds, err := apis.ManagementCRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		if crd.Spec.Names.Kind == "TenantCluster" {
			spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
			return &spec
		}
	}
	t.Fatal("there are no TenantClusters")
	return nil
}

// typed returns whether a schema has the field of a path, and it is not in an object that is taken as it is.
func typed(schema *apiextensionsv1.JSONSchemaProps, path []string) bool {
	for _, segment := range path {
		name := strings.TrimSuffix(segment, "[]")
		if schema.AdditionalProperties != nil && name == "*" {
			schema = schema.AdditionalProperties.Schema
		} else if field, found := schema.Properties[name]; found {
			schema = &field
		} else {
			return false
		}
		if name != segment {
			schema = schema.Items.Schema
		}
		if schema.XPreserveUnknownFields != nil && len(schema.Properties) == 0 {
			return false
		}
	}
	return true
}

// vclusterField is what of a JSON schema says which fields there are.
type vclusterField struct {
	Ref        string                   `json:"$ref"`
	Type       string                   `json:"type"`
	Properties map[string]vclusterField `json:"properties"`
	// Items and AdditionalProperties are fields, or booleans.
	Items                json.RawMessage          `json:"items"`
	AdditionalProperties json.RawMessage          `json:"additionalProperties"`
	Definitions          map[string]vclusterField `json:"$defs"`
}

// writePaths writes the list from the schema.
func writePaths(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(*vclusterSchema)
	if err != nil {
		t.Fatal(err)
	}
	var root vclusterField
	if err := yaml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	var lines []string
	var visit func(path string, field vclusterField)
	visit = func(path string, field vclusterField) {
		for field.Ref != "" {
			field = root.Definitions[strings.TrimPrefix(field.Ref, "#/$defs/")]
		}
		before := len(lines)
		for _, name := range slices.Sorted(maps.Keys(field.Properties)) {
			visit(path+"."+name, field.Properties[name])
		}
		for suffix, raw := range map[string]json.RawMessage{"[]": field.Items, ".*": field.AdditionalProperties} {
			var value vclusterField
			if json.Unmarshal(raw, &value) == nil && (value.Type != "" || value.Ref != "") {
				visit(path+suffix, value)
			}
		}
		if len(lines) == before {
			if field.Type == "" {
				field.Type = "any"
			}
			lines = append(lines, path+" "+field.Type)
		}
	}
	for _, block := range inVclusterYAML {
		visit(block, root.Properties[block])
	}
	if len(lines) == len(inVclusterYAML) {
		t.Fatalf("%s has none of the blocks %v", *vclusterSchema, inVclusterYAML)
	}
	if err := os.WriteFile(vclusterPaths, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
