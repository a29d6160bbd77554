// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestAliases: a property under both of its keys is refused if the values differ, and is as one if they do not. Under either key alone a
// value is judged alike.
func TestAliases(t *testing.T) {
	for ours, alias := range v1alpha1.Aliases() {
		t.Run(ours, func(t *testing.T) {
			judge := func(values map[string]string) []string {
				r := &Result{}
				r.values(nil, properties.Layer{Source: "NodeType h100", Values: env.Properties(t, values)})
				result := r.done()
				var messages []string
				for _, err := range result.Errors {
					messages = append(messages, err.Error())
				}
				return append(messages, result.Warnings...)
			}
			alone := judge(map[string]string{ours: "a"})
			for what, values := range map[string]map[string]string{"the alias": {alias: "a"}, "both": {ours: "a", alias: "a"}} {
				got := strings.ReplaceAll(strings.Join(judge(values), "\n"), alias, ours)
				if !strings.Contains(got, strings.Join(alone, "\n")) {
					t.Errorf("%s: %q, want %q", what, got, alone)
				}
				if strings.Contains(got, "another value") {
					t.Errorf("%s: %q", what, got)
				}
			}
			differ := strings.Join(judge(map[string]string{ours: "a", alias: "bb"}), "\n")
			if !strings.Contains(differ, `["`+ours+`"]: Invalid value: "`) ||
				!strings.Contains(differ, `has another value under its alias `+alias+` ("`) || !strings.Contains(differ, "write one of the two") {
				t.Errorf("two values: %q", differ)
			}
		})
	}
}
