// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// TestManager uses rights of the manager that no sandbox test uses: it releases an address, deletes a NodeType that its
// NodeProvider no longer names while a Machine has a server of it, deletes the Machines of a TenantCluster that goes, and the record of a
// server that is gone.
func TestManager(t *testing.T) {
	cluster := management.New(t, map[string]string{
		v1alpha1.PropertyNetworkCIDR: "192.168.100.1/24", v1alpha1.PropertyNetworkIPRange: "192.168.100.10-192.168.100.15",
	})
	cluster.CreateHosts(t, 1)
	cluster.StartManager(t, "KARPENTER_METAL3_USAGE_RETENTION=1ns")
	cluster.PlayMetal3(t)
	machine := management.Machine(0)
	machine.Spec.Bootstrap.DataSecretName = management.UserDataName
	if err := cluster.Client.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	is := func(what string, reached func() bool) {
		t.Helper()
		poll.Eventually(t, "the Machine "+what, func(ctx context.Context) error {
			if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
				return err
			}
			if !reached() {
				return fmt.Errorf("it is %s: %+v", machine.Status.Phase, machine.Status.Conditions)
			}
			return nil
		})
	}
	is("is provisioned", func() bool { return machine.Status.Phase == v1alpha1.MachineProvisioned })
	if count := addresses(t, cluster); count != 1 {
		t.Fatalf("there are %d addresses, want that of the Machine", count)
	}

	name := machine.Spec.NodeTypeRef.Name
	poll.Eventually(t, "the type is dropped", func(ctx context.Context) error {
		provider := &v1alpha1.NodeProvider{}
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: "fleet"}, provider); err != nil {
			return err
		}
		provider.Spec.Metal3.NodeTypes = slices.DeleteFunc(provider.Spec.Metal3.NodeTypes,
			func(template v1alpha1.NodeTypeTemplate) bool { return template.Name == name })
		return cluster.Client.Update(ctx, provider)
	})
	gone := func(what string, object client.Object) {
		t.Helper()
		poll.Eventually(t, what+" is gone", func(ctx context.Context) error {
			if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it still exists: %w", err)
			}
			return nil
		})
	}
	nodeType := &v1alpha1.NodeType{}
	nodeType.Name = name
	gone("the type", nodeType)

	patch := `{"spec":{"node":{"name":"node"}}}`
	if err := cluster.Client.Patch(t.Context(), machine, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
	is("has joined all the same", func() bool { return machine.Status.Phase == v1alpha1.MachineJoined })
	tenant := &v1alpha1.TenantCluster{}
	tenant.Namespace, tenant.Name = machine.Namespace, machine.Spec.TenantClusterRef.Name
	if err := cluster.Client.Delete(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	gone("the Machine", machine)
	gone("the TenantCluster", tenant)
	if count := addresses(t, cluster); count != 0 {
		t.Errorf("%d addresses are left", count)
	}
	for _, host := range cluster.Hosts(t) {
		if err := cluster.Client.Delete(t.Context(), &host); err != nil {
			t.Fatal(err)
		}
		gone("the record of the server", &v1alpha1.HostUsage{ObjectMeta: metav1.ObjectMeta{Namespace: host.Namespace, Name: host.Name}})
	}
}

func addresses(t *testing.T, cluster *management.Cluster) int {
	t.Helper()
	list := &v1alpha1.IPAddressList{}
	if err := cluster.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}
