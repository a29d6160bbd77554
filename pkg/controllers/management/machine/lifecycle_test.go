// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
)

func standAlone(machine *v1alpha1.Machine) { machine.Spec.TenantClusterRef = nil }

// TestNotClaimed: any error of a Machine is one sentence in its condition, and no server is claimed.
func TestNotClaimed(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		machine func(*fixture, *v1alpha1.Machine)
		fixture func(*fixture)
		want    string
		message []string
	}{
		"NoTenant": {
			reason:  "a tenant that does not exist may have nothing",
			machine: func(_ *fixture, m *v1alpha1.Machine) { m.Spec.TenantClusterRef.Name = "missing" },
			want:    v1alpha1.ReasonInvalidSpec,
			message: []string{"spec.tenantClusterRef.name", `"missing"`, "create it"},
		},
		"NoOSImage": {
			reason: "a typo in the Machine's own properties",
			machine: func(_ *fixture, m *v1alpha1.Machine) {
				m.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: "ubunut"}
			},
			want:    v1alpha1.ReasonInvalidSpec,
			message: []string{"karpenter.metal3.io/os-image", "Machine", `"ubunut"`, "no OSImage of that name"},
		},
		"TypeWithoutOSImage": {
			reason: "what the type refers to is looked at before a server is claimed, too",
			fixture: func(w *fixture) {
				if err := w.client.Delete(w.t.Context(), &v1alpha1.OSImage{ObjectMeta: metaName(w.osImage)}); err != nil {
					w.t.Fatal(err)
				}
			},
			want:    v1alpha1.ReasonInvalidSpec,
			message: []string{"karpenter.metal3.io/os-image of NodeType", "no OSImage of that name"},
		},
		"NoSuchType": {
			reason:  "a NodeType that does not exist",
			machine: func(_ *fixture, m *v1alpha1.Machine) { m.Spec.NodeTypeRef.Name = "h200" },
			want:    v1alpha1.ReasonNoMatchingType,
			message: []string{"h200"},
		},
		"NotAllowed": {
			reason:  "an empty list of allowed types allows none",
			fixture: func(w *fixture) { w.allow() },
			want:    v1alpha1.ReasonNotAllowed,
			message: []string{"allowed"},
		},
		"PinnedToAnother": {
			reason: "a pinned Machine gets its server or none",
			machine: func(_ *fixture, m *v1alpha1.Machine) {
				m.Spec.Properties = map[string]string{v1alpha1.PropertyServerName: "server-99"}
			},
			message: []string{"server-99"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			if tc.fixture != nil {
				tc.fixture(w)
			}
			key := w.machine("m", func(m *v1alpha1.Machine) {
				if tc.machine != nil {
					tc.machine(w, m)
				}
			})
			manager := w.start(w.client)
			manager.round()
			machine := w.get(key)
			claimed := condition(machine, v1alpha1.ConditionClaimed)
			if tc.want != "" && claimed.Reason != tc.want {
				t.Errorf("%s: reason %q, want %q (%s)", tc.reason, claimed.Reason, tc.want, claimed.Message)
			}
			for _, part := range tc.message {
				if !strings.Contains(claimed.Message, part) {
					t.Errorf("%s: message %q does not say %q", tc.reason, claimed.Message, part)
				}
			}
			if machine.Status.HostRef != nil || w.hosts()[0].Spec.ConsumerRef != nil {
				t.Errorf("%s: a server is tied up: %v", tc.reason, machine.Status.HostRef)
			}
			if claimed.ObservedGeneration != machine.Generation {
				t.Errorf("observedGeneration %d, want %d: the conditions are not known to be up to date", claimed.ObservedGeneration,
					machine.Generation)
			}
			// The server must still be available for a valid Machine.
			if tc.fixture == nil {
				good := w.machine("good", standAlone)
				w.until("claimed", func() *process { return manager }, func() bool { return w.get(good).Status.ProviderID != "" })
			}
		})
	}
}

// TestHostErrorKeepsServer: a Machine keeps its server in error, has Metal3's message, and recovers with the server.
func TestHostErrorKeepsServer(t *testing.T) {
	w := newFixture(t, 2)
	key := w.machine("m", standAlone)
	manager := w.start(w.client)
	running := func() *process { return manager }
	w.until("provisioned", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	name := w.get(key).Status.HostRef.Name
	w.host(name, func(host *bmov1alpha1.BareMetalHost) {
		host.Status.ErrorType, host.Status.ErrorMessage = bmov1alpha1.PowerManagementError, "no power"
	})
	manager.round()
	machine := w.get(key)
	ready := condition(machine, v1alpha1.ConditionReady)
	if machine.Status.Phase != v1alpha1.MachineFailed || ready.Reason != v1alpha1.ReasonHostError ||
		!strings.Contains(ready.Message, "power management error: Metal3 could not switch it on or off") {
		t.Errorf("phase %s, ready %+v; want Failed, HostError with Metal3's type of error", machine.Status.Phase, ready)
	}
	if machine.Status.HostRef.Name != name || machine.Status.ProviderID == "" {
		t.Errorf("the Machine has let its server go: %+v", machine.Status)
	}
	w.host(name, func(host *bmov1alpha1.BareMetalHost) { host.Status.ErrorType, host.Status.ErrorMessage = "", "" })
	manager.round()
	if machine = w.get(key); machine.Status.Phase != v1alpha1.MachineProvisioned {
		t.Errorf("phase %s after the server has recovered, want Provisioned", machine.Status.Phase)
	}
}

// TestHostLost: a Machine whose server is deleted or has another consumer gets no other server. When it is deleted, the tenant has
// its quota and its address again.
func TestHostLost(t *testing.T) {
	for name, lose := range map[string]func(*fixture, *bmov1alpha1.BareMetalHost){
		"Deleted": func(w *fixture, host *bmov1alpha1.BareMetalHost) {
			if err := w.client.Delete(w.t.Context(), host); err != nil {
				w.t.Fatal(err)
			}
		},
		"Taken": func(w *fixture, host *bmov1alpha1.BareMetalHost) {
			host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Namespace: "x", Name: "y"}
			if err := w.client.Update(w.t.Context(), host); err != nil {
				w.t.Fatal(err)
			}
		},
		"Emptied": func(w *fixture, host *bmov1alpha1.BareMetalHost) {
			host.Spec.Image = nil
			if err := w.client.Update(w.t.Context(), host); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			w.typeProperty(v1alpha1.PropertyNetworkCIDR, "10.204.0.1/28")
			update(w, &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, "tenant")}, func(tenant *v1alpha1.TenantCluster) {
				tenant.Spec.Quota = &v1alpha1.Quota{Servers: ptr.To(int64(1))}
			})
			w.userData("user-data")
			key := w.machine("m", func(machine *v1alpha1.Machine) { machine.Spec.Bootstrap.DataSecretName = "user-data" })
			manager := w.start(w.client)
			manager.sweeps = false
			running := func() *process { return manager }
			w.until("provisioned", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
			w.api.CreateHost(t, spare(w))
			for _, host := range w.hosts() {
				if host.Spec.ConsumerRef != nil {
					lose(w, &host)
				}
			}
			manager.round()
			manager.round()
			machine := w.get(key)
			if reason := condition(machine, v1alpha1.ConditionReady).Reason; machine.Status.Phase != v1alpha1.MachineFailed ||
				reason != v1alpha1.ReasonHostLost {
				t.Errorf("phase %s, reason %s; want Failed, HostLost", machine.Status.Phase, reason)
			}
			if err := w.client.Delete(t.Context(), machine); err != nil {
				t.Fatal(err)
			}
			w.until("gone", running, func() bool { return w.get(key) == nil })
			for _, address := range w.addresses() {
				t.Errorf("address %s is left", address.Name)
			}
			for _, host := range w.hosts() {
				if host.Spec.ConsumerRef != nil && host.Spec.ConsumerRef.Kind == "Machine" {
					t.Errorf("host %s is left with consumer %v", host.Name, host.Spec.ConsumerRef)
				}
				if name == "Taken" && host.Spec.ConsumerRef != nil && host.Spec.Image == nil {
					t.Errorf("the server of another consumer was deprovisioned")
				}
			}
			next := w.machine("next", nil)
			w.until("the next Machine has a server", running, func() bool { return w.get(next).Status.ProviderID != "" })
		})
	}
}

// TestUncleanHostStaysClaimed: what Metal3 cannot clean is not given to the next.
func TestUncleanHostStaysClaimed(t *testing.T) {
	w := newFixture(t, 1)
	key := w.machine("m", standAlone)
	manager := w.start(w.client)
	running := func() *process { return manager }
	w.until("provisioned", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	manager.round()
	w.playMetal3()
	w.host("server-00", func(host *bmov1alpha1.BareMetalHost) {
		host.Status.ErrorType, host.Status.ErrorMessage = bmov1alpha1.ProvisioningError, "cleaning failed"
	})
	for range 3 {
		manager.round()
	}
	machine := w.get(key)
	if machine == nil || w.hosts()[0].Spec.ConsumerRef == nil {
		t.Fatal("a server that is not clean went back to the pool")
	}
	if released := condition(machine, v1alpha1.ConditionReleased); released.Reason != v1alpha1.ReasonHostError ||
		!strings.Contains(released.Message, "could not clean it") {
		t.Errorf("Released does not say why: %+v", released)
	}
	w.host("server-00", func(host *bmov1alpha1.BareMetalHost) { host.Status.ErrorType, host.Status.ErrorMessage = "", "" })
	w.until("gone", running, func() bool { return w.get(key) == nil })
	w.checkNothingLeft()
}

// TestOperatorsDocuments: what an operator has configured on a host for whatever is installed there stays, also if the Machine has
// network data of its own meanwhile, and its user data is what a server is installed with for the Machine.
func TestOperatorsDocuments(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		cidr   string
	}{
		"OfTheHostAlone":    {"the Machine brings none, so the operator's is used", ""},
		"OfTheMachineFirst": {"the operator's is put back", "10.204.0.1/28"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			own := func(name string) *corev1.SecretReference {
				return &corev1.SecretReference{Namespace: w.metal3, Name: name}
			}
			host := w.hosts()[0]
			host.Spec.MetaData, host.Spec.NetworkData, host.Spec.UserData = own("meta"), own("network"), own("user")
			if err := w.client.Update(t.Context(), &host); err != nil {
				t.Fatal(err)
			}
			if tc.cidr != "" {
				w.typeProperty(v1alpha1.PropertyNetworkCIDR, tc.cidr)
			}
			key, manager := w.machine("m", standAlone), w.start(w.client)
			running := func() *process { return manager }
			w.until("provisioned", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
			host = w.hosts()[0]
			if host.Spec.MetaData == nil || host.Spec.NetworkData == nil || (host.Spec.NetworkData.Name == "network") != (tc.cidr == "") {
				t.Errorf("installed with metadata %v and network data %v", host.Spec.MetaData, host.Spec.NetworkData)
			}
			if userData := host.Spec.UserData; userData != nil && userData.Name == "user" {
				t.Errorf("installed with the operator's user data, of which the Machine knows nothing")
			}
			if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
				t.Fatal(err)
			}
			w.until("gone", running, func() bool { return w.get(key) == nil })
			w.checkNothingLeft()
			host = w.hosts()[0]
			if host.Spec.MetaData == nil || *host.Spec.MetaData != *own("meta") || host.Spec.NetworkData == nil ||
				*host.Spec.NetworkData != *own("network") || host.Spec.UserData == nil || *host.Spec.UserData != *own("user") {
				t.Errorf("released with metadata %v, network data %v and user data %v: %s", host.Spec.MetaData, host.Spec.NetworkData,
					host.Spec.UserData, tc.reason)
			}
		})
	}
}

// TestForcedDeletion: the finalizer is removed by hand. The server and the Secret find their way back alone.
func TestForcedDeletion(t *testing.T) {
	w := newFixture(t, 1)
	w.create(&corev1.Secret{ObjectMeta: metaIn(w.tenant, "user-data"), Data: map[string][]byte{v1alpha1.UserDataSecretKey: []byte("x")}})
	key := w.machine("m", func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Spec.Bootstrap.DataSecretName = "user-data"
	})
	manager := w.start(w.client)
	w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Finalizers = nil })
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	manager = w.start(w.client) // without any memory
	w.until("released", func() *process { return manager }, func() bool { return w.hosts()[0].Spec.ConsumerRef == nil })
	w.checkNothingLeft()
}

// TestRecreatedUnderSameName: the Machine that comes after has no right to the server of the first.
func TestRecreatedUnderSameName(t *testing.T) {
	w := newFixture(t, 1)
	key := w.machine("m", standAlone)
	manager := w.start(w.client)
	running := func() *process { return manager }
	w.until("provisioned", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Finalizers = nil })
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	w.machine("m", standAlone)
	manager.round()
	if machine := w.get(key); machine.Status.HostRef != nil {
		t.Errorf("it has taken over a server that was never cleaned: %+v", machine.Status)
	}
	w.until("claimed properly", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	if !hosts.Owns(hosts.OwnerOf(w.get(key)), &w.hosts()[0]) {
		t.Errorf("consumer %v", w.hosts()[0].Spec.ConsumerRef)
	}
}

// allow sets the types that the tenant may have.
func (w *fixture) allow(names ...string) {
	w.t.Helper()
	tenant := &v1alpha1.TenantCluster{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.tenant, Name: "tenant"}, tenant); err != nil {
		w.t.Fatal(err)
	}
	list := append([]string{}, names...)
	tenant.Spec.AllowedNodeTypes = &list
	if err := w.client.Update(w.t.Context(), tenant); err != nil {
		w.t.Fatal(err)
	}
}

// host changes the status of a host, as Metal3 would.
func (w *fixture) host(name string, change func(*bmov1alpha1.BareMetalHost)) {
	w.t.Helper()
	for _, host := range w.hosts() {
		if host.Name == name {
			before := host.DeepCopy()
			change(&host)
			w.setHostStatus(before, &host)
		}
	}
}

// TestStaleCache: a cache that does not know the host is no reason to give a Machine up.
func TestStaleCache(t *testing.T) {
	w := newFixture(t, 1)
	key := w.machine("m", standAlone)
	manager := w.start(w.client)
	w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	manager.Reconciler.client = interceptor.NewClient(w.api.Client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, isHost := object.(*bmov1alpha1.BareMetalHost); isHost {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "baremetalhosts"}, key.Name)
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	manager.round()
	if machine := w.get(key); machine.Status.Phase != v1alpha1.MachineProvisioned {
		t.Errorf("phase %s, want Provisioned: %s", machine.Status.Phase, condition(machine, v1alpha1.ConditionReady).Message)
	}
}
