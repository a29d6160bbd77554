// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/google/go-cmp/cmp"
	"github.com/samber/lo"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// memory is a cluster without an API server.
type memory struct {
	providers []*v1alpha1.NodeProvider
	types     []*v1alpha1.NodeType
	tenants   []*v1alpha1.TenantCluster
	machines  []*v1alpha1.Machine
	exists    map[Kind][]string
	users     map[Kind]map[string][]string
	labels    map[string]string
	inventory *inventory.Inventory
}

func (m *memory) NodeProviders() []*v1alpha1.NodeProvider { return m.providers }
func (m *memory) NodeTypes() []*v1alpha1.NodeType         { return m.types }
func (m *memory) NodeType(name string) *v1alpha1.NodeType {
	for _, nodeType := range m.types {
		if nodeType.Name == name {
			return nodeType
		}
	}
	return nil
}

func (m *memory) Exists(kind Kind, name string) bool {
	if kind == KindNodeProvider {
		return providerNamed(m, name) != nil
	}
	return slices.Contains(m.exists[kind], name)
}

func (m *memory) TenantClusters(namespace string) []*v1alpha1.TenantCluster {
	var found []*v1alpha1.TenantCluster
	for _, tenant := range m.tenants {
		if namespace == metav1.NamespaceAll || tenant.Namespace == namespace {
			found = append(found, tenant)
		}
	}
	return found
}

func (m *memory) NamespaceLabels(string) map[string]string { return m.labels }

func (m *memory) PinnedTo(server string) []*v1alpha1.Machine {
	var found []*v1alpha1.Machine
	for _, machine := range m.machines {
		if machine.Spec.Properties[v1alpha1.PropertyServerName] == server {
			found = append(found, machine)
		}
	}
	return found
}

func (m *memory) Charged(tenant types.NamespacedName) []*v1alpha1.Machine {
	return quota.Charged(tenant.Name, m.TenantClusters(tenant.Namespace), lo.FilterMap(m.machines,
		func(machine *v1alpha1.Machine, _ int) (v1alpha1.Machine, bool) {
			return *machine, machine.Namespace == tenant.Namespace
		}))
}

func (m *memory) Users(kind Kind, name string) []string { return m.users[kind][name] }
func (m *memory) QuotaRest(tenant *v1alpha1.TenantCluster, machine *v1alpha1.Machine) quota.Rest {
	used := quota.Used(m.Charged(client.ObjectKeyFromObject(tenant)), machine.UID, nil)
	return quota.RestOf(tenant, used, func(name string) int64 { return m.NodeType(name).Spec.CountAccelerators() })
}
func (m *memory) Server(key types.NamespacedName) (inventory.Server, bool) {
	return m.inventory.Server(key)
}
func (m *memory) Offered(nodeType string) []v1alpha1.NodeTypeRequirement {
	summary, _ := m.inventory.Summary(nodeType)
	return summary.Requirements
}
func (m *memory) Inherits(label string) bool { return m.inventory.Inherits(label) }
func (m *memory) Choose(request inventory.Request) (inventory.Choice, error) {
	return m.inventory.Choose(request)
}

// server registers a server; without a label it is in none of the types.
func (m *memory) server(name string, set map[string]string, change ...func(*bmov1alpha1.BareMetalHost)) {
	host := &bmov1alpha1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal3-system", Name: name, UID: types.UID(name), Labels: set},
		Status: bmov1alpha1.BareMetalHostStatus{
			OperationalStatus: bmov1alpha1.OperationalStatusOK,
			Provisioning:      bmov1alpha1.ProvisionStatus{State: bmov1alpha1.StateAvailable},
		},
	}
	for _, change := range change {
		change(host)
	}
	m.inventory.SetHost(host)
}

// smaller is a server on which inspection has found fewer threads than the type h100 has.
func smaller(host *bmov1alpha1.BareMetalHost) {
	host.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{CPU: bmov1alpha1.CPU{Count: 64}}
}

const fleetYAML = `
metadata: {name: fleet}
spec:
  metal3:
    clusterRef: {namespace: metal3-system}
    nodeTypes:
    - {name: h100, resources: {cpu: 96, memory: 768Gi, nvidia.com/gpu: 8}, bareMetalHosts: {selector: {matchLabels: {gpu: h100}}}, properties: {tier: gold, fabrics: 'roce,infiniband', anything: '*', karpenter.metal3.io/os-image: ubuntu}}
    - {name: cpu, resources: {cpu: 32, memory: 128Gi}, bareMetalHosts: {selector: {matchLabels: {class: cpu}}}}
`

// anyProperty lets a tenant set and name everything.
const anyProperty = "tenantProperties: {keys: ['*'], osImages: ['*'], sshKeys: ['*'], machineConfigTemplates: ['*']}"

// newCluster is a management cluster with two types: h100 with the servers h1 (free), h2 (claimed) and h3 (in error), and cpu with c1;
// and the tenant a/a, which may have h100 only.
func newCluster(t testing.TB) *memory {
	t.Helper()
	cluster := &memory{
		inventory: inventory.NewInventory(inventory.Options{}),
		providers: []*v1alpha1.NodeProvider{parse[v1alpha1.NodeProvider](t, fleetYAML)},
		exists:    map[Kind][]string{KindOSImage: {"ubuntu"}, KindSSHKey: {"me"}, KindMachineConfigTemplate: {"template"}},
		tenants: []*v1alpha1.TenantCluster{
			parse[v1alpha1.TenantCluster](t, "{metadata: {namespace: a, name: a}, spec: {apiServerEndpoint: 'a:6443', allowedNodeTypes: [h100], "+
				"standAloneMachines: Allowed, "+anyProperty+"}}"),
			parse[v1alpha1.TenantCluster](t, "{metadata: {namespace: b, name: b}, spec: {apiServerEndpoint: 'b:6443', "+anyProperty+"}}"),
		},
	}
	provider := cluster.providers[0]
	for i := range provider.Spec.Metal3.NodeTypes {
		template := &provider.Spec.Metal3.NodeTypes[i]
		nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: template.Name, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(provider, v1alpha1.GroupVersion.WithKind("NodeProvider"))}}}
		nodeType.Spec.ProviderRef.Name, nodeType.Spec.HardwareProfile = provider.Name, template.HardwareProfile
		cluster.types = append(cluster.types, nodeType)
		if invalid := cluster.inventory.AddType(nodeType, provider, ""); invalid != nil {
			t.Fatal(invalid)
		}
	}
	cluster.server("h1", map[string]string{"gpu": "h100", "rack": "r1"})
	cluster.server("h2", map[string]string{"gpu": "h100", "rack": "r2"}, func(h *bmov1alpha1.BareMetalHost) {
		h.Spec.ConsumerRef = consumer
	})
	cluster.server("h3", map[string]string{"gpu": "h100"}, func(h *bmov1alpha1.BareMetalHost) {
		h.Status.ErrorType, h.Status.ErrorMessage = bmov1alpha1.PowerManagementError, "no answer"
	})
	cluster.server("c1", map[string]string{"class": "cpu"})
	return cluster
}

func parse[T any](t testing.TB, text string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return object
}

// linesOf are the lines of a result: errors as they are, warnings after "warning: ".
func linesOf(result Result) (lines []string) {
	for _, err := range result.Errors {
		lines = append(lines, err.Error())
	}
	if result.Refusal != "" {
		lines = append(lines, result.Refusal)
	}
	for _, warning := range result.Warnings {
		lines = append(lines, "warning: "+warning)
	}
	return lines
}

// says compares a result with the lines that are wanted.
func says(t *testing.T, reason string, result Result, want ...string) {
	t.Helper()
	got := linesOf(result)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", reason, diff)
	}
	if result.Allowed() != (len(result.Errors) == 0 && result.Refusal == "") || (len(result.Denied) > 0) == result.Allowed() ||
		(len(result.Warned) > 0) != (len(result.Warnings) > 0) {
		t.Errorf("%s: the rules that spoke do not go with what was said: %v, %v", reason, result.Denied, result.Warned)
	}
}

// mentions compares a result with parts of the lines that are wanted, one for each line.
func mentions(t *testing.T, reason string, result Result, want ...string) {
	t.Helper()
	got := linesOf(result)
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("%s: missing %q", reason, want[i])
		case i >= len(want):
			t.Errorf("%s: unexpected %s", reason, got[i])
		case !strings.Contains(got[i], want[i]) || strings.HasPrefix(got[i], "warning: ") != strings.HasPrefix(want[i], "warning: "):
			t.Errorf("%s:\n got %s\nwant %s in it", reason, got[i], want[i])
		}
	}
	if (len(result.Denied) > 0) == result.Allowed() || (len(result.Warned) > 0) != (len(result.Warnings) > 0) {
		t.Errorf("%s: the rules that spoke do not go with what was said: %v, %v", reason, result.Denied, result.Warned)
	}
}
