// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// inNetwork moves the tenant into a network.
func (w *fixture) inNetwork(vlan int32) {
	w.t.Helper()
	tenant := &v1alpha1.TenantCluster{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.tenant, Name: "tenant"}, tenant); err != nil {
		w.t.Fatal(err)
	}
	tenant.Spec.Network = &v1alpha1.TenantNetwork{VLAN: ptr.To(vlan)}
	if err := w.client.Update(w.t.Context(), tenant); err != nil {
		w.t.Fatal(err)
	}
}

// TestTenantsWithTheSameAddresses: a pool of one address serves two tenants whose networks are apart, and one of two
// that share a network.
func TestTenantsWithTheSameAddresses(t *testing.T) {
	api, cidr := env.Fake(t), fmt.Sprintf("10.%d.%d.1/30", 200, subnets.Add(1)&0xff)
	tenant := func(vlan int32) (*fixture, string) {
		w := newFixtureOn(t, api, 1)
		w.inNetwork(vlan)
		w.typeProperty(v1alpha1.PropertyNetworkCIDR, cidr)
		key, manager := w.machine("m", nil), w.start(w.client)
		manager.round()
		if condition(w.get(key), v1alpha1.ConditionReady).Reason == v1alpha1.ReasonNoAddress {
			return w, v1alpha1.ReasonNoAddress
		}
		w.takeHook(key, v1alpha1.PreProvisionHookPrefix)
		w.userData("user-data")
		w.edit(key, func(machine *v1alpha1.Machine) { machine.Spec.Bootstrap.DataSecretName = "user-data" })
		w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
		return w, w.get(key).Status.Addresses[0].Address
	}
	first, firstAddress := tenant(901)
	_, secondAddress := tenant(902)
	if firstAddress != secondAddress || !strings.HasPrefix(cidr, strings.TrimSuffix(firstAddress, ".2")) {
		t.Errorf("addresses %s and %s of %s in two networks, want the same", firstAddress, secondAddress, cidr)
	}
	if name, want := first.addresses()[0].Name, "vlan-901."+firstAddress; name != want {
		t.Errorf("IPAddress %s, want %s", name, want)
	}
	if _, three := tenant(901); three != v1alpha1.ReasonNoAddress {
		t.Errorf("address %s was given out twice in one network", three)
	}
}

// TestAssumedAddresses: Machines that have a server and no address yet count, so that no server is claimed for which
// there will be none; also after a restart.
func TestAssumedAddresses(t *testing.T) {
	w := newFixture(t, 4)
	w.typeProperty(v1alpha1.PropertyNetworkCIDR, fmt.Sprintf("10.201.%d.1/29", subnets.Add(1)&0xff))
	claimed := func() (count int) {
		for _, host := range w.hosts() {
			if host.Spec.ConsumerRef != nil {
				count++
			}
		}
		return count
	}
	nodeType := &v1alpha1.NodeType{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: w.nodeType}, nodeType); err != nil {
		t.Fatal(err)
	}
	prefix := strings.TrimSuffix(nodeType.Spec.Properties[v1alpha1.PropertyNetworkCIDR], ".1/29")
	w.typeProperty(v1alpha1.PropertyNetworkIPRange, prefix+".2-"+prefix+".3")
	for n := range 3 {
		w.machine(fmt.Sprintf("m-%d", n), nil) // which wait for their user data
	}
	manager := w.start(w.client)
	manager.round()
	if claimed() != 2 {
		t.Errorf("%d servers are claimed for 2 addresses", claimed())
	}
	manager = w.start(w.client)
	manager.round()
	manager.round()
	if claimed() != 2 {
		t.Errorf("after a restart, %d servers are claimed for 2 addresses", claimed())
	}
}

// TestAddressOfAnotherPool: an address that a Machine was given before the network of its type was changed is not installed with
// the name servers of the new one.
func TestAddressOfAnotherPool(t *testing.T) {
	for name, tc := range map[string]struct{ reason, was, is string }{
		"OtherNetwork": {"the server would be unreachable", "10.203.%d.1/28", "10.203.%d.65/28"},
		"OtherGateway": {"the server would have no route", "10.203.%d.1/28", "10.203.%d.2/28"},
	} {
		t.Run(name, func(t *testing.T) {
			w, subnet := newFixture(t, 1), subnets.Add(1)&0xff
			w.typeProperty(v1alpha1.PropertyNetworkCIDR, fmt.Sprintf(tc.was, subnet))
			key, manager := w.machine("m", standAlone), w.start(w.client)
			manager.hosts.Client = failingInstall{manager.hosts.Client}
			manager.round()
			if len(w.addresses()) != 1 || w.hosts()[0].Spec.Image != nil {
				t.Fatalf("%d addresses, image %v; want an address and no image", len(w.addresses()), w.hosts()[0].Spec.Image)
			}
			w.typeProperty(v1alpha1.PropertyNetworkCIDR, fmt.Sprintf(tc.is, subnet))
			manager = w.start(w.client)
			w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
			host, gateway := w.hosts()[0], strings.TrimSuffix(fmt.Sprintf(tc.is, subnet), "/28")
			network := netip.MustParsePrefix(fmt.Sprintf(tc.is, subnet)).Masked()
			address := netip.MustParsePrefix(host.Annotations[v1alpha1.IPAddressAnnotationKey])
			if !network.Contains(address.Addr()) || host.Annotations[v1alpha1.GatewayAnnotationKey] != gateway || len(w.addresses()) != 1 {
				t.Errorf("%s: address %s, gateway %s, %d addresses; want one of %s, and %s", tc.reason, address,
					host.Annotations[v1alpha1.GatewayAnnotationKey], len(w.addresses()), network, gateway)
			}
		})
	}
}

// failingInstall is a manager that never gets to write the image.
type failingInstall struct{ client.Client }

func (f failingInstall) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if host, ok := object.(*bmov1alpha1.BareMetalHost); ok && host.Spec.Image != nil {
		return errors.New("connection refused")
	}
	return f.Client.Patch(ctx, object, patch, options...)
}

// TestAddressesOfBothFamilies: a server gets one address, of either family, and a template can make one of the other from it.
func TestAddressesOfBothFamilies(t *testing.T) {
	const byTemplate = "version: 2\nethernets:\n  eth0:\n    addresses: ['{{ .Values.AllocatedIP }}/{{ .Values.PrefixLength }}'%s]\n" +
		"    gateway%d: '{{ .Values.Gateway }}'\n"
	for name, tc := range map[string]struct {
		reason, cidr, ranges, template string
		want                           []string
	}{
		"IPv6": {reason: "the network data follow from the network", cidr: "2001:db8:1::1/64", ranges: "2001:db8:1::a",
			want: []string{`"type": "ipv6"`, `"ip_address": "2001:db8:1::a"`, `"netmask": "ffff:ffff:ffff:ffff::"`, `"gateway": "2001:db8:1::1"`}},
		"IPv6Template": {reason: "before there is an address, a template is tried with one of the same family", cidr: "2001:db8:2::1/64",
			ranges: "2001:db8:2::a", template: fmt.Sprintf(byTemplate, "", 6),
			want: []string{`"ip_address": "2001:db8:2::a"`, `"gateway": "2001:db8:2::1"`}},
		"DualStack": {reason: "the address of the other family is made from the one that is allocated", cidr: "10.204.0.1/24",
			ranges: "10.204.0.10", template: fmt.Sprintf(byTemplate, ", '2001:db8::{{ .Values.AllocatedIP }}/64'", 4),
			want: []string{`"ip_address": "10.204.0.10"`, `"ip_address": "2001:db8::acc:a"`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			w.typeProperty(v1alpha1.PropertyNetworkCIDR, tc.cidr)
			w.typeProperty(v1alpha1.PropertyNetworkIPRange, tc.ranges)
			if tc.template != "" {
				w.create(&v1alpha1.MachineConfigTemplate{ObjectMeta: metaName("template-" + w.metal3),
					Spec: v1alpha1.MachineConfigTemplateSpec{NetworkDataTemplate: tc.template}})
				w.typeProperty(v1alpha1.PropertyNetworkDataTemplate, "template-"+w.metal3)
			}
			key, manager := w.machine("m", standAlone), w.start(w.client)
			w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
			host, secret := w.hosts()[0], &corev1.Secret{}
			if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.metal3, Name: host.Spec.NetworkData.Name}, secret); err != nil {
				t.Fatal(err)
			}
			data := string(secret.Data["networkData"])
			for _, part := range tc.want {
				if !strings.Contains(data, part) {
					t.Errorf("%s: the network data lack %s:\n%s", tc.reason, part, data)
				}
			}
			address := netip.MustParsePrefix(host.Annotations[v1alpha1.IPAddressAnnotationKey]).Addr().String()
			if got := w.get(key).Status.Addresses; len(got) != 1 || got[0].Address != address {
				t.Errorf("%s: the Machine has the addresses %v, want %s", tc.reason, got, address)
			}
		})
	}
}

// TestOverlapEvent: the Machine whose pool shares addresses with another says so.
func TestOverlapEvent(t *testing.T) {
	api, subnet := env.Fake(t), subnets.Add(1)&0xff
	cidr := fmt.Sprintf("10.202.%d.1/24", subnet)
	provision := func(ranges string) *process {
		w := newFixtureOn(t, api, 1)
		w.typeProperty(v1alpha1.PropertyNetworkCIDR, cidr)
		w.typeProperty(v1alpha1.PropertyNetworkIPRange, strings.ReplaceAll(ranges, "X", fmt.Sprintf("10.202.%d", subnet)))
		key, manager := w.machine("m", standAlone), w.start(w.client)
		w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
		return manager
	}
	if provision("X.10-X.20").reported("overlaps") {
		t.Error("there is nothing to overlap yet")
	}
	if provision("X.10-X.20").reported("overlaps") {
		t.Error("the same pool does not overlap itself")
	}
	if !provision("X.20-X.30").reported("overlaps") {
		t.Error("no event reports that the pools overlap")
	}
}

// TestAnotherTypeIsTaken: a Machine that fits several types gets the cheapest that it can have. What is wrong with one type
// keeps no Machine from another.
func TestAnotherTypeIsTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		properties map[string]string
		// named is true for a Machine that names the cheaper type.
		named bool
		// want is the reason of the refusal; empty if the Machine gets a server of the other type.
		want string
	}{
		"NoAddress": {
			reason:     "the only address of the cheaper type is taken",
			properties: map[string]string{v1alpha1.PropertyNetworkCIDR: "10.203.0.1/24", v1alpha1.PropertyNetworkIPRange: "10.203.0.2-10.203.0.2"},
		},
		"Invalid": {
			reason: "the cheaper type cannot be installed", properties: map[string]string{v1alpha1.PropertyOSImage: "missing"},
		},
		"Named": {
			reason: "the Machine wants no other type", properties: map[string]string{v1alpha1.PropertyOSImage: "missing"}, named: true,
			want: v1alpha1.ReasonInvalidSpec,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 2)
			cheap := &v1alpha1.NodeType{}
			if err := w.client.Get(t.Context(), client.ObjectKey{Name: w.nodeType}, cheap); err != nil {
				t.Fatal(err)
			}
			dear := &v1alpha1.NodeType{ObjectMeta: metaName("dear-" + w.metal3), Spec: *cheap.Spec.DeepCopy()}
			w.create(dear)
			w.api.CreateHost(t, env.AvailableHost(w.metal3, "z", map[string]string{"class": "dear"}))
			for key, value := range tc.properties {
				w.typeProperty(key, value)
			}
			manager := w.start(w.client)
			w.machine("before", nil)
			manager.round()
			key := w.machine("m", func(machine *v1alpha1.Machine) {
				if tc.named {
					return
				}
				machine.Spec.NodeTypeRef = nil
				machine.Spec.Requirements = []corev1.NodeSelectorRequirement{{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn,
					Values: []string{"linux"}}}
				machine.Spec.Resources = env.Resources("cpu", "1")
			})
			manager.inventory.SetType(inventory.Profile{
				Name: dear.Name, MadeBy: dear.Spec.ProviderRef.Name, Namespace: w.metal3, Cost: 2,
				Selector:  labels.SelectorFromSet(labels.Set{"class": "dear"}),
				Resources: dear.Spec.Resources, Server: capacity.Declared(dear),
			})
			manager.round()
			machine := w.get(key)
			if tc.want != "" {
				if got := condition(machine, v1alpha1.ConditionClaimed).Reason; got != tc.want {
					t.Errorf("%s: reason %s, want %s", tc.reason, got, tc.want)
				}
				return
			}
			if reference := machine.Status.NodeTypeRef; reference == nil || reference.Name != dear.Name {
				t.Errorf("%s: NodeType %v, condition %+v", tc.reason, reference, condition(machine, v1alpha1.ConditionClaimed))
			}
		})
	}
}
