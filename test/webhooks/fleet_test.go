// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

const hostNamespace = "metal3-system"

func parse[T any](t testing.TB, text string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return object
}

// fleetOnce makes the fleet once for all tests, which leave it as it is.
var fleetOnce sync.Once

// fleet makes what the cases are about, before any webhook is asked: the servers h100-1 (free), h100-2 (claimed),
// h100-3 (in error), h100-4 (Machine team-a/holder is pinned to it), h100-5 (quarantined), h100-6 (too small), a100-1
// (of no type) and cpu-1, two NodeTypes, two tenants that share the host's nodes (the webhook translates the pods of
// research, and vCluster those of inference), and two with servers of their own, of which team-a may have h100 only and
// no more than the one server that it has, and team-b may have Machines that stand alone, and has Machines that wait
// for the OSImage popular. team-c has all servers of its static pool, and all h100 that it may have.
func fleet(t testing.TB) {
	t.Helper()
	fleetOnce.Do(func() { makeFleet(t) })
}

func makeFleet(t testing.TB) {
	t.Helper()
	for _, name := range []string{hostNamespace, "team-a", "team-b", "team-c", "research", "inference"} {
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	claimed := env.AvailableHost(hostNamespace, "h100-2", map[string]string{"gpu-model": "h100", "rack": "rack-b"})
	claimed.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: "team-b",
		Name: "other"}
	failed := env.AvailableHost(hostNamespace, "h100-3", map[string]string{"gpu-model": "h100", "rack": "rack-a"})
	failed.Status.ErrorType, failed.Status.ErrorMessage = bmov1alpha1.PowerManagementError, "the BMC does not answer"
	quarantined := env.AvailableHost(hostNamespace, "h100-5", map[string]string{"gpu-model": "h100", "rack": "rack-d"})
	quarantined.Annotations = map[string]string{
		v1alpha1.QuarantinedAnnotationKey: `{"reason":"HostError","since":"2026-01-02T15:04:05Z","machine":"team-b/other"}`,
	}
	small := env.AvailableHost(hostNamespace, "h100-6", map[string]string{"gpu-model": "h100", "rack": "rack-d"})
	small.Status.HardwareDetails.CPU.Count, small.Status.HardwareDetails.RAMMebibytes = 64, 512<<10
	for _, host := range []*bmov1alpha1.BareMetalHost{
		env.AvailableHost(hostNamespace, "h100-1", map[string]string{"gpu-model": "h100", "rack": "rack-a"}), claimed, failed,
		env.AvailableHost(hostNamespace, "h100-4", map[string]string{"gpu-model": "h100", "rack": "rack-b"}),
		quarantined, small,
		env.AvailableHost(hostNamespace, "a100-1", map[string]string{"gpu-model": "a100", "rack": "rack-c"}),
		env.AvailableHost(hostNamespace, "cpu-1", map[string]string{"server-class": "cpu", "rack": "rack-a"}),
	} {
		environment.CreateHost(t, host)
	}
	provider := parse[v1alpha1.NodeProvider](t, `
metadata: {name: metal3-provider}
spec:
  properties: {karpenter.metal3.io/os-image: ubuntu, karpenter.metal3.io/ssh-keys: ops, karpenter.metal3.io/user-data-template: base}
  metal3:
    clusterRef: {namespace: metal3-system}
    nodeTypes:
    - {name: h100, resources: {cpu: 96, memory: 768Gi, nvidia.com/gpu: 8}, devices: [{driver: gpu.nvidia.com, count: 8}], bareMetalHosts: {selector: {matchLabels: {gpu-model: h100}}}}
    - {name: cpu, resources: {cpu: 32, memory: 128Gi}, bareMetalHosts: {selector: {matchLabels: {server-class: cpu}}}}
`)
	create(t, provider,
		parse[v1alpha1.OSImage](t, "{metadata: {name: ubuntu}, spec: {properties: {karpenter.metal3.io/image-url: "+
			"'https://images.example.com/ubuntu.qcow2', karpenter.metal3.io/image-checksum: d41d8cd98f00b204e9800998ecf8427e}}}"),
		parse[v1alpha1.OSImage](t, "{metadata: {name: popular}, spec: {properties: {karpenter.metal3.io/image-url: "+
			"'https://images.example.com/popular.qcow2', karpenter.metal3.io/image-checksum: d41d8cd98f00b204e9800998ecf8427e}}}"),
		parse[v1alpha1.SSHKey](t, "{metadata: {name: ops}, spec: {publicKey: 'ssh-ed25519 "+
			"AAAAC3NzaC1lZDI1NTE5AAAAIAfBTTODvtUTvt6MIKSCdwSl4XIKVUE95P8SIJPBWL6e ops'}}"),
		parse[v1alpha1.MachineConfigTemplate](t, "{metadata: {name: base}, spec: {cloudInitTemplate: '#cloud-config'}}"),
		parse[v1alpha1.TenantCluster](t, "{metadata: {namespace: team-a, name: team-a}, spec: {apiServerEndpoint: 'a.example.com:6443', "+
			"allowedNodeTypes: [h100], quota: {servers: 1}, tenantProperties: {keys: [karpenter.metal3.io/server-name, "+
			"karpenter.metal3.io/os-image, karpenter.metal3.io/ssh-keys, karpenter.metal3.io/user-data-template]}}}"),
		parse[v1alpha1.TenantCluster](t, "{metadata: {namespace: team-b, name: team-b}, spec: {apiServerEndpoint: 'b.example.com:6443', "+
			"tenantProperties: {keys: ['*'], osImages: [popular, debian], sshKeys: [dev]}, "+
			"standAloneMachines: Allowed}}"),
		parse[v1alpha1.TenantCluster](t, "{metadata: {namespace: team-c, name: team-c}, spec: {apiServerEndpoint: "+
			"'c.example.com:6443', "+
			"allowedNodeTypes: [h100], quota: {nodeTypes: {h100: 2}}, privateNodes: {autoNodes: [{provider: metal3-provider, "+
			"static: "+
			"[{name: reserve, quantity: 2}]}]}}}"),
		parse[v1alpha1.TenantCluster](t, "{metadata: {namespace: research, name: research}, spec: {apiServerEndpoint: 'research:6443', sync: "+
			"{toHost: {podTranslation: Webhook, resourceClaims: {enabled: true}, resourceClaimTemplates: {enabled: true}}}}}"),
		parse[v1alpha1.TenantCluster](t, "{metadata: {namespace: inference, name: inference}, spec: {apiServerEndpoint: 'inference:6443', sync: "+
			"{toHost: {resourceClaims: {enabled: true}}}}}"))
	for i := range provider.Spec.Metal3.NodeTypes {
		template := &provider.Spec.Metal3.NodeTypes[i]
		nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{
			Name: template.Name, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(provider,
				v1alpha1.GroupVersion.WithKind("NodeProvider"))},
		}}
		nodeType.Spec.ProviderRef.Name, nodeType.Spec.HardwareProfile = provider.Name, template.HardwareProfile
		create(t, nodeType)
	}
	for n := range 7 {
		create(t, parse[v1alpha1.Machine](t,
			fmt.Sprintf("{metadata: {namespace: team-b, name: crowd-%d}, spec: {resources: {cpu: 1}, tenantClusterRef: {name: team-b}, properties: "+
				"{karpenter.metal3.io/os-image: popular}}}", n+1)))
	}
	for n := range 2 {
		reserved := parse[v1alpha1.Machine](t, fmt.Sprintf("{metadata: {namespace: team-c, name: reserve-%d, labels: "+
			"{karpenter.sh/nodepool: "+
			"reserve}}, spec: {nodeTypeRef: {name: h100}, tenantClusterRef: {name: team-c}}}", n+1))
		create(t, reserved)
		reserved.Status.HostRef = &v1alpha1.HostReference{Namespace: hostNamespace, Name: fmt.Sprintf("reserved-%d", n+1),
			UID: "u"}
		reserved.Status.NodeTypeRef = &v1alpha1.NameReference{Name: "h100"}
		if err := environment.Client.Status().Update(t.Context(), reserved); err != nil {
			t.Fatal(err)
		}
	}
	holder := parse[v1alpha1.Machine](t, "{metadata: {namespace: team-a, name: holder}, spec: {nodeTypeRef: {name: h100}, tenantClusterRef: "+
		"{name: team-a}, properties: {karpenter.metal3.io/server-name: h100-4}}}")
	create(t, holder)
	holder.Status.HostRef = &v1alpha1.HostReference{Namespace: hostNamespace, Name: "h100-4", UID: "u"}
	holder.Status.NodeTypeRef = &v1alpha1.NameReference{Name: "h100"}
	if err := environment.Client.Status().Update(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
}
