// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"
	"fmt"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

const (
	// HostsNamespace holds the BareMetalHosts.
	HostsNamespace = "metal3-system"
	// TenantNamespace holds the Machines and the TenantCluster.
	TenantNamespace = "tenant"
	// UserDataName is the Secret that a Machine can name as its bootstrap data.
	UserDataName = "user-data"
	// types is the number of NodeTypes.
	types = 10
	// connections is the number of concurrent requests of the set-up.
	connections = 16
)

// Cluster is a management cluster.
type Cluster struct{ *env.Environment }

// New starts an API server with our admission policies, a fleet of ten types, and a tenant. properties are those of the fleet.
func New(t testing.TB, properties map[string]string) *Cluster {
	t.Helper()
	cluster := &Cluster{Environment: env.NewEnvironment(t)}
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
	provider.Spec.Metal3.ClusterRef.Namespace = HostsNamespace
	provider.Spec.Properties = map[string]string{
		v1alpha1.PropertyImageURL: "http://images.example.com/os.qcow2", v1alpha1.PropertyImageChecksum: "d41d8cd98f00b204e9800998ecf8427e",
	}
	for key, value := range properties {
		provider.Spec.Properties[key] = value
	}
	for n := range types {
		template := v1alpha1.NodeTypeTemplate{Name: typeName(n)}
		template.Resources = env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")
		template.BareMetalHosts = env.HostsWith(map[string]string{"kind": typeName(n)})
		provider.Spec.Metal3.NodeTypes = append(provider.Spec.Metal3.NodeTypes, template)
	}
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: TenantNamespace, Name: "tenant"}}
	tenant.Spec.APIServerEndpoint = "tenant.example.com:6443"
	tenant.Spec.TenantProperties = &v1alpha1.TenantProperties{Keys: []string{"*"}}
	policies, err := policy.Management(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range append(policies,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: HostsNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: TenantNamespace}},
		provider, tenant,
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: TenantNamespace, Name: UserDataName},
			Data:       map[string][]byte{v1alpha1.UserDataSecretKey: []byte("#cloud-config\nruncmd:\n- [kubeadm, join]\n")},
		},
	) {
		if err := cluster.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T %s, %v", object, object.GetName(), err)
		}
	}
	return cluster
}

func typeName(n int) string { return fmt.Sprintf("type-%d", n%types) }

// CreateHosts creates a number of hosts that can be claimed, of all types in turn, 20 to a rack.
func (c *Cluster) CreateHosts(t testing.TB, count int) {
	t.Helper()
	c.createHosts(t, count, func(*bmov1alpha1.BareMetalHost) {})
}

// CreateInspectedHosts is CreateHosts with all that Metal3's inspection finds in a big GPU server.
func (c *Cluster) CreateInspectedHosts(t testing.TB, count int) {
	t.Helper()
	c.createHosts(t, count, Inspect)
}

func (c *Cluster) createHosts(t testing.TB, count int, complete func(*bmov1alpha1.BareMetalHost)) {
	t.Helper()
	Each(t, count, func(ctx context.Context, n int) error {
		host := env.AvailableHost(HostsNamespace, fmt.Sprintf("server-%05d", n), map[string]string{
			"kind": typeName(n), "rack": fmt.Sprintf("rack-%04d", n/20), "datacenter": fmt.Sprintf("dc-%d", n/200%4),
		})
		host.Spec.BootMACAddress = fmt.Sprintf("00:00:5e:%02x:%02x:%02x", n>>16&0xff, n>>8&0xff, n&0xff)
		complete(host)
		status := host.Status.DeepCopy()
		if err := c.Client.Create(ctx, host); err != nil {
			return fmt.Errorf("creating host %s, %w", host.Name, err)
		}
		host.Status = *status
		return c.Client.Status().Update(ctx, host)
	})
}

// Machine makes the n-th Machine of the tenant, in memory. The types take turns.
func Machine(n int) *v1alpha1.Machine {
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: TenantNamespace, Name: fmt.Sprintf("machine-%05d", n)}}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: typeName(n)}
	machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "tenant"}
	return machine
}

// Hosts reads all hosts.
func (c *Cluster) Hosts(t testing.TB) []bmov1alpha1.BareMetalHost {
	t.Helper()
	list := &bmov1alpha1.BareMetalHostList{}
	if err := c.Client.List(t.Context(), list, client.InNamespace(HostsNamespace)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// Each calls do for every number below count, several at a time, and fails the test with the first error.
func Each(t testing.TB, count int, do func(ctx context.Context, n int) error) {
	t.Helper()
	EachOf(t, connections, count, do)
}

// EachOf is Each with a number of workers.
func EachOf(t testing.TB, workers, count int, do func(ctx context.Context, n int) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(workers)
	for n := range count {
		group.Go(func() error { return do(ctx, n) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}
