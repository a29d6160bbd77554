// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"
	"strings"
)

// HookKey is the annotation of the hook of that name.
func HookKey(prefix, name string) string { return prefix + "/" + name }

// Hooks returns the names of the hooks with the prefix that annotations hold, sorted.
func Hooks(annotations map[string]string, prefix string) []string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if name, found := strings.CutPrefix(key, prefix+"/"); found {
			names = append(names, name)
		}
	}
	return names
}
