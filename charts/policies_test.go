// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
)

// TestPolicies: the chart's policies are those of config/policy, and are installed by default.
func TestPolicies(t *testing.T) {
	manager := "system:serviceaccount:" + namespace + ":karpenter-metal3-manager"
	for name, tc := range map[string]struct {
		reason  string
		flags   []string
		options policy.Options
	}{
		"Default": {reason: "the manager and the administrators", options: policy.Options{Managers: []string{manager}}},
		"Others": {reason: "the values name more", flags: []string{"--set=policies.users={velero,network}", "--set=policies.groups={a,b}"},
			options: policy.Options{Managers: []string{manager}, Users: []string{"velero", "network"}, Groups: []string{"a", "b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := policy.Management(tc.options)
			if err != nil {
				t.Fatal(err)
			}
			objects := render(t, Management, tc.flags...)
			policies := ofKind[admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, "ValidatingAdmissionPolicy")
			bindings := ofKind[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, objects, "ValidatingAdmissionPolicyBinding")
			if len(policies)+len(bindings) != len(want) {
				t.Errorf("%s: %d policies and %d bindings, want %d", tc.reason, len(policies), len(bindings), len(want))
			}
			for _, object := range want {
				var diff string
				switch object := object.(type) {
				case *admissionregistrationv1.ValidatingAdmissionPolicy:
					diff = cmp.Diff(object.Spec, policies[object.Name].Spec)
				case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
					diff = cmp.Diff(object.Spec, bindings[object.Name].Spec)
				}
				if diff != "" {
					t.Errorf("%s: %T %s (-want +got):\n%s", tc.reason, object, object.GetName(), diff)
				}
			}
		})
	}
	for _, object := range render(t, Management, "--set=policies.enabled=false") {
		if kind := object.GetKind(); kind == "ValidatingAdmissionPolicy" || kind == "ValidatingAdmissionPolicyBinding" {
			t.Errorf("%s %s is disabled and there", kind, object.GetName())
		}
	}
}
