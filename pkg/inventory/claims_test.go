// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Claims are numbered as they are decided, and a type whose counts include one says so, also after a restart.
func TestClaimNumbers(t *testing.T) {
	i := rack()
	last := func(want int64) {
		t.Helper()
		if summary, _ := i.Summary("h100-8x"); summary.LastClaim != want || summary.Claims < want {
			t.Errorf("the counts include claim %d of %d, want %d", summary.LastClaim, summary.Claims, want)
		}
	}
	key := func(choice Choice) types.NamespacedName {
		return types.NamespacedName{Namespace: choice.Host.Namespace, Name: choice.Host.Name}
	}
	i.ResumeClaims(types.NamespacedName{}, "", 41) // what another type counts
	last(0)
	choice, err := i.Choose(Request{Machine: "a", NodeType: "h100-8x"})
	if err != nil || !i.Assume(choice, "a") {
		t.Fatalf("there is no host: %v", err)
	}
	last(42)
	for range 2 {
		if got := i.ClaimNumber(key(choice), "a", "h100-8x"); got != 42 {
			t.Errorf("the claim has number %d, want that of its decision, 42", got)
		}
	}
	i.Forget(key(choice), "a")
	if !i.Assume(choice, "b") {
		t.Fatal("the host is free and cannot be had")
	}
	last(43)
	if got := i.ClaimNumber(key(choice), "a", "h100-8x"); got != 44 {
		t.Errorf("a claim that an earlier process decided has number %d, want the next, 44", got)
	}
	last(44)
	i.ResumeClaims(key(choice), "gone", 50)
	last(50)
}
