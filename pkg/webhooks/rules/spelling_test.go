// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// spelled applies the patches for an object, and returns it.
func spelled(t *testing.T, kind Kind, object map[string]any) (Result, map[string]any) {
	t.Helper()
	result, patches := Spelling(kind, object)
	after := runtime.DeepCopyJSON(object)
	for _, patch := range patches {
		if patch.Operation != "replace" {
			t.Fatalf("not a replacement: %s", patch.Json())
		}
		replaced(t, after, strings.Split(patch.Path, "/")[1:], patch.Value)
	}
	return result, after
}

// replaced replaces the value at a path, which must be there.
func replaced(t *testing.T, in any, path []string, value any) {
	t.Helper()
	switch in := in.(type) {
	case map[string]any:
		if there, found := in[path[0]]; found && len(path) > 1 {
			replaced(t, there, path[1:], value)
			return
		} else if found {
			in[path[0]] = value
			return
		}
	case []any:
		if i, err := strconv.Atoi(path[0]); err == nil && i < len(in) && len(path) == 1 {
			in[i] = value
			return
		}
	}
	t.Fatalf("there is no %v in %v", path, in)
}

func TestSpelling(t *testing.T) {
	const (
		pools   = "spec.privateNodes.autoNodes: is stored as a list: write autoNodes: [{provider: ...}]"
		allowed = "spec.allowedNodeTypes: is stored as a list of names: write allowedNodeTypes: [...]"
		ref     = "spec.providerRef: is stored as an object: write providerRef: {name: ...}"
	)
	for name, tc := range map[string]struct {
		reason      string
		kind        Kind
		given, want string
		warnings    []string
	}{
		"Pools": {"a map is one entry", KindTenantCluster, "{privateNodes: {enabled: true, autoNodes: {provider: a, static: [{name: s}]}}}",
			"{privateNodes: {enabled: true, autoNodes: [{provider: a, static: [{name: s}]}]}}", []string{pools}},
		"NoPools": {"an empty map is no entry", KindTenantCluster, "{privateNodes: {autoNodes: {}}}", "{privateNodes: {autoNodes: []}}",
			[]string{pools}},
		"PoolsList": {"a list stays", KindTenantCluster, "{privateNodes: {autoNodes: [{provider: a}]}}", "", nil},
		"PoolsText": {"the schema refuses it", KindTenantCluster, "{privateNodes: {autoNodes: a}}", "", nil},
		"Allowed": {"objects beside names", KindTenantCluster, "{allowedNodeTypes: [{name: aws.*}, h100, {name: metal3.cpu}]}",
			"{allowedNodeTypes: [aws.*, h100, metal3.cpu]}", []string{allowed}},
		"AllowedElse": {"the schema refuses what has no name alone", KindTenantCluster,
			"{allowedNodeTypes: [{name: a, more: b}, {}, {name: 1}, [a], null]}", "", nil},
		"AllowedMap": {"the schema refuses it", KindTenantCluster, "{allowedNodeTypes: {name: a}}", "", nil},
		"Both": {"each field has its warning", KindTenantCluster, "{allowedNodeTypes: [{name: a}], privateNodes: {autoNodes: {provider: a}}}",
			"{allowedNodeTypes: [a], privateNodes: {autoNodes: [{provider: a}]}}", []string{pools, allowed}},
		"Reference":       {"a name is a reference", KindNodeType, "{providerRef: a}", "{providerRef: {name: a}}", []string{ref}},
		"ReferenceObject": {"an object stays", KindNodeType, "{providerRef: {name: a}}", "", nil},
		"OtherKind":       {"fields of other kinds stay", KindNodeProvider, "{providerRef: a, allowedNodeTypes: [{name: a}]}", "", nil},
		"NoObject":        {"nothing to look into", KindTenantCluster, "a", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			parsed := func(text string) map[string]any {
				object := map[string]any{}
				if err := yaml.Unmarshal([]byte("spec: "+text), &object); err != nil {
					t.Fatal(err)
				}
				return object
			}
			want := tc.want
			if want == "" {
				want = tc.given
			}
			result, got := spelled(t, tc.kind, parsed(tc.given))
			if diff := cmp.Diff(parsed(want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.warnings, result.Warnings); diff != "" || !result.Allowed() {
				t.Errorf("%s: warnings (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// FuzzSpelling: whatever an object holds, the patches can be applied, nothing is left for a second time, and what a client can read is
// not changed.
func FuzzSpelling(f *testing.F) {
	f.Add(true, `{"spec":{"privateNodes":{"autoNodes":{"provider":"a"}},"allowedNodeTypes":[{"name":"a"},"b",{"name":"c","d":1},[]]}}`)
	f.Add(true, `{"spec":{"privateNodes":[],"allowedNodeTypes":{"0":{"name":"a"}}}}`)
	f.Add(false, `{"spec":{"providerRef":"a"}}`)
	f.Add(false, `{"spec":{"providerRef":{"name":"a"}}}`)
	f.Fuzz(func(t *testing.T, tenant bool, text string) {
		object := map[string]any{}
		if len(text) > 1<<16 || json.Unmarshal([]byte(text), &object) != nil || object == nil {
			return
		}
		kind, decoded := KindNodeType, any(&v1alpha1.NodeType{})
		if tenant {
			kind, decoded = KindTenantCluster, &v1alpha1.TenantCluster{}
		}
		readable := json.Unmarshal([]byte(text), decoded) == nil
		result, after := spelled(t, kind, object)
		checkResult(t, result)
		if changed := len(result.Warnings) > 0; changed && readable {
			t.Errorf("a client reads it, and it is changed: %s", text)
		}
		again, same := spelled(t, kind, after)
		if len(again.Warnings) > 0 || !cmp.Equal(after, same) {
			t.Errorf("changed a second time: %s", text)
		}
	})
}
