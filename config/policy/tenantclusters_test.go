// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestTenantClusters: a provider reports of its cluster, and does not decide which one is its tenant's.
func TestTenantClusters(t *testing.T) {
	namespace := environment.Namespace(t)
	hostNamespace(t, "metal3-system")
	environment.Grant(t, namespace, "provider-management.yaml", "manager.yaml")
	policies, err := load("tenantclusters.yaml", Options{}.functions())
	if err != nil {
		t.Fatal(err)
	}
	type status = v1alpha1.TenantClusterStatus
	devices := func(classes ...string) *v1alpha1.AllowedDevices {
		return &v1alpha1.AllowedDevices{DeviceClasses: classes}
	}
	cases := map[string]struct {
		reason        string
		user          string
		before, after status
		refuse        string
	}{
		"Report": {reason: "what its kubeconfig leads to", user: ProviderUser, after: status{ObservedClusterUID: env.UID("a")}},
		"Condition": {reason: "what the provider does", user: ProviderUser, before: status{ClusterUID: env.UID("a")},
			after: status{ClusterUID: env.UID("a"), KubernetesVersion: "v1.35", Conditions: []metav1.Condition{{Type: v1alpha1.ConditionPoolsSynced,
				Status: metav1.ConditionTrue, Reason: "Synced", LastTransitionTime: metav1.Now()}}}},
		"Decide": {reason: "another tenant's cluster", user: ProviderUser, before: status{ObservedClusterUID: env.UID("a")},
			after: status{ObservedClusterUID: env.UID("a"), ClusterUID: env.UID("a")}, refuse: "clusterUID would change"},
		"Change": {reason: "another tenant's cluster", user: ProviderUser, before: status{ClusterUID: env.UID("a")},
			after: status{ClusterUID: env.UID("b")}, refuse: "clusterUID would change"},
		"Forget": {reason: "the next report would be believed", user: ProviderUser, before: status{ClusterUID: env.UID("a")},
			refuse: "clusterUID would change"},
		"Rollout": {reason: "operators read it", user: ProviderUser, after: status{Rollout: &v1alpha1.RolloutStatus{Total: 1}},
			refuse: "rollout would change"},
		"Devices": {reason: "claims would be compared with it", user: ProviderUser, before: status{AllowedDevices: devices("slice")},
			after: status{AllowedDevices: devices("slice", "whole")}, refuse: "allowedDevices would change"},
		"FirstDevices": {reason: "as before", user: ProviderUser, after: status{AllowedDevices: devices("whole")},
			refuse: "allowedDevices would change"},
		"Manager": {reason: "it decides", user: ManagerUser, before: status{ClusterUID: env.UID("a")},
			after: status{ClusterUID: env.UID("b"), Rollout: &v1alpha1.RolloutStatus{Total: 1}, AllowedDevices: devices("slice")}},
	}
	attempt := func(t *testing.T, user string, before, after status) error {
		t.Helper()
		cluster := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "t-"}}
		cluster.Spec.APIServerEndpoint = "tenant.example.com:6443"
		if err := environment.Client.Create(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		cluster.Status = before
		if err := environment.Client.Status().Update(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		changed := cluster.DeepCopy()
		changed.Status = after
		return environment.As(t, user).Status().Patch(t.Context(), changed, client.MergeFrom(cluster), &client.SubResourcePatchOptions{
			PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
	}
	changes := func() error { return attempt(t, ProviderUser, cases["Change"].before, cases["Change"].after) }
	withoutPolicies(t, changes)
	for name, tc := range cases {
		if err := attempt(t, tc.user, tc.before, tc.after); err != nil {
			t.Errorf("%s: without the policy there is nothing to refuse: %v", name, err)
		}
	}
	enforce(t, policies, changes)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			judge(t, tc.reason, attempt(t, tc.user, tc.before, tc.after), tc.refuse == "", tc.refuse)
		})
	}
}
