// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

// TestBadInput: no server is claimed for a typo. The error is in the Machine's condition and in an event, whichever
// object it is in, and the Machine continues when it is corrected.
func TestBadInput(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, key, value string
		more               map[string]string
		objects            func(suffix string) []client.Object
		says               []string
	}{
		"CIDR": {reason: "not a network", key: v1alpha1.PropertyNetworkCIDR, value: "10.0.0.1/33", says: []string{"prefix length"}},
		"CIDRNoGateway": {reason: "the host part is the gateway", key: v1alpha1.PropertyNetworkCIDR, value: "10.0.0.0/24",
			says: []string{"no gateway"}},
		"RangeBackwards": {reason: "ends before it starts", key: v1alpha1.PropertyNetworkIPRange, value: "10.0.0.20-10.0.0.10",
			more: map[string]string{v1alpha1.PropertyNetworkCIDR: "10.0.0.1/24"}, says: []string{"ends before it starts"}},
		"RangeOutside": {reason: "outside its network", key: v1alpha1.PropertyNetworkIPRange, value: "10.0.1.1-10.0.1.5",
			more: map[string]string{v1alpha1.PropertyNetworkCIDR: "10.0.0.1/24"}, says: []string{"outside"}},
		"DNS": {reason: "not an address", key: v1alpha1.PropertyDNSServers, value: "dns.example.com",
			says: []string{"dns.example.com"}},
		"ChecksumLength": {reason: "a digit is missing", key: v1alpha1.PropertyImageChecksum, value: checksum[1:],
			more: map[string]string{v1alpha1.PropertyImageURL: "http://x/y.qcow2"}, says: []string{"neither a checksum nor"}},
		"ChecksumType": {reason: "no such type", key: v1alpha1.PropertyImageChecksumType, value: "crc32", says: []string{"crc32"}},
		"ImageURL": {reason: "another scheme", key: v1alpha1.PropertyImageURL, value: "ftp://x/y.qcow2",
			says: []string{"is not an http, https or oci URL"}},
		"OSImage": {reason: "does not exist", key: v1alpha1.PropertyOSImage, value: "nowhere", says: []string{"nowhere", "no OSImage"}},
		"SSHKey":  {reason: "does not exist", key: v1alpha1.PropertySSHKeys, value: "missing", says: []string{"missing", "no SSHKey"}},
		"SSHKeyUnparsed": {reason: "is no key", key: v1alpha1.PropertySSHKeys, value: "bad-*",
			says: []string{"spec.publicKey of SSHKey", "is not a public key"}, objects: func(suffix string) []client.Object {
				return []client.Object{&v1alpha1.SSHKey{ObjectMeta: metaName("bad-" + suffix), Spec: v1alpha1.SSHKeySpec{PublicKey: "ssh-rsa garbage"}}}
			}},
		"Template": {reason: "does not exist", key: v1alpha1.PropertyUserDataTemplate, value: "none",
			says: []string{"none", "no MachineConfigTemplate"}},
		"TemplateSyntax": {reason: "does not parse", key: v1alpha1.PropertyUserDataTemplate, value: "bad-*",
			says: []string{"cloudInitTemplate of MachineConfigTemplate", "line 2"}, objects: templateOf("#cloud-config\n{{ if }}")},
		"TemplateField": {reason: "a field that does not exist", key: v1alpha1.PropertyUserDataTemplate, value: "bad-*",
			says:    []string{"cloudInitTemplate of MachineConfigTemplate", "line 3", "Nonsense"},
			objects: templateOf("#cloud-config\n\nhostname: {{ .Values.Nonsense }}")},
		"TemplateProperty": {reason: "a property that the template requires", key: v1alpha1.PropertyUserDataTemplate, value: "bad-*",
			says:    []string{"line 2", "set nowhere"},
			objects: templateOf("#cloud-config\n{{ if not .Values.Properties.nowhere }}{{ fail \"set nowhere\" }}{{ end }}")},
		"TemplateEnv": {reason: "reads the machine that the manager runs on", key: v1alpha1.PropertyUserDataTemplate, value: "bad-*",
			says: []string{"env"}, objects: templateOf("#cloud-config\nhostname: {{ env \"HOME\" }}")},
		"TemplateMakesNo": {reason: "what it makes is not user data", key: v1alpha1.PropertyUserDataTemplate, value: "bad-*",
			says: []string{"the document that is made by cloudInitTemplate"}, objects: templateOf("packages: [jq]\n")},
		"UserData": {reason: "without a header", key: v1alpha1.PropertyUserData, value: "packages: [jq]",
			says: []string{"#cloud-config"}},
		"UserDataYAML": {reason: "not YAML", key: v1alpha1.PropertyUserData, value: "#cloud-config\nruncmd: [", says: []string{"YAML"}},
		"UserDataTooLarge": {reason: "Metal3 could not read it", key: v1alpha1.PropertyUserDataTemplate, value: "bad-*",
			says: []string{"more than 1048576 bytes"},
			objects: templateOf("#cloud-config\n{{ define \"x\" }}" + strings.Repeat("#\n", bootstrap.MaxDocumentBytes/8) + "{{ end }}" +
				strings.Repeat("{{ template \"x\" }}", 5))},
		"NetworkData": {reason: "not network data", key: v1alpha1.PropertyNetworkData, value: "hello", says: []string{"network data"}},
		"ServerName": {reason: "no host can have that name", key: v1alpha1.PropertyServerName, value: "Server_1",
			says: []string{"cannot be the name of a BareMetalHost"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			suffix := w.metal3
			if tc.objects != nil {
				for _, object := range tc.objects(suffix) {
					w.create(object)
				}
			}
			value := strings.ReplaceAll(tc.value, "*", suffix)
			if name == "UserData" || name == "UserDataYAML" {
				value = tc.value
			}
			key := w.machine("m", func(machine *v1alpha1.Machine) {
				standAlone(machine)
				machine.Spec.Properties = map[string]string{tc.key: value}
				for key, value := range tc.more {
					machine.Spec.Properties[key] = value
				}
			})
			manager := w.start(w.client)
			manager.round()
			claimed := condition(w.get(key), v1alpha1.ConditionClaimed)
			if claimed.Reason != v1alpha1.ReasonInvalidSpec {
				t.Errorf("%s: reason %q (%s), want InvalidSpec", tc.reason, claimed.Reason, claimed.Message)
			}
			for _, part := range tc.says {
				if !strings.Contains(claimed.Message, part) {
					t.Errorf("%s: %q does not say %q", tc.reason, claimed.Message, part)
				}
			}
			if len(claimed.Message) > 1000 || strings.Contains(claimed.Message, "garbage") {
				t.Errorf("%s: %d bytes: %q", tc.reason, len(claimed.Message), claimed.Message)
			}
			t.Log(claimed.Message)
			if !manager.reported(v1alpha1.ReasonInvalidSpec) {
				t.Errorf("%s: no event says so", tc.reason)
			}
			if w.get(key).Status.HostRef != nil || w.hosts()[0].Spec.ConsumerRef != nil {
				t.Errorf("%s: a server is tied up", tc.reason)
			}
			w.edit(key, func(machine *v1alpha1.Machine) { machine.Spec.Properties = nil })
			w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
		})
	}
}

// TestNoServerCanJoin: no server is claimed for a tenant that none could join. The provider would find it out after the claim.
func TestNoServerCanJoin(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		endpoint string
		change   func(*v1alpha1.Machine)
		says     string
	}{
		"Port": {reason: "there is no such port", endpoint: "tenant.example.com:0",
			says: `API server endpoint "tenant.example.com:0" has no port between 1 and 65535`},
		"Host": {reason: "no name has an underscore", endpoint: "my_tenant:6443",
			says: `API server endpoint "my_tenant:6443" names neither an IP address nor a DNS name`},
		"Label": {reason: "kubelet would not start", says: "cannot be the value of a label",
			change: func(m *v1alpha1.Machine) { m.Spec.Labels = map[string]string{"team": "a b"} }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			w.endpoint(tc.endpoint)
			key := w.machine("m", tc.change)
			manager := w.start(w.client)
			manager.round()
			claimed := condition(w.get(key), v1alpha1.ConditionClaimed)
			if claimed.Reason != v1alpha1.ReasonInvalidSpec || !strings.Contains(claimed.Message, tc.says) {
				t.Errorf("%s: %s: %q, want InvalidSpec and %q", tc.reason, claimed.Reason, claimed.Message, tc.says)
			}
			if w.get(key).Status.HostRef != nil || w.hosts()[0].Spec.ConsumerRef != nil || !manager.reported(v1alpha1.ReasonInvalidSpec) {
				t.Errorf("%s: a server is claimed, or no event says so", tc.reason)
			}
			if tc.change != nil {
				return
			}
			w.endpoint("tenant.example.com:6443")
			w.until("claimed", func() *process { return manager }, func() bool { return w.get(key).Status.HostRef != nil })
		})
	}
}

// endpoint changes the tenant's, unless it is empty.
func (w *fixture) endpoint(endpoint string) {
	w.t.Helper()
	if endpoint == "" {
		return
	}
	tenant := &v1alpha1.TenantCluster{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.tenant, Name: "tenant"}, tenant); err != nil {
		w.t.Fatal(err)
	}
	tenant.Spec.APIServerEndpoint = endpoint
	if err := w.client.Update(w.t.Context(), tenant); err != nil {
		w.t.Fatal(err)
	}
}

func templateOf(text string) func(string) []client.Object {
	return func(suffix string) []client.Object {
		return []client.Object{&v1alpha1.MachineConfigTemplate{
			ObjectMeta: metaName("bad-" + suffix), Spec: v1alpha1.MachineConfigTemplateSpec{CloudInitTemplate: text},
		}}
	}
}

// typeProperty sets a property of the fixture's type.
func (w *fixture) typeProperty(key, value string) {
	w.t.Helper()
	nodeType := &v1alpha1.NodeType{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: w.nodeType}, nodeType); err != nil {
		w.t.Fatal(err)
	}
	nodeType.Spec.Properties[key] = value
	if err := w.client.Update(w.t.Context(), nodeType); err != nil {
		w.t.Fatal(err)
	}
}

// TestNodeProfile: no server is claimed for a Machine whose node could not have its NodeProfile, until it could.
func TestNodeProfile(t *testing.T) {
	w := newFixture(t, 1)
	w.endpoint("tenant.example.com:6443")
	name := "profile-" + w.metal3
	key := w.machine("m", func(m *v1alpha1.Machine) { m.Spec.ProfileRef = &v1alpha1.NameReference{Name: name} })
	manager := w.start(w.client)
	manager.round()
	claimed := condition(w.get(key), v1alpha1.ConditionClaimed)
	if want := fmt.Sprintf("NodeProfile %q does not exist: create "+
		"it", name); claimed.Reason != v1alpha1.ReasonInvalidSpec || claimed.Message != want {
		t.Errorf("Claimed is %s: %s, want %s", claimed.Reason, claimed.Message, want)
	}
	if w.get(key).Status.HostRef != nil || w.hosts()[0].Spec.ConsumerRef != nil {
		t.Error("a server is claimed")
	}
	w.create(&v1alpha1.NodeProfile{ObjectMeta: metaName(name)})
	w.until("claimed", func() *process { return manager }, func() bool { return w.get(key).Status.HostRef != nil })
}
