// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// provided is a NodeProvider with one type, made of a profile.
func provided(t testing.TB, profile string) *v1alpha1.NodeProvider {
	return parse[v1alpha1.NodeProvider](t, "{metadata: {name: other}, spec: {metal3: {clusterRef: {namespace: metal3-system}, nodeTypes: "+
		"[{name: t, "+profile+"}]}}}")
}

const (
	typeAt     = "spec.metal3.nodeTypes[0]."
	selectorAt = typeAt + "bareMetalHosts.selector"
	fine       = "resources: {cpu: 1, memory: 1Gi}, "
)

func TestHostSelector(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, selector string
		want             []string
	}{
		"Good":    {"it selects what no other type does", "{matchLabels: {gpu: a100}}", nil},
		"Overlap": {"a condition of the type says which others its servers are of", "{matchLabels: {rack: r1}}", nil},
		"Empty":   {"it selects everything", "{}", []string{selectorAt + ": Required value: an empty selector selects every server"}},
		"Key": {"no label has such a key", "{matchLabels: {'gpu model': h100}}",
			[]string{selectorAt + `.matchLabels["gpu model"]: Invalid value: "gpu model": cannot be the key of a label`}},
		"Value": {"no label has such a value", "{matchLabels: {gpu: 'h 100'}}",
			[]string{selectorAt + `.matchLabels["gpu"]: Invalid value: "h 100": cannot be the value of a label`}},
		"Operator": {"no such operator", "{matchExpressions: [{key: gpu, operator: Like, values: [h]}]}",
			[]string{selectorAt + `.matchExpressions[0].operator: Unsupported value: "Like": supported values: "In", "NotIn", "Exists", ` +
				`"DoesNotExist"`}},
		"NoValues": {"nothing to compare with", "{matchExpressions: [{key: gpu, operator: In}, {key: x/y/z, operator: Exists}]}",
			[]string{selectorAt + ".matchExpressions[0].values: Required value: must be specified",
				selectorAt + `.matchExpressions[1].key: Invalid value: "x/y/z"`}},
		"Values": {"they would be overlooked", "{matchExpressions: [{key: gpu, operator: DoesNotExist, values: [a]}]}",
			[]string{selectorAt + ".matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"}},
		"ExprValue": {"no label has such a value", "{matchExpressions: [{key: gpu, operator: In, values: [a, '*']}]}",
			[]string{selectorAt + `.matchExpressions[0].values[1]: Invalid value: "*"`}},
		"Both": {"a label has one value", "{matchLabels: {gpu: h100}, matchExpressions: [{key: gpu, operator: In, values: [a100]}]}",
			[]string{`no server can match: gpu=h100, gpu in (a100) rule each other out: take one of them away`}},
		"NotThere": {"it cannot be and not be", "{matchLabels: {gpu: h100}, matchExpressions: [{key: gpu, operator: DoesNotExist}]}",
			[]string{"gpu=h100, !gpu rule each other out"}},
		"RuledOut": {"nothing is left", "{matchExpressions: [{key: gpu, operator: In, values: [a, b]}, {key: gpu, operator: NotIn, values: [b, " +
			"a]}]}", []string{"gpu in (a,b), gpu notin (a,b) rule each other out"}},
		"Left": {"something is left", "{matchExpressions: [{key: class, operator: In, values: [a, b]}, {key: class, operator: NotIn, values: " +
			"[b]}]}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			after := provided(t, fine+"bareMetalHosts: {selector: "+tc.selector+"}")
			mentions(t, tc.reason, NodeProvider(newCluster(t), nil, after), tc.want...)

			// The same holds where a type is written by itself.
			nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
			nodeType.Spec.ProviderRef.Name, nodeType.Spec.HardwareProfile = "fleet", after.Spec.Metal3.NodeTypes[0].HardwareProfile
			var want []string
			for _, line := range tc.want {
				want = append(want, strings.ReplaceAll(line, typeAt, "spec."))
			}
			cluster := newCluster(t)
			ownedBy(cluster, nodeType)
			mentions(t, tc.reason, NodeType(cluster, nil, nodeType), want...)
		})
	}

	everything := provided(t, fine+"bareMetalHosts: {selector: {}}")
	everything.Annotations = map[string]string{v1alpha1.SelectAllHostsAnnotationKey: "x, t"}
	mentions(t, "it is meant", NodeProvider(newCluster(t), nil, everything))
	// Left out, it selects none, or what the annotation says.
	for name, hosts := range map[string]string{"all": "", "selector": "bareMetalHosts: {}"} {
		leftOut := provided(t, fine+hosts)
		mentions(t, name+" is left out", NodeProvider(newCluster(t), nil, leftOut), "warning: "+typeAt+"bareMetalHosts: bareMetalHosts is left "+
			"out: the type has no servers until it names a selector, or is named in the annotation karpenter.metal3.io/select-all-hosts")
		leftOut.Annotations = everything.Annotations
		mentions(t, name+" is left out, and the annotation names the type", NodeProvider(newCluster(t), nil, leftOut))
	}
	everything.Annotations = map[string]string{v1alpha1.SelectAllHostsAnnotationKey: "x"}
	mentions(t, "another is meant", NodeProvider(newCluster(t), nil, everything), "an empty selector selects every server")
}

func TestResources(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, profile string
		want            []string
	}{
		"Good": {"the reference", "resources: {cpu: 96, memory: 768Gi, nvidia.com/gpu: 8, hugepages-2Mi: 1Gi, ephemeral-storage: 1T, pods: " +
			"250}, overhead: {kubeReserved: {cpu: 500m, memory: 1Gi, pid: 100}}, cost: 0, zone: us-1", nil},
		"None": {"inspection finds cpu and memory, and no accelerators", "resources: {}", []string{
			"warning: " + typeAt + "resources: leaves out cpu and memory: the least that Metal3 finds in the servers counts, and servers that it " +
				"has not inspected are not claimed",
			"warning: " + typeAt + "resources: names no accelerators: pods that ask for GPUs do not get it, and all others do; " +
				"write nvidia.com/gpu if its servers have GPUs"}},
		"Accelerators": {"they are named", "resources: {nvidia.com/gpu: 8}",
			[]string{"warning: " + typeAt + "resources: leaves out cpu and memory: the least"}},
		"Devices": {"a DRA driver publishes them", "devices: [{driver: gpu.nvidia.com, count: 8}]",
			[]string{"warning: " + typeAt + "resources: leaves out cpu and memory: the least"}},
		"NoMemory": {"one of the two", "resources: {cpu: 8}", []string{"warning: " + typeAt + "resources: leaves out memory: the least"}},
		"ZeroInOtherWords": {"the schema does not know these", "resources: {cpu: '00', memory: '0.0', pods: '+0', ephemeral-storage: 0.000m}",
			[]string{`resources["cpu"]: Invalid value: "0": must be greater than zero`, `resources["ephemeral-storage"]: Invalid value: "0`,
				`resources["memory"]: Invalid value: "0`, `resources["pods"]: Invalid value: "0`}},
		"Negative": {"less than nothing", "resources: {cpu: -1, memory: 1Gi}, cost: -1",
			[]string{`resources["cpu"]: Invalid value: "-1"`, "cost: Invalid value: -1"}},
		"Zero": {"what it does not have", "resources: {cpu: 1, memory: 0, nvidia.com/gpu: 0}",
			[]string{`resources["memory"]: Invalid value: "0": must be greater than zero`, `resources["nvidia.com/gpu"]: Invalid value: "0"`}},
		"Fraction": {"no half GPUs", "resources: {cpu: 500m, memory: 1Gi, nvidia.com/gpu: 1500m, pods: 1500m}",
			[]string{`resources["nvidia.com/gpu"]: Invalid value: "1500m": devices are counted in whole ones`, `resources["pods"]`}},
		"Name": {"no resource has such a name", "resources: {cpu: 1, memory: 1Gi, gpu: 1, 'a b/c': 1}",
			[]string{`resources["a b/c"]: Invalid value: "a b/c": is not the name of a resource`,
				`resources["gpu"]: Invalid value: "gpu": is neither one of`}},
		"Reserved": {"more than there is", "resources: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}, overhead: {kubeReserved: {cpu: 2, memory: -1, " +
			"nvidia.com/gpu: 1}}",
			[]string{`kubeReserved["cpu"]: Invalid value: "2": the server has 1 of it`, `kubeReserved["memory"]: Invalid value: "-1"`,
				`kubeReserved["nvidia.com/gpu"]: Unsupported value`}},
		"Zone": {"it is a label", "resources: {cpu: 1, memory: 1Gi}, zone: 'us 1'",
			[]string{`zone: Invalid value: "us 1": it is a label of the nodes`}},
		"Label": {"it could not be a label", fine + "properties: {tier: 'very good'}",
			[]string{`properties["tier"]: Invalid value: "very good": has a value that cannot be one of a label`}},
		"Reference": {"it may come later", fine + "properties: {karpenter.metal3.io/os-image: debian, karpenter.metal3.io/user-data-template: x}",
			[]string{`warning: ` + typeAt + `properties["karpenter.metal3.io/os-image"]: there is no OSImage "debian" yet`, `warning: ` + typeAt +
				`properties["karpenter.metal3.io/user-data-template"]: there is no MachineConfigTemplate "x" yet`}},
	} {
		t.Run(name, func(t *testing.T) {
			mentions(t, tc.reason,
				NodeProvider(newCluster(t), nil, provided(t, tc.profile+", bareMetalHosts: {selector: {matchLabels: {class: cpu, rack: r9}}}")),
				tc.want...)
		})
	}
}

func TestImageHosts(t *testing.T) {
	after := provided(t, fine+"bareMetalHosts: {selector: {matchLabels: {gpu: a100}}}, properties: {karpenter.metal3.io/image-url: "+
		"'http://192.0.2.1/x.iso'}")
	after.Spec.ImageHosts = []string{"images.example.com"}
	after.Spec.Properties = map[string]string{v1alpha1.PropertyImageChecksum: "https://images.example.org/sums"}
	mentions(t, "the manager would install neither", NodeProvider(newCluster(t), nil, after),
		`spec.properties["karpenter.metal3.io/image-checksum"]: Invalid value: "https://images.example.org/sums": is on host `+
			"images.example.org, which is not among spec.imageHosts of NodeProvider other: choose from images.example.com, or have",
		typeAt+`properties["karpenter.metal3.io/image-url"]: Invalid value: "http://192.0.2.1/x.iso": is on host 192.0.2.1`)
}

func TestMirrors(t *testing.T) {
	after := parse[v1alpha1.NodeProvider](t, "{metadata: {name: other}, spec: {metal3: {clusterRef: {namespace: metal3-system}}, mirrors: "+
		"{packages: [{upstream: deb.debian.org/debian, url: 'https://mirror.example.com/debian'}], images: [{upstream: registry.k8s.io/pause, "+
		"url: mirror.example.com}], caBundle: none}}}")
	mentions(t, "no server could use them", NodeProvider(newCluster(t), nil, after),
		`spec.mirrors.images[0].upstream: Invalid value: "registry.k8s.io/pause": is not a registry: write it as in references of images`,
		`spec.mirrors.images[0].url: Invalid value: "mirror.example.com": is not the URL of a mirror`,
		`spec.mirrors.caBundle: Invalid value: has no certificates in PEM`)
}

func TestNodeProvider(t *testing.T) {
	spec := func(types string) *v1alpha1.NodeProvider {
		return parse[v1alpha1.NodeProvider](t, "{metadata: {name: fleet}, spec: {metal3: {clusterRef: {namespace: metal3-system}, nodeTypes: ["+
			types+"]}}}")
	}
	const h100, cpu = "{name: h100, " + fine + "bareMetalHosts: {selector: {matchLabels: {gpu: h100}}}}", "{name: cpu, " + fine +
		"bareMetalHosts: {selector: {matchLabels: {class: cpu}}}}"
	used := newCluster(t)
	used.users = map[Kind]map[string][]string{KindNodeType: {"cpu": {"Machine a/1", "Machine a/2", "Machine a/3", "Machine a/4", "Machine a/5",
		"Machine a/6", "Machine a/7"}}}

	mentions(t, "all types at once", NodeProvider(newCluster(t), nil, spec(h100+", "+cpu)))
	mentions(t, "what is not used may go", NodeProvider(newCluster(t), spec(h100+", "+cpu), spec(h100)))
	mentions(t, "what is used may not", NodeProvider(used, spec(h100+", "+cpu), spec(h100)),
		"spec.metal3.nodeTypes: Forbidden: NodeType cpu is in use by Machine a/1, Machine a/2, Machine a/3, Machine a/4, Machine a/5 and 2 "+
			"more: it cannot be taken away")
	mentions(t, "two types of one provider",
		NodeProvider(newCluster(t), nil, spec(h100+", {name: rack, "+fine+"bareMetalHosts: {selector: {matchLabels: {rack: r1}}}}")))
	taken := spec(h100)
	taken.Name = "other"
	mentions(t, "names are unique", NodeProvider(newCluster(t), nil, taken),
		`spec.metal3.nodeTypes[0].name: Invalid value: "h100": a NodeType of this name belongs to NodeProvider fleet`)
	tenants := spec("")
	tenants.Spec.Metal3.ClusterRef.Namespace = "a"
	mentions(t, "the tenant's provider could read the BMC credentials", NodeProvider(newCluster(t), nil, tenants),
		`spec.metal3.clusterRef.namespace: Invalid value: "a": is the namespace of a TenantCluster`)
	elsewhere := spec(h100 + ", " + cpu)
	elsewhere.Spec.Metal3.ClusterRef.Namespace = "other-servers"
	moved := func(users ...string) Result {
		cluster := newCluster(t)
		cluster.users = map[Kind]map[string][]string{KindNodeType: {"h100": users}}
		return NodeProvider(cluster, spec(h100+", "+cpu), elsewhere)
	}
	mentions(t, "servers in use would have no type", moved("Machine a/m", "TenantCluster a/a"),
		`spec.metal3.clusterRef.namespace: Invalid value: "other-servers": Machines have servers in namespace metal3-system (Machine a/m): `+
			`delete them first, or make another NodeProvider`)
	mentions(t, "no server is in use", moved("TenantCluster a/a"))
}

// ownedBy has the NodeProvider of a cluster list a type and own it.
func ownedBy(cluster *memory, nodeType *v1alpha1.NodeType) {
	provider := cluster.providers[0].DeepCopy()
	provider.Spec.Metal3.NodeTypes = append(provider.Spec.Metal3.NodeTypes, v1alpha1.NodeTypeTemplate{Name: nodeType.Name})
	cluster.providers[0], nodeType.OwnerReferences = provider, cluster.types[0].OwnerReferences
}

func TestNodeType(t *testing.T) {
	spec := "{metadata: {name: %s}, spec: {providerRef: {name: %s}, " + fine + "bareMetalHosts: {selector: {matchLabels: {class: cpu}}}}}"
	made, cluster := parse[v1alpha1.NodeType](t, fmt.Sprintf(spec, "cpu", "fleet")), newCluster(t)
	made.OwnerReferences = cluster.types[0].OwnerReferences
	mentions(t, "as the manager makes it", NodeType(cluster, nil, made))
	byHand := parse[v1alpha1.NodeType](t, fmt.Sprintf(spec, "aa", "fleet"))
	byHand.OwnerReferences = made.OwnerReferences
	mentions(t, "any author can write the owner reference", NodeType(cluster, nil, byHand),
		"warning: metadata.name: NodeProvider fleet does not list this type: a tenant gets it only if its allowedNodeTypes name it")
	says(t, "it may come later", NodeType(newCluster(t), nil, parse[v1alpha1.NodeType](t, fmt.Sprintf(spec, "x", "missing"))))
	mentions(t, "names are unique", NodeType(newCluster(t), nil, parse[v1alpha1.NodeType](t, fmt.Sprintf(spec, "cpu", "missing"))),
		"metadata.name: Invalid value: \"cpu\": a NodeType of this name belongs to NodeProvider fleet")
}

// A huge object gets an answer that is not.
func TestHugeProvider(t *testing.T) {
	var types []string
	for n := range 100 {
		types = append(types, fmt.Sprintf("{name: t%d, resources: {}, bareMetalHosts: {selector: {}}, properties: {"+
			"karpenter.metal3.io/os-image: missing}}", n))
	}
	after := parse[v1alpha1.NodeProvider](t, "{metadata: {name: other}, spec: {metal3: {clusterRef: {namespace: metal3-system}, nodeTypes: ["+
		strings.Join(types, ", ")+"]}}}")
	result := NodeProvider(newCluster(t), nil, after)
	if len(result.Errors) != maxErrors+1 || !strings.Contains(result.Errors[maxErrors].Error(), "there are 50 more errors") {
		t.Errorf("%d errors, the last is %v", len(result.Errors), result.Errors[len(result.Errors)-1])
	}
	if len(result.Warnings) < 3 || len(result.Warnings) > maxWarnings+1 || !strings.Contains(result.Warnings[0], " and 98 more: ") {
		t.Errorf("the same is said of each of 100 types:\n%s", strings.Join(result.Warnings, "\n"))
	}
}

// TestShownAccelerators: what the selector shows is told before there is a server.
func TestShownAccelerators(t *testing.T) {
	shown := NodeProvider(newCluster(t), nil, parse[v1alpha1.NodeProvider](t, "{metadata: {name: other}, spec: {metal3: {clusterRef: "+
		"{namespace: metal3-system}, nodeTypes: [{name: t, bareMetalHosts: {selector: {matchLabels: {gpu-model: h100}}}}]}}}"))
	if text := strings.Join(shown.Warnings, "\n"); !strings.Contains(text, typeAt+"resources: names no accelerators, although its servers "+
		"show some (gpu-model=h100): only static pools and Machines that name the type get it; write nvidia.com/gpu") {
		t.Errorf("the warnings are\n%s", text)
	}
}

// TestWarningsInOrder: of many warnings those are listed that change who gets a server, then names that do not exist yet, then fields that
// do nothing. What is said of several fields is said once.
func TestWarningsInOrder(t *testing.T) {
	r := &Result{}
	for n := range 12 {
		path := field.NewPath("spec", "nodeTypes").Index(n)
		r.noEffect(path.Child("owner"), "use RBAC")
		r.warn(RuleReferences, path.Child("image"), "there is no OSImage")
		r.warn(RuleResources, path.Child("resources"), "names no accelerators")
		r.warn(RuleProperties, path.Child("properties"), "is wrong in its own way %d", n%8)
	}
	result := r.done()
	if len(result.Warnings) != maxWarnings+1 || result.Warnings[maxWarnings] != "spec: there are 1 more warnings" {
		t.Fatalf("the warnings are\n%s", strings.Join(result.Warnings, "\n"))
	}
	for i, want := range map[int]string{0: "spec.nodeTypes[0].resources, spec.nodeTypes[1].resources, ",
		1: "spec.nodeTypes[0].properties, spec.nodeTypes[8].properties: is wrong in its own way 0", 9: "spec.nodeTypes[0].image, "} {
		if !strings.HasPrefix(result.Warnings[i], want) {
			t.Errorf("warning %d is %s, want %s", i, result.Warnings[i], want)
		}
	}
	for _, warning := range result.Warnings {
		if len(warning) > maxWarning {
			t.Errorf("%d bytes: %s", len(warning), warning)
		}
	}
	if !strings.HasSuffix(result.Warnings[0], " and 9 more: names no accelerators") {
		t.Errorf("not all twelve types are counted: %s", result.Warnings[0])
	}
}

// TestTopology: a label of domains that are for one tenant each is one that nodes inherit, so that tenants know the domains.
func TestTopology(t *testing.T) {
	const unknown = `warning: spec.metal3.topology[1].key: nodes do not inherit the label "pkey"`
	for name, tc := range map[string]struct {
		reason, topology string
		want             []string
	}{
		"none":      {"the default is among the default labels", "topology: []", nil},
		"inherited": {"nodes have it", "topology: [{key: rack, sharedFabric: Forbidden}]", nil},
		"hidden": {"no tenant can ask for its own domain",
			"topology: [{key: rack, sharedFabric: Forbidden}, {key: pkey, sharedFabric: Forbidden}]", []string{unknown}},
		"allowed": {"the domain is nobody's", "topology: [{key: pkey, sharedFabric: Allowed}]", nil},
		"shared": {"a tenant without a network has no partition", "topology: [{key: nvlink-domain, sharedFabric: Allowed}]",
			[]string{"warning: spec.metal3.topology[0].sharedFabric: no partition of an NVLink domain is made for a TenantCluster without " +
				"spec.network, so other tenants there can reach the memory of its GPUs (TenantCluster a/a, TenantCluster b/b): set it there first"}},
	} {
		t.Run(name, func(t *testing.T) {
			after := parse[v1alpha1.NodeProvider](t, "{metadata: {name: other}, spec: {metal3: {clusterRef: {namespace: metal3-system}, "+
				tc.topology+"}}}")
			mentions(t, tc.reason, NodeProvider(newCluster(t), nil, after), tc.want...)
		})
	}
}

// TestNVLinkDomainsShared: a tenant without a network in a shared domain is told, and no other.
func TestNVLinkDomainsShared(t *testing.T) {
	const told = "warning: spec.network: is not set, so no partition of an NVLink domain is made for this tenant, and NodeProvider nvl72 " +
		"allows several tenants in one: other tenants there can reach the memory of its GPUs"
	for name, tc := range map[string]struct {
		reason, policy, network string
		want                    []string
	}{
		"Without":   {"nothing makes a partition for it", "Allowed", "", []string{told}},
		"With":      {"its network is its partition", "Allowed", ", network: {vlan: 100}", nil},
		"Forbidden": {"it has its domains for itself", "Forbidden", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t)
			cluster.providers = append(cluster.providers, parse[v1alpha1.NodeProvider](t, "{metadata: {name: nvl72}, spec: {metal3: {clusterRef: "+
				"{namespace: metal3-system}, topology: [{key: nvlink-domain, sharedFabric: "+tc.policy+"}]}}}"))
			tenant := parse[v1alpha1.TenantCluster](t, "{metadata: {namespace: c, name: c}, spec: {apiServerEndpoint: 'c:6443', "+
				"allowedNodeTypes: [h100], quota: {servers: 4}"+tc.network+"}}")
			mentions(t, tc.reason, TenantCluster(cluster, nil, tenant), tc.want...)
		})
	}
	t.Run("AllHaveOne", func(t *testing.T) {
		cluster := newCluster(t)
		for _, tenant := range cluster.tenants {
			tenant.Spec.Network = &v1alpha1.TenantNetwork{ID: tenant.Name}
		}
		after := parse[v1alpha1.NodeProvider](t, "{metadata: {name: other}, spec: {metal3: {clusterRef: {namespace: metal3-system}, "+
			"topology: [{key: nvlink-domain, sharedFabric: Allowed}]}}}")
		mentions(t, "each has its partition", NodeProvider(cluster, nil, after))
	})
}
