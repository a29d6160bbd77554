// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package management is a management cluster for measurements: a real API server, and the real manager as a separate
// process. The test emulates Metal3, as fast as the API server allows.
package management

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
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
	policies, err := policy.Management(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cluster.create(t, policies...)
	cluster.Fill(t, properties)
	return cluster
}

// Fill creates a fleet of ten types, and a tenant, on an API server with our definitions and policies.
func (c *Cluster) Fill(t testing.TB, properties map[string]string) {
	t.Helper()
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
	c.create(t,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: HostsNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: TenantNamespace}},
		provider, tenant,
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: TenantNamespace, Name: UserDataName},
			Data:       map[string][]byte{v1alpha1.UserDataSecretKey: []byte("#cloud-config\nruncmd:\n- [kubeadm, join]\n")},
		},
	)
}

func (c *Cluster) create(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T %s, %v", object, object.GetName(), err)
		}
	}
}

// HostName is the name of the n-th host.
func HostName(n int) string { return fmt.Sprintf("server-%05d", n) }

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
		host := env.AvailableHost(HostsNamespace, HostName(n), map[string]string{
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

const (
	inspectedFlags = 180 // flags of a CPU
	inspectedNICs  = 12
	inspectedDisks = 10
)

// inspect gives a host the hardware details of a server with eight GPUs, so that an object is as big as a real one.
func Inspect(host *bmov1alpha1.BareMetalHost) {
	details := &bmov1alpha1.HardwareDetails{
		SystemVendor: bmov1alpha1.HardwareSystemVendor{Manufacturer: "Example Corporation", ProductName: "GPU Server 8x",
			SerialNumber: host.Name},
		Firmware:     bmov1alpha1.Firmware{BIOS: bmov1alpha1.BIOS{Date: "11/02/2025", Vendor: "Example Corporation", Version: "2.19.0"}},
		RAMMebibytes: 768 << 10,
		Hostname:     host.Name + ".example.com",
		CPU:          bmov1alpha1.CPU{Arch: "x86_64", Model: "Example Platinum 8480+", ClockMegahertz: 3800, Count: 96},
	}
	for n := range inspectedFlags {
		details.CPU.Flags = append(details.CPU.Flags, fmt.Sprintf("cpu_flag_%03d", n))
	}
	for n := range inspectedNICs {
		details.NIC = append(details.NIC, bmov1alpha1.NIC{
			Name: fmt.Sprintf("ens%df0np0", n), Model: "0x15b3 0x1021", MAC: fmt.Sprintf("00:00:5e:00:53:%02x", n),
			IP:        fmt.Sprintf("192.0.2.%d", n+1),
			SpeedGbps: 400, PXE: n == 0,
		})
	}
	for n := range inspectedDisks {
		details.Storage = append(details.Storage, bmov1alpha1.Storage{
			Name: fmt.Sprintf("/dev/disk/by-path/pci-0000:%02x:00.0-nvme-1", n), AlternateNames: []string{fmt.Sprintf("/dev/nvme%dn1", n)},
			SizeBytes: 3840 << 30, Vendor: "Example", Model: "NVME EXAMPLE 3.84TB", SerialNumber: fmt.Sprintf("%s-%02d", host.Name, n),
			WWN: fmt.Sprintf("eui.00000000000000%02x", n), Type: bmov1alpha1.NVME,
		})
	}
	host.Status.HardwareDetails = details
}

// fleeting are kinds whose objects come and go by themselves, or that are deprecated.
var fleeting = []string{"events", "leases", "componentstatuses", "endpoints"}

// Objects returns the names of all objects of the API server, except events and leases.
func (c *Cluster) Objects(t testing.TB) []string {
	t.Helper()
	found, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := found.ServerPreferredResources()
	if err != nil {
		t.Fatalf("listing kinds, %v", err)
	}
	reader, err := metadata.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, group := range kinds {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range group.APIResources {
			if !slices.Contains(kind.Verbs, "list") || slices.Contains(fleeting, kind.Name) || strings.Contains(kind.Name, "/") {
				continue
			}
			list, err := reader.Resource(version.WithResource(kind.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("listing %s, %v", kind.Name, err)
			}
			for _, object := range list.Items {
				names = append(names, kind.Name+" "+object.Namespace+"/"+object.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}
