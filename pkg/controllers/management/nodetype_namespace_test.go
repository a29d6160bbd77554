// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestTenantNamespace: no server is used in a namespace that has a TenantCluster, also without the webhook, which would not have let the
// NodeProvider be. It says so, and ends when the TenantCluster goes.
func TestTenantNamespace(t *testing.T) {
	f := newFleet(t, nil)
	f.host("server-01")
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "acme"}}
	tenant.Spec.APIServerEndpoint = "acme.example.com:6443"
	f.create(tenant.DeepCopy())
	message := "namespace " + f.namespace + " of the servers has TenantCluster acme, whose provider may read the Secrets there, and so " +
		"the BMC credentials: no server is used before one of the two is in another namespace"
	available := v1alpha1.Capacity{Total: 1, Available: 1}
	const summary = "1 server matches, 0 claimed, 0 in error, 1 available"
	f.start()
	f.eventually("the server is not used", v1alpha1.Capacity{}, v1alpha1.ReasonTenantNamespace, v1alpha1.ReasonTenantNamespace, message)
	if _, found := f.inventory.Summary(f.nodeType.Name); found {
		t.Error("Machines can have servers of the type")
	}
	if err := environment.Client.Delete(t.Context(), tenant.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	f.eventually("without the tenant it is", available, v1alpha1.ReasonSynced, v1alpha1.ReasonAvailable, summary)
	f.create(tenant)
	f.eventually("with the tenant it is not", v1alpha1.Capacity{}, v1alpha1.ReasonTenantNamespace, v1alpha1.ReasonTenantNamespace, message)
}
