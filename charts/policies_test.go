// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
)

// TestPolicies: the chart's policies are those of config/policy, and are installed by default.
func TestPolicies(t *testing.T) {
	account := func(name string) string { return "system:serviceaccount:" + namespace + ":" + name }
	manager := account(policy.ManagerUser)
	management := func(options policy.Options) func() ([]client.Object, error) {
		return func() ([]client.Object, error) { return policy.Management(options) }
	}
	tenant := func(provider, namespace string) func() ([]client.Object, error) {
		return func() ([]client.Object, error) { return policy.Tenant(provider, namespace) }
	}
	elsewhere := []string{"--set=target=tenant", "--set=access.createServiceAccount=false"}
	for name, tc := range map[string]struct {
		reason string
		chart  string
		flags  []string
		want   func() ([]client.Object, error)
	}{
		"Default": {reason: "the manager and the administrators", chart: Management,
			want: management(policy.Options{Managers: []string{manager}})},
		"Others": {reason: "the values name more", chart: Management,
			flags: []string{"--set=policies.users={velero,network}", "--set=policies.groups={a,b}"},
			want:  management(policy.Options{Managers: []string{manager}, Users: []string{"velero", "network"}, Groups: []string{"a", "b"}})},
		"Accounts": {reason: "accounts with names of their own", chart: Management,
			flags: []string{"--set=manager.serviceAccount.name=servers", "--set=webhook.serviceAccount.name=refuser"},
			want: management(policy.Options{Managers: []string{account("servers")},
				Renamed: map[string]string{account("servers"): policy.ManagerUser}})},
		"Tenant": {reason: "the provider's account in the tenant cluster", chart: Tenant, flags: []string{"--set=target=tenant"},
			want: tenant("system:serviceaccount:"+namespace+":karpenter-metal3-provider", "")},
		"TenantNamespace": {reason: "the tokens are of Machines there", chart: Tenant,
			flags: []string{"--set=target=tenant", "--set=access.tenantNamespace=acme"},
			want:  tenant("system:serviceaccount:"+namespace+":karpenter-metal3-provider", "acme")},
		"TenantUser": {reason: "a user whose name has to be quoted", chart: Tenant,
			flags: append([]string{"--set=access.subject.kind=User", "--set=access.subject.name=it's"}, elsewhere...), want: tenant("it's", "")},
		"TenantAccount": {reason: "a service account of another namespace", chart: Tenant,
			flags: append([]string{"--set=access.subject.kind=ServiceAccount", "--set=access.subject.name=p",
				"--set=access.subject.namespace=acme"}, elsewhere...), want: tenant("system:serviceaccount:acme:p", "")},
		"Provider": {reason: "they are in the chart of the management cluster", chart: Tenant,
			want: func() ([]client.Object, error) { return nil, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := tc.want()
			if err != nil {
				t.Fatal(err)
			}
			objects := render(t, tc.chart, tc.flags...)
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
