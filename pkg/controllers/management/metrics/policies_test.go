// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestPolicies: a policy is missing as long as it or its binding is.
func TestPolicies(t *testing.T) {
	c := env.Fake(t).Client
	p := NewPolicies(c, []string{"a"})
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	policy.Name, binding.Name = "a", "a"
	check := func(want float64, when string) {
		t.Helper()
		if p.look(t.Context()); testutil.ToFloat64(p.missing) != want {
			t.Errorf("%s it is %v, want %v", when, testutil.ToFloat64(p.missing), want)
		}
	}
	check(1, "without both")
	if err := c.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	check(1, "without a binding")
	if err := c.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	check(0, "with both")
	if err := c.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	check(1, "without the policy")
}
