// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestKeysOfMaps(t *testing.T) {
	ours, alias := PropertyOSImage, ReferenceKey(PropertyOSImage)
	for name, tc := range map[string]struct {
		reason                       string
		values, canonical, otherwise map[string]string
	}{
		"None": {"most maps have no such key", map[string]string{"a": "1"}, map[string]string{"a": "1"}, map[string]string{}},
		"Nil":  {"an object without properties", nil, nil, map[string]string{}},
		"Ours": {"as it is written here", map[string]string{ours: "1", "a": "2"}, map[string]string{ours: "1", "a": "2"},
			map[string]string{alias: "1"}},
		"Reference": {"as it is written there", map[string]string{alias: "1", "a": "2"}, map[string]string{ours: "1", "a": "2"},
			map[string]string{ours: "1"}},
		"Both": {"ours wins without admission", map[string]string{ours: "1", alias: "2"}, map[string]string{ours: "1"},
			map[string]string{}},
		"Empty": {"an empty value is one, and takes that of a more general object away", map[string]string{ours: "", alias: "2"},
			map[string]string{ours: ""}, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			given := maps.Clone(tc.values)
			for what, pair := range map[string][2]map[string]string{
				"by our keys":      {tc.canonical, ByCanonicalKey(tc.values)},
				"by the other key": {tc.otherwise, OtherSpellings(tc.values)},
				"what was given":   {given, tc.values},
			} {
				if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
					t.Errorf("%s: %s (-want +got):\n%s", tc.reason, what, diff)
				}
			}
			if got := Value(tc.values, ours); got != tc.canonical[ours] {
				t.Errorf("%s: the value is %q, want %q", tc.reason, got, tc.canonical[ours])
			}
		})
	}
}
