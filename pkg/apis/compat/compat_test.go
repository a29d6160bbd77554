// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTypeNames: the reference writes PROVIDER.TYPE, and a type may have such a name itself.
func TestTypeNames(t *testing.T) {
	exists := func(name string) bool { return name == "p.own" }
	got := TypeNames([]string{"p.a", "p.own", "q.a", "p", "a"}, "p", exists)
	if diff := cmp.Diff([]string{"a", "p.own", "q.a", "p", "a"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
