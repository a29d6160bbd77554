// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestAliases: each key of ours has one alias, which is in the domain of the reference, and is the alias of no other key.
func TestAliases(t *testing.T) {
	all := Aliases()
	for ours, alias := range all {
		if !strings.HasPrefix(ours, Group+"/") || !InDomain(alias, ReferenceDomain) {
			t.Errorf("%s has the alias %s", ours, alias)
		}
		for key, want := range map[string][2]string{ours: {ours, alias}, alias: {ours, alias}} {
			if got := [2]string{CanonicalKey(key), ReferenceKey(CanonicalKey(key))}; got != want {
				t.Errorf("%s is read as %v, want %v", key, got, want)
			}
			if got := Spellings(key); !slices.Equal(got, want[:]) {
				t.Errorf("%s has the keys %v, want %v", key, got, want)
			}
		}
	}
	if aliases := slices.Compact(slices.Sorted(maps.Values(all))); len(aliases) != len(all) {
		t.Errorf("%d keys have %d aliases", len(all), len(aliases))
	}
	const other = "example.com/team"
	if CanonicalKey(other) != other || ReferenceKey(other) != other || !slices.Equal(Spellings(other), []string{other}) {
		t.Error("a key of somebody else's is not what it was")
	}
}

// TestProperties: a program reads our keys, whichever the JSON has.
func TestProperties(t *testing.T) {
	ours, alias := PropertyOSImage, ReferenceKey(PropertyOSImage)
	for name, tc := range map[string]struct {
		reason       string
		json         string
		want, others Properties
	}{
		"None":      {"most maps have no such key", `{"a":"1"}`, Properties{"a": "1"}, Properties{}},
		"Nil":       {"an object without properties", `null`, nil, Properties{}},
		"Ours":      {"as it is written here", `{"` + ours + `":"1","a":"2"}`, Properties{ours: "1", "a": "2"}, Properties{alias: "1"}},
		"Reference": {"as it is written there", `{"` + alias + `":"1","a":"2"}`, Properties{ours: "1", "a": "2"}, Properties{alias: "1"}},
		"Same":      {"both have one meaning", `{"` + ours + `":"1","` + alias + `":"1"}`, Properties{ours: "1"}, Properties{alias: "1"}},
		"Both":      {"the webhook has to see it", `{"` + ours + `":"1","` + alias + `":"2"}`, Properties{ours: "1", alias: "2"}, Properties{}},
		"Empty": {"an empty value takes a value of a more general object away", `{"` + ours + `":"","` + alias + `":"2"}`,
			Properties{ours: "", alias: "2"}, Properties{}},
	} {
		t.Run(name, func(t *testing.T) {
			var got Properties
			if err := json.Unmarshal([]byte(tc.json), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.others, OtherSpellings(got)); diff != "" {
				t.Errorf("%s: by the other key (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(len(tc.want)+len(tc.others), len(got.InBothSpellings())); diff != "" {
				t.Errorf("%s: in both spellings (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	if err := json.Unmarshal([]byte(`{"a":1}`), &Properties{}); err == nil {
		t.Error("a value that is no string is read")
	}
}

// TestPropertyFields: each map of properties in our kinds has the type that reads the reference's keys.
func TestPropertyFields(t *testing.T) {
	builder := runtime.NewScheme()
	if err := AddToScheme(builder); err != nil {
		t.Fatal(err)
	}
	seen, fields := map[reflect.Type]bool{}, 0
	var walk func(path string, kind reflect.Type)
	walk = func(path string, kind reflect.Type) {
		for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice || kind.Kind() == reflect.Map {
			kind = kind.Elem()
		}
		if kind.Kind() != reflect.Struct || seen[kind] {
			return
		}
		seen[kind] = true
		for field := range kind.Fields() {
			if field.Name == "Properties" && field.Type.Kind() == reflect.Map {
				if fields++; field.Type != reflect.TypeFor[Properties]() {
					t.Errorf("%s.%s is a %s, want Properties", path, field.Name, field.Type)
				}
			}
			walk(path+"."+field.Name, field.Type)
		}
	}
	for name, kind := range builder.KnownTypes(GroupVersion) {
		walk(name, kind)
	}
	if fields < 6 {
		t.Errorf("%d maps of properties in all kinds, want more", fields)
	}
}
