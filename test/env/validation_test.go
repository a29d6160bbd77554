// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// refusal returns the API server's validation error, empty if there is none. The same object with aliases in place of our keys must have
// the same.
func refusal(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	text, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	aliased := &unstructured.Unstructured{}
	written := string(text)
	for ours, alias := range v1alpha1.Aliases() {
		written = strings.ReplaceAll(written, `"`+ours+`":`, `"`+alias+`":`)
	}
	if err := aliased.UnmarshalJSON([]byte(written)); err != nil {
		t.Fatal(err)
	}
	want, got := created(t, object), created(t, aliased)
	if want != got {
		t.Errorf("with our keys: %q\nwith their aliases: %q", want, got)
	}
	return want
}

// created returns why an object cannot be created, empty if it can.
func created(t *testing.T, object client.Object) string {
	t.Helper()
	err := environment.Client.Create(t.Context(), object, client.DryRunAll)
	if err == nil {
		return ""
	}
	return err.Error()
}

func check(t *testing.T, reason, want, got string) {
	t.Helper()
	if want == "" && got != "" {
		t.Errorf("%s: refused, want accepted: %s", reason, got)
	}
	if want != "" && !strings.Contains(got, want) {
		t.Errorf("%s:\n got %q\nwant %q in it", reason, got, want)
	}
}

// object parses YAML as a user would write it, also with values that the Go types do not allow.
func object(t *testing.T, kind, name, namespace, spec string) *unstructured.Unstructured {
	t.Helper()
	content := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &content); err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	object.SetAPIVersion(v1alpha1.GroupVersion.String())
	object.SetKind(kind)
	object.SetName(name)
	object.SetNamespace(namespace)
	return object
}

const (
	wantsPositive = "every resource must be greater than zero"
	wantsDeadline = "provisioningDeadline must be greater than zero, for example 60m"
	wantsNoPin    = "karpenter.metal3.io/server-name pins one Machine to one server"
)

func TestHardwareProfileValidation(t *testing.T) {
	for name, tc := range map[string]struct{ reason, profile, want string }{
		"Good": {"the reference fleet", "{resources: {cpu: '96', memory: 768Gi, nvidia.com/gpu: '8'}, bareMetalHosts: {selector: " +
			"{matchLabels: {gpu: h100}}}}", ""},
		"Numbers": {"quantities may be numbers", "{resources: {cpu: 96, memory: 768Gi, nvidia.com/gpu: 8}, bareMetalHosts: {selector: {}}}",
			""},
		"Fractions":   {"half a core is more than nothing", "{resources: {cpu: '0.5', memory: .5Gi}, bareMetalHosts: {selector: {}}}", ""},
		"NoCPU":       {"inspection finds it", "{resources: {memory: 768Gi}, bareMetalHosts: {selector: {}}}", ""},
		"NoMemory":    {"inspection finds it", "{resources: {cpu: '96'}, bareMetalHosts: {selector: {}}}", ""},
		"NoResources": {"inspection finds them", "{bareMetalHosts: {selector: {}}}", ""},
		"Zero": {"a type without a resource does not name it",
			"{resources: {cpu: '96', memory: 768Gi, nvidia.com/gpu: '0'}, bareMetalHosts: {selector: {}}}", wantsPositive},
		"ZeroNumber":   {"as a number too", "{resources: {cpu: 0, memory: 768Gi}, bareMetalHosts: {selector: {}}}", wantsPositive},
		"ZeroWithUnit": {"whatever the unit", "{resources: {cpu: '1', memory: 0Gi}, bareMetalHosts: {selector: {}}}", wantsPositive},
		"Negative":     {"less than nothing", "{resources: {cpu: '-1', memory: 1Gi}, bareMetalHosts: {selector: {}}}", wantsPositive},
		"NotAQuantity": {"the schema's pattern", "{resources: {cpu: many, memory: 1Gi}, bareMetalHosts: {selector: {}}}", "resources"},
		"NoSelector":   {"no server matches", "{resources: {cpu: '1', memory: 1Gi}, bareMetalHosts: {}}", ""},
		"NoHosts":      {"no server matches", "{resources: {cpu: '1', memory: 1Gi}}", ""},
		"Nothing":      {"no server matches", "{}", ""},
		"ServerName": {"a type is many servers", "{resources: {cpu: '1', memory: 1Gi}, properties: {karpenter.metal3.io/server-name: s1}, " +
			"bareMetalHosts: {selector: {}}}", wantsNoPin},
		"NegativeCost": {"costs are compared", "{resources: {cpu: '1', memory: 1Gi}, cost: -1, bareMetalHosts: {selector: {}}}", "spec.cost"},
		"Deadline": {"servers are slow", "{resources: {cpu: '1', memory: 1Gi}, provisioningDeadline: 1h30m, onError: Replace, " +
			"bareMetalHosts: {selector: {}}}", ""},
		"ZeroDeadline": {"every Machine would be given up at once",
			"{resources: {cpu: '1', memory: 1Gi}, provisioningDeadline: 0s, bareMetalHosts: {selector: {}}}", wantsDeadline},
		"PastDeadline": {"and before it was made", "{resources: {cpu: '1', memory: 1Gi}, provisioningDeadline: -10m, bareMetalHosts: " +
			"{selector: {}}}", wantsDeadline},
		"DaysDeadline": {"an invalid duration would stop the manager from reading any type",
			"{resources: {cpu: '1', memory: 1Gi}, provisioningDeadline: 2d, bareMetalHosts: {selector: {}}}", "spec.provisioningDeadline"},
		"WordDeadline": {"nor could this one be", "{resources: {cpu: '1', memory: 1Gi}, provisioningDeadline: soon, bareMetalHosts: {selector: " +
			"{}}}", "spec.provisioningDeadline"},
		"OnError": {"there are two ways", "{resources: {cpu: '1', memory: 1Gi}, onError: Ignore, bareMetalHosts: {selector: {}}}",
			"spec.onError"},
		"NegativeLimit": {"none is the least", "{resources: {cpu: '1', memory: 1Gi}, maxCapacity: -1, bareMetalHosts: {selector: {}}}",
			"spec.maxCapacity"},
	} {
		t.Run(name, func(t *testing.T) {
			nodeType := object(t, "NodeType", "t", "", tc.profile)
			nodeType.Object["spec"].(map[string]any)["providerRef"] = map[string]any{"name": "fleet"}
			check(t, tc.reason, tc.want, refusal(t, nodeType))

			// The same rules hold where profiles are written.
			template := object(t, "NodeProvider", "fleet", "", tc.profile).Object["spec"].(map[string]any)
			template["name"] = "t"
			provider := object(t, "NodeProvider", "fleet", "", "{metal3: {clusterRef: {namespace: metal3-system}}}")
			provider.Object["spec"].(map[string]any)["metal3"].(map[string]any)["nodeTypes"] = []any{template}
			check(t, tc.reason, strings.ReplaceAll(tc.want, "spec.", "spec.metal3.nodeTypes[0]."), refusal(t, provider))
		})
	}
}

func TestNodeProviderValidation(t *testing.T) {
	for name, tc := range map[string]struct{ reason, spec, want string }{
		"Good":      {"types can come later", "{metal3: {clusterRef: {namespace: metal3-system}}}", ""},
		"Namespace": {"hosts are somewhere", "{metal3: {clusterRef: {}}}", "spec.metal3.clusterRef.namespace: Required value"},
		"ServerName": {"a provider is many servers", "{properties: {karpenter.metal3.io/server-name: s1}, metal3: {clusterRef: {namespace: x}}}",
			wantsNoPin},
		"Twice": {"each name once", "{metal3: {clusterRef: {namespace: x}, nodeTypes: [{name: a, resources: {cpu: 1, memory: 1}, " +
			"bareMetalHosts: {selector: {}}}, {name: a, resources: {cpu: 1, memory: 1}, bareMetalHosts: {selector: {}}}]}}",
			"spec.metal3.nodeTypes[1]: Duplicate value"},
		"TypeName": {"it becomes a label", "{metal3: {clusterRef: {namespace: x}, nodeTypes: [{name: H100, resources: {cpu: 1, memory: 1}, " +
			"bareMetalHosts: {selector: {}}}]}}", "spec.metal3.nodeTypes[0].name"},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, tc.reason, tc.want, refusal(t, object(t, "NodeProvider", "fleet", "", tc.spec)))
		})
	}
}

func TestOtherKindsValidation(t *testing.T) {
	for name, tc := range map[string]struct{ reason, kind, spec, want string }{
		"OSImage":        {"the reference", "OSImage", "{properties: {karpenter.metal3.io/image-url: 'https://x/y.qcow2'}}", ""},
		"OSImageNoURL":   {"a Machine may have it, or says that it is missing", "OSImage", "{properties: {}}", ""},
		"OSImageNothing": {"properties are optional in the reference", "OSImage", "{description: later}", ""},
		"OSImageFTP": {"Ironic fetches by http", "OSImage", "{properties: {karpenter.metal3.io/image-url: 'ftp://x'}}",
			"karpenter.metal3.io/image-url must be an http, https or oci URL"},
		"OSImagePinned": {"an image is for many servers", "OSImage",
			"{properties: {karpenter.metal3.io/image-url: 'http://x', karpenter.metal3.io/server-name: s1}}", wantsNoPin},
		"MetalNodeClass": {"everything has a default", "MetalNodeClass", "{}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, tc.reason, tc.want, refusal(t, object(t, tc.kind, "o", "", tc.spec)))
		})
	}
	namespace := environment.Namespace(t)
	for name, tc := range map[string]struct{ reason, endpoint, want string }{
		"Name":   {"host and port", "tenant.example.com:6443", ""},
		"IPv6":   {"in brackets", "[2001:db8::1]:6443", ""},
		"NoPort": {"kubeadm needs one", "tenant.example.com", "spec.apiServerEndpoint"},
		"URL":    {"it is no URL", "https://tenant.example.com:6443", "spec.apiServerEndpoint"},
	} {
		t.Run("TenantCluster"+name, func(t *testing.T) {
			check(t, tc.reason, tc.want, refusal(t, object(t, "TenantCluster", "tenant", namespace, "{apiServerEndpoint: '"+tc.endpoint+"'}")))
		})
	}
}

func TestMachineValidation(t *testing.T) {
	namespace := environment.Namespace(t)
	const eitherOr = "say either nodeTypeRef, or requirements and resources"
	for name, tc := range map[string]struct{ reason, spec, want string }{
		"ByType":         {"stand-alone", "{nodeTypeRef: {name: h100-8x}}", ""},
		"ByResources":    {"as the provider asks", "{resources: {nvidia.com/gpu: 1}, tenantClusterRef: {name: tenant}}", ""},
		"ByRequirements": {"any size", "{requirements: [{key: rack, operator: In, values: [r1]}]}", ""},
		"Nothing":        {"what would it get", "{}", eitherOr},
		"Both":           {"they may contradict", "{nodeTypeRef: {name: x}, resources: {cpu: 1}}", eitherOr},
		"NoName":         {"names something", "{nodeTypeRef: {name: ''}}", "spec.nodeTypeRef.name"},
		"Power":          {"an empty state is On, as in the reference", "{nodeTypeRef: {name: x}, power: {state: ''}}", ""},
		"PowerUnset":     {"so is none", "{nodeTypeRef: {name: x}, power: {}}", ""},
		"PowerSlow":      {"there is no such state", "{nodeTypeRef: {name: x}, power: {state: Slow}}", "spec.power.state: Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, tc.reason, tc.want, refusal(t, object(t, "Machine", "m", namespace, tc.spec)))
		})
	}

	const immutable = "immutable: delete the Machine and make another"
	for name, tc := range map[string]struct {
		reason string
		change func(*v1alpha1.Machine)
		want   string
	}{
		"Bootstrap":    {"set by the provider later", func(m *v1alpha1.Machine) { m.Spec.Bootstrap.DataSecretName = "s" }, ""},
		"Resources":    {"the claim is made", func(m *v1alpha1.Machine) { m.Spec.Resources = Resources("nvidia.com/gpu", "2") }, immutable},
		"Requirements": {"the claim is made", func(m *v1alpha1.Machine) { m.Spec.Requirements = nil }, immutable},
		"Added": {"the claim is made", func(m *v1alpha1.Machine) { m.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "other"} },
			immutable},
	} {
		t.Run("Change"+name, func(t *testing.T) {
			machine := &v1alpha1.Machine{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "m-"},
				Spec: v1alpha1.MachineSpec{
					Resources:    Resources("nvidia.com/gpu", "1"),
					Requirements: []corev1.NodeSelectorRequirement{{Key: "rack", Operator: corev1.NodeSelectorOpExists}},
				},
			}
			if err := environment.Client.Create(t.Context(), machine); err != nil {
				t.Fatal(err)
			}
			tc.change(machine)
			got := ""
			if err := environment.Client.Update(t.Context(), machine); err != nil {
				got = err.Error()
			}
			check(t, tc.reason, tc.want, got)
		})
	}
}

func TestPoolValidation(t *testing.T) {
	namespace := environment.Namespace(t)
	const pin, oneOf = "karpenter.metal3.io/server-name pins one Machine to one server", "In and NotIn need one of value and values"
	for name, tc := range map[string]struct{ reason, pools, want string }{
		"Pinned": {"the reference", "static: [{name: a, quantity: 1, properties: {karpenter.metal3.io/server-name: s1}}]", ""},
		"PinnedTwo": {"one server is not two", "static: [{name: a, quantity: 2, properties: {karpenter.metal3.io/server-name: s1}}]",
			pin + ": set quantity to 1"},
		"PinnedAll": {"all pools", "properties: {karpenter.metal3.io/server-name: s1}", pin + ": set it on a static pool"},
		"Dynamic":   {"many servers", "dynamic: [{name: a, properties: {karpenter.metal3.io/server-name: s1}}]", "a dynamic pool may have many"},
		"Value":     {"one", "dynamic: [{name: a, nodeTypeSelector: [{property: rack, value: r1}]}]", ""},
		"Values":    {"several", "dynamic: [{name: a, nodeTypeSelector: [{property: rack, values: [r1, r2]}]}]", ""},
		"Both":      {"which of them", "dynamic: [{name: a, nodeTypeSelector: [{property: rack, value: r1, values: [r2]}]}]", oneOf},
		"Neither":   {"nothing to compare with", "dynamic: [{name: a, nodeTypeSelector: [{property: rack}]}]", oneOf},
		"Exists":    {"nothing to compare", "dynamic: [{name: a, nodeTypeSelector: [{property: rack, operator: Exists, value: r1}]}]", oneOf},
		"Reasons": {"all of Karpenter's", "dynamic: [{name: a, disruption: {budgets: [{reasons: [Underutilized, " +
			"Empty, Drifted, Unhealthy]}]}}]", ""},
		"Reason": {"Karpenter would refuse the NodePool", "dynamic: [{name: a, disruption: {budgets: [{reasons: [Sick]}]}}]",
			`Unsupported value: "Sick": supported values: "Underutilized", "Empty", "Drifted", "Unhealthy"`},
		"KubeletArgs": {"as in a MetalNodeClass", "static: [{name: a, quantity: 1, kubeletArgs: {max-pods: '200', " +
			"eviction-hard: 'memory.available<1Gi'}}]", ""},
		"KubeletIdentity": {"the join sets it", "dynamic: [{name: a, kubeletArgs: {provider-id: x}}]", "are set by the join"},
		"KubeletDashes": {"kubeadm adds them", "static: [{name: a, quantity: 1, kubeletArgs: {--v: '2'}}]",
			"without leading dashes"},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, tc.reason, tc.want,
				refusal(t, object(t, "TenantCluster", "tenant", namespace, "{apiServerEndpoint: 'a:1', privateNodes: {autoNodes: [{provider: fleet, "+
					tc.pools+"}]}}")))
		})
	}
}

// The pin of a Machine holds while the webhook is down, too.
func TestPinIsImmutableOnceClaimed(t *testing.T) {
	machine := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: environment.Namespace(t), Name: "m"},
		Spec: v1alpha1.MachineSpec{NodeTypeRef: &v1alpha1.NameReference{Name: "x"},
			Properties: map[string]string{v1alpha1.PropertyServerName: "s1", "a": "b"}},
	}
	update := func(change func(*v1alpha1.Machine)) string {
		changed := machine.DeepCopy()
		change(changed)
		if err := environment.Client.Update(t.Context(), changed); err != nil {
			return err.Error()
		}
		machine = changed
		return ""
	}
	if err := environment.Client.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	check(t, "nothing is claimed yet", "", update(func(m *v1alpha1.Machine) { m.Spec.Properties[v1alpha1.PropertyServerName] = "s2" }))
	machine.Status.HostRef = &v1alpha1.HostReference{Namespace: "n", Name: "s2", UID: "u"}
	if err := environment.Client.Status().Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	const immutable = "is immutable once a server is claimed"
	check(t, "it would need another server", immutable,
		update(func(m *v1alpha1.Machine) { m.Spec.Properties[v1alpha1.PropertyServerName] = "s1" }))
	check(t, "it would be another's", immutable, update(func(m *v1alpha1.Machine) { m.Spec.Properties = nil }))
	check(t, "it is no pin", "", update(func(m *v1alpha1.Machine) { m.Spec.Properties["a"] = "c" }))
	alias := v1alpha1.ReferenceKey(v1alpha1.PropertyServerName)
	check(t, "it is the same server", "", update(func(m *v1alpha1.Machine) { m.Spec.Properties = map[string]string{alias: "s2"} }))
	check(t, "the alias pins, too", immutable, update(func(m *v1alpha1.Machine) { m.Spec.Properties[alias] = "s1" }))
	check(t, "another server under the other key", immutable,
		update(func(m *v1alpha1.Machine) { m.Spec.Properties[v1alpha1.PropertyServerName] = "s1" }))
	check(t, "back to our key", "", update(func(m *v1alpha1.Machine) {
		m.Spec.Properties = map[string]string{v1alpha1.PropertyServerName: "s2"}
	}))
}
