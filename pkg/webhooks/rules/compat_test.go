// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

const none = " has no effect here: "

func TestOwnership(t *testing.T) {
	owner := "warning: spec.owner:" + none + "say by Kubernetes RBAC what team infra may do"
	access := "warning: spec.access:" + none + "give rights by Kubernetes RBAC, and say in spec.tenantProperties of a TenantCluster what " +
		"its tenant may name (ops: get, use on status for ada, ml; get for bob)"
	const both = "owner: {team: infra}, access: [{name: ops, verbs: [get, use], subresources: [status], users: [ada], teams: [ml]}, " +
		"{verbs: [get], users: [bob]}]"
	for name, tc := range map[string]struct {
		reason, set string
		want        []string
	}{
		"None":  {"nothing is said", "", nil},
		"Empty": {"no one is given anything", "owner: {}, access: []", nil},
		"Owner": {"it is no user of Kubernetes", "owner: {team: infra}", []string{owner}},
		"Both":  {"what is to be written as Roles is listed", both, []string{owner, access}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t)
			withSpec := func(spec string) string {
				return "{metadata: {namespace: a, name: x}, spec: {" + strings.TrimSuffix(spec+", "+tc.set, ", ") + "}}"
			}
			image := withSpec("properties: {karpenter.metal3.io/image-url: 'https://x/y.iso'}")
			says(t, tc.reason, OSImage(cluster, nil, parse[v1alpha1.OSImage](t, image)), tc.want...)
			key := withSpec("publicKey: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAfBTTODvtUTvt6MIKSCdwSl4XIKVUE95P8SIJPBWL6e me'")
			says(t, tc.reason, SSHKey(cluster, nil, parse[v1alpha1.SSHKey](t, key)), tc.want...)
			template := withSpec("cloudInitTemplate: '#cloud-config'")
			says(t, tc.reason, MachineConfigTemplate(cluster, nil, parse[v1alpha1.MachineConfigTemplate](t, template)), tc.want...)
			machine := parse[v1alpha1.Machine](t, withSpec("nodeTypeRef: {name: h100}, tenantClusterRef: {name: a}"))
			says(t, tc.reason, Machine(cluster, nil, machine), tc.want...)
			says(t, "it was said when it was written", Machine(cluster, machine, machine))
		})
	}
}

func TestMetal3(t *testing.T) {
	const network = none + "a hook or an HTTP endpoint moves servers into the network of a TenantCluster, see docs/network.md"
	cluster := newCluster(t)
	for name, tc := range map[string]struct {
		reason, change string
		want           []string
	}{
		"Cluster": {"one manager, one cluster", "clusterRef: {namespace: metal3-system, cluster: loft-cluster}", []string{
			"warning: spec.metal3.clusterRef.cluster:" + none + "a manager serves the BareMetalHosts of the cluster that it runs in: install one " +
				"in the cluster that has them"}},
		"Deploy": {"nothing is deployed", "deploy: {metal3: {enabled: true, helmValues: 'a: b'}, dhcp: {enabled: true}, multus: {}}", []string{
			"warning: spec.metal3.deploy:" + none + "install Metal3, and DHCP where you need it, as docs/metal3.md says. Remove it if it has " +
				"secrets: the providers of all tenants read it"}},
		"Network": {"no controller is built in", "neutronEnabled: true, netris: {secretRef: {name: a}}", []string{
			"warning: spec.metal3.neutronEnabled, spec.metal3.netris:" + network}},
		"Off": {"it asks for nothing", "neutronEnabled: false", nil},
		"TooLong": {"it is kept in memory", "netris: {a: " + strings.Repeat("x", 64<<10) + "}",
			[]string{`spec.metal3.netris: Invalid value: "(65544 bytes)": it is kept in memory and has no effect here: leave it out`}},
	} {
		t.Run(name, func(t *testing.T) {
			provider := parse[v1alpha1.NodeProvider](t, "{metadata: {name: new}, spec: {metal3: {clusterRef: {namespace: metal3-system}}}}")
			fleet := parse[v1alpha1.Metal3Fleet](t, "{"+tc.change+"}")
			fleet.ClusterRef.Namespace = "metal3-system"
			provider.Spec.Metal3 = *fleet
			says(t, tc.reason, NodeProvider(cluster, nil, provider), tc.want...)
		})
	}
}

func TestTypeTemplates(t *testing.T) {
	const prefix = "spec.metal3.nodeTypes[0]."
	const reservedHere = none + "the domain is reserved, and it is not written: use another domain"
	for name, tc := range map[string]struct {
		reason, set string
		want        []string
	}{
		"Provider": {"it may be said again", "providerRef: new", nil},
		"OtherProvider": {"it is not moved", "providerRef: fleet",
			[]string{"warning: " + prefix + "providerRef:" + none + "a NodeType is of the " +
				"NodeProvider that lists it: list it there, or leave providerRef out"}},
		"Metadata": {"they are written", "metadata: {labels: {team: a}, annotations: {example.com/a: 'any text'}}", nil},
		"Reserved": {"the manager's and kubectl's own", "metadata: {labels: {karpenter.metal3.io/admission: ignore}, annotations: " +
			"{kubectl.kubernetes.io/last-applied-configuration: '{}', x.k8s.io/a: b}}", []string{
			`warning: ` + prefix + `metadata.labels["karpenter.metal3.io/admission"] and 2 more:` + reservedHere}},
		"Invalid": {"the API server would refuse the NodeType", "metadata: {labels: {team: 'a b'}, annotations: {'a b': c}}", []string{
			prefix + `metadata.labels: Invalid value: "a b"`, prefix + `metadata.annotations: Invalid value: "a b"`}},
	} {
		t.Run(name, func(t *testing.T) {
			provider := parse[v1alpha1.NodeProvider](t, "{metadata: {name: new}, spec: {metal3: {clusterRef: {namespace: metal3-system}, "+
				"nodeTypes: [{name: big, resources: {cpu: 1, memory: 1Gi}, bareMetalHosts: {selector: {matchLabels: {class: big}}}, "+
				tc.set+"}]}}}")
			cluster := newCluster(t)
			cluster.server("b1", map[string]string{"class": "big"})
			mentions(t, tc.reason, NodeProvider(cluster, nil, provider), tc.want...)
		})
	}
}

func TestPrivateNodes(t *testing.T) {
	const prefix = "warning: spec.privateNodes."
	const inPlace = none + "servers are installed again, within the budgets of their pools"
	for name, tc := range map[string]struct {
		reason, set string
		want        []string
	}{
		"AutoUpgrade": {"that servers follow the version is real", "privateNodes: {autoUpgrade: {enabled: true}}", nil},
		"InPlace": {"no pod upgrades a node", "privateNodes: {autoUpgrade: {image: a, imagePullPolicy: Always, nodeSelector: {a: b}, " +
			"binariesPath: /a, cniBinariesPath: /b, concurrency: 2, podSecurityContext: {}, containerSecurityContext: {}}}",
			[]string{prefix + "autoUpgrade.binariesPath, spec.privateNodes.autoUpgrade.cniBinariesPath, " +
				"spec.privateNodes.autoUpgrade.concurrency and 5 more:" + inPlace}},
		"JoinNode": {"they are run by cloud-init", "privateNodes: {joinNode: {preJoinCommands: [a], containerd: {enabled: true}}}",
			[]string{prefix +
				"joinNode:" + none + "write commands into runcmd of the property karpenter.metal3.io/user-data, which run before " +
				"the join, kubeletExtraArgs into kubeletArgs of the pools, and prepare containerd in the image"}},
		"Daemon": {"nothing of it runs there", "privateNodes: {daemon: {enabled: true}}", []string{prefix +
			"daemon:" + none + "no program of vCluster runs on the nodes: have spec.apiServerEndpoint lead to all API " +
			"servers, by a load balancer or a virtual address"}},
		"Kubelet": {"it has arguments for them",
			"privateNodes: {kubelet: {config: {maxPods: 5, topologyManagerPolicy: single-numa-node}}}", nil},
		"KubeletWithoutArgument": {"kubeadm's ConfigMap says it", "privateNodes: {kubelet: {config: {maxPods: 5, " +
			"shutdownGracePeriod: 30s, memorySwap: {swapBehavior: NoSwap}}}}", []string{prefix + "kubelet.config.memorySwap." +
			"swapBehavior and 1 more:" + none + "the kubelet has no argument for it: write it into the ConfigMap " +
			"kubelet-config of kube-system in the tenant, which kubeadm join reads"}},
		"KubeletReserved": {"Karpenter reckons with it", "privateNodes: {kubelet: {config: {kubeReserved: {cpu: 1}}}}",
			[]string{prefix + "kubelet.config.kubeReserved:" + none + "set overhead.kubeReserved of the NodeType, which " +
				"Karpenter reckons with"}},
		"VPN": {"there is none", "privateNodes: {vpn: {enabled: true}}", []string{prefix + "vpn:" + none + "there is no VPN: servers reach " +
			"spec.apiServerEndpoint through their own network"}},
		"TooLong": {"it is kept in memory", "privateNodes: {vpn: {a: " + strings.Repeat("x", 64<<10) + "}}",
			[]string{`spec.privateNodes.vpn: Invalid value: "(65544 bytes)": it is kept in memory and has no effect here: leave it out`}},
	} {
		t.Run(name, func(t *testing.T) {
			says(t, tc.reason, TenantCluster(newCluster(t), open, tenantWith(t, "c", tc.set)), tc.want...)
		})
	}
}

func TestUnknownProperties(t *testing.T) {
	const label = none + "it is a label of the nodes at most: for a property of your own use a domain of your own"
	for name, tc := range map[string]struct {
		reason, key string
		want        []string
	}{
		"Environment": {"there is no such kind", v1alpha1.ReferenceNetworkEnvironment, []string{
			"there are no NodeEnvironments: write its properties into the pool, the NodeType or the NodeProvider"}},
		"Misspelled": {"it looks like one of the reference's", v1alpha1.ReferenceDomain + "/osimage", []string{label}},
		"KubeVirt":   {"of another provider", "kubevirt." + v1alpha1.ReferenceDomain + "/disk", []string{label}},
		"Metal3":     {"of another version of the reference", "metal3." + v1alpha1.ReferenceDomain + "/other", []string{label}},
		"Ours":       {"a typing error", v1alpha1.Group + "/osimage", []string{label}},
		"Size":       {"a label of each type, which may be written", v1alpha1.InstanceGPUNameLabelKey, nil},
		"NTP":        {"read elsewhere", v1alpha1.PropertyNTPServers, nil},
		"Alias":      {"read elsewhere", v1alpha1.ReferenceKey(v1alpha1.PropertyNTPServers), nil},
		"Type":       {"a label of each type", v1alpha1.NodeTypeLabelKey, nil},
		"Own":        {"a property of one's own", "example.com/" + v1alpha1.ReferenceDomain, nil},
		"Plain":      {"a property of one's own", "rack", nil},
		"Suffix":     {"another domain", "my" + v1alpha1.ReferenceDomain + "/a", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Result{}
			r.values(nil, properties.Layer{Source: "pool p", Values: map[string]string{tc.key: "a"}})
			for i := range tc.want {
				tc.want[i] = "warning: [\"" + tc.key + "\"]: has no effect here: " + strings.TrimPrefix(tc.want[i], none)
			}
			says(t, tc.reason, r.done(), tc.want...)
		})
	}
}
