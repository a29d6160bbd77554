// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

var (
	preProvision = v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, v1alpha1.NetworkHook)
	preReturn    = v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, v1alpha1.NetworkHook)
)

// rounds lets everything happen that does happen.
func (w *fixture) rounds(p *process) {
	w.t.Helper()
	for range 6 {
		p.round()
		w.checkClaims()
		w.playMetal3()
	}
}

// TestHooksAreNotTheTenants: the tests here are without the admission policy, so with the token of a tenant's provider a Machine's
// metadata can be anything. A server is installed in the tenant's network only, and goes back to the pool outside of it only.
func TestHooksAreNotTheTenants(t *testing.T) {
	start := func(t *testing.T) (*fixture, *process, types.NamespacedName) {
		w := newFixture(t, 1)
		w.network()
		w.userData("user-data")
		key := w.machine("m", func(machine *v1alpha1.Machine) { machine.Spec.Bootstrap.DataSecretName = "user-data" })
		manager := w.start(w.client)
		w.until("held", func() *process { return manager }, func() bool { return waitsForHook(w.get(key)) })
		return w, manager, key
	}
	// again deletes the Machine by force and makes it anew with the identity of its claim.
	again := func(w *fixture, key types.NamespacedName) {
		w.t.Helper()
		uid := string(w.get(key).UID)
		w.edit(key, func(machine *v1alpha1.Machine) { machine.Finalizers = nil })
		if err := w.client.Delete(w.t.Context(), w.get(key)); err != nil {
			w.t.Fatal(err)
		}
		w.machine(key.Name, func(machine *v1alpha1.Machine) {
			machine.Annotations = map[string]string{v1alpha1.ClaimUIDAnnotationKey: uid}
			machine.Spec.Bootstrap.DataSecretName = "user-data"
		})
	}
	stillHeld := func(t *testing.T, w *fixture, key types.NamespacedName) {
		t.Helper()
		host := w.hosts()[0]
		if host.Spec.Image != nil || !waitsForHook(w.get(key)) || host.Annotations[preProvision] != "vlan:100" ||
			w.get(key).Status.Network != "vlan:100" {
			t.Errorf("image %v, hooks %v, status.network %q, NetworkReady %+v: want an empty server that waits for its move into vlan:100",
				host.Spec.Image, host.Annotations, w.get(key).Status.Network, condition(w.get(key), v1alpha1.ConditionNetworkReady))
		}
	}
	t.Run("AnotherNetwork", func(t *testing.T) {
		w, manager, key := start(t)
		w.edit(key, func(machine *v1alpha1.Machine) {
			machine.Annotations[preProvision], machine.Annotations[preReturn] = "vlan:200", "vlan:200"
		})
		w.rounds(manager)
		stillHeld(t, w, key)
		if got := w.get(key).Annotations[preProvision]; got != "vlan:100" {
			t.Errorf("the Machine's copy of the hook says %q", got)
		}
	})
	t.Run("NoMove", func(t *testing.T) {
		w, manager, key := start(t)
		w.edit(key, func(machine *v1alpha1.Machine) { delete(machine.Annotations, preProvision) })
		w.rounds(manager)
		stillHeld(t, w, key)
	})
	t.Run("NoMoveMadeAnew", func(t *testing.T) {
		w, manager, key := start(t)
		again(w, key)
		w.rounds(manager)
		stillHeld(t, w, key)
	})
	t.Run("MovedBackAndMadeAnew", func(t *testing.T) {
		w, manager, key := start(t)
		w.annotateHost(w.hosts()[0].Name, preReturn, "") // as the network controller does for a Machine that is gone
		w.annotateHost(w.hosts()[0].Name, preProvision, "")
		again(w, key)
		w.rounds(manager)
		stillHeld(t, w, key)
		if host := w.hosts()[0]; host.Annotations[preReturn] != "vlan:100" {
			t.Errorf("hooks %v: the server would not be moved back", host.Annotations)
		}
	})
	for name, anew := range map[string]bool{"NoReturn": false, "NoReturnMadeAnew": true} {
		t.Run(name, func(t *testing.T) {
			w, manager, key := start(t)
			w.takeHook(key, v1alpha1.PreProvisionHookPrefix)
			w.until("provisioned", func() *process { return manager },
				func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
			if anew {
				again(w, key)
				manager.round()
			}
			w.edit(key, func(machine *v1alpha1.Machine) { delete(machine.Annotations, preReturn) })
			if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
				t.Fatal(err)
			}
			w.rounds(manager)
			host := w.hosts()[0]
			if inventory.EligibilityOf(&host).Claimable || host.Annotations[preReturn] != "vlan:100" {
				t.Fatalf("consumer %v, hooks %v: the next tenant gets a server in the network of the last", host.Spec.ConsumerRef, host.Annotations)
			}
			if machine := w.get(key); machine == nil || !waitsForHook(machine) || machine.Status.HostRef == nil {
				t.Errorf("the Machine does not say that the server waits: %+v", machine)
			}
			w.annotateHost(host.Name, preReturn, "")
			w.until("gone", func() *process { return manager }, func() bool { return w.get(key) == nil })
			w.checkNothingLeft()
		})
	}
}

// TestOnlyKnownHooksHold: a hook that the manager does not know holds nothing.
func TestOnlyKnownHooksHold(t *testing.T) {
	own := func(name string) (provision, back string) {
		return v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, name), v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, name)
	}
	for name, known := range map[string]bool{"Unknown": false, "Known": true} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			provision, back := own("mine")
			key := w.machine("m", func(machine *v1alpha1.Machine) {
				standAlone(machine)
				machine.Annotations = map[string]string{provision: "x", back: "x", preProvision: "vlan:7", preReturn: "vlan:7"}
			})
			manager := w.start(w.client)
			if known {
				manager.hosts.Hooks.Insert("mine")
			}
			running := func() *process { return manager }
			if known {
				w.until("held", running, func() bool { return waitsForHook(w.get(key)) })
				w.annotateHost(w.hosts()[0].Name, provision, "")
			}
			w.until("provisioned", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
			if reported := manager.reported("hook " + provision + " holds nothing"); reported == known {
				t.Errorf("an event says that the hook holds nothing: %t", reported)
			}
			w.edit(key, func(machine *v1alpha1.Machine) { machine.Annotations[preReturn] = "vlan:7" })
			if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
				t.Fatal(err)
			}
			if known {
				w.until("held before its return", running, func() bool { return waitsForHook(w.get(key)) })
				w.annotateHost(w.hosts()[0].Name, back, "")
				w.rounds(manager)
				if !waitsForHook(w.get(key)) {
					t.Error("the hook of the Machine does not hold the server")
				}
				w.edit(key, func(machine *v1alpha1.Machine) { delete(machine.Annotations, back) })
			}
			w.until("gone", running, func() bool { return w.get(key) == nil })
			w.checkNothingLeft()
		})
	}
}

// TestAnyMetadata: whatever the labels, annotations, finalizers and owner references of a Machine are, its server comes back, and
// no Secret or server of another is touched.
func TestAnyMetadata(t *testing.T) {
	victim := hosts.Owner{NamespacedName: types.NamespacedName{Namespace: "globex", Name: "m"}, UID: "12345678-aaaa-bbbb-cccc-1234567890ab"}
	values := []string{"", "a/b", "x", strings.Repeat("y", 70), "..", "12345678", string(victim.UID), "-", strings.Repeat("-", 36),
		"12345678-AAAA-bbbb-cccc-1234567890ab", "vlan:1", "vlan:99999", "true", "%", "\x00", "metal3/server-00/x/y",
		"a/b/c/d", "{}", "[\"\"]", "🦄"}
	keys := []string{v1alpha1.ClaimUIDAnnotationKey, v1alpha1.ClaimUIDAnnotationKey, v1alpha1.ChosenHostAnnotationKey, preProvision, preReturn,
		v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, "mine"), v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, "mine"),
		v1alpha1.HookKey(v1alpha1.HookMessagePrefix, v1alpha1.NetworkHook), v1alpha1.Group + "/node-name",
		v1alpha1.Group + "/node-resources", v1alpha1.Group + "/unhealthy", v1alpha1.RebootAnnotationKey,
		v1alpha1.NodeClaimUIDAnnotationKey, v1alpha1.MachineAnnotationKey,
		"example.com/x"}
	for seed := range uint64(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 14))
			some := func(choices []string) string { return choices[random.IntN(len(choices))] }
			change := func(machine *v1alpha1.Machine) {
				for range random.IntN(6) {
					metav1.SetMetaDataAnnotation(&machine.ObjectMeta, some(keys), some(values))
				}
				if random.IntN(3) == 0 {
					delete(machine.Annotations, some(keys))
				}
				if random.IntN(3) == 0 {
					machine.Labels = map[string]string{v1alpha1.MachineUIDLabelKey: "x", v1alpha1.NodeClaimLabelKey: "other"}
				}
				switch random.IntN(5) {
				case 0:
					machine.Finalizers = append(machine.Finalizers, fmt.Sprintf("example.com/f%d", random.IntN(9)))
				case 1:
					machine.Finalizers = nil
				}
				if random.IntN(4) == 0 {
					machine.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "x", UID: types.UID(some(values[1:]))}}
				}
			}
			w := newFixture(t, 1)
			inNetwork := random.IntN(2) == 0
			if inNetwork {
				w.network()
			}
			secret := userDataSecret(victim, w.metal3, bootstrap.Documents{UserData: []byte("join token of globex")})
			w.create(secret)
			w.userData("user-data")
			has := spare(w)
			has.Name, has.Spec.ConsumerRef = "other", victim.ConsumerRef()
			other := w.api.CreateHost(t, has)
			key := w.machine("m", func(machine *v1alpha1.Machine) {
				machine.Spec.Bootstrap.DataSecretName = "user-data"
				change(machine)
			})
			owns := &v1alpha1.Machine{ObjectMeta: metaIn("globex", "m")} // its server and its Secret are no orphans
			owns.Annotations = map[string]string{v1alpha1.ClaimUIDAnnotationKey: string(victim.UID)}
			owns.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: w.nodeType}
			w.create(owns)
			manager := w.start(w.client)
			for range random.IntN(5) {
				manager.round()
				if machine := w.get(key); machine != nil {
					w.edit(key, change)
				}
			}
			if err := w.client.Delete(t.Context(), w.get(key)); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			free := func() bool { return w.hostNamed("server-00").Spec.ConsumerRef == nil }
			for range maxRounds {
				manager.round()
				w.playMetal3()
				// The network controller moves it back once it is off.
				if host := w.hostNamed("server-00"); unreturned(host) {
					w.annotateHost(host.Name, preReturn, "")
				}
				if free() && (w.get(key) == nil || len(w.get(key).Finalizers) == 0 || !strings.Contains(fmt.Sprint(w.get(key).Finalizers),
					v1alpha1.MachineFinalizer)) {
					break
				}
			}
			if host := w.hostNamed("server-00"); !free() || !inventory.EligibilityOf(host).Claimable {
				t.Errorf("the server is not back: consumer %v, annotations %v, Machine %+v", host.Spec.ConsumerRef, host.Annotations, w.get(key))
			}
			if after := w.hostNamed("other"); !equality.Semantic.DeepEqual(after.Spec, other.Spec) || len(after.Annotations) > 0 {
				t.Errorf("the server of another was changed: %+v", after)
			}
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil ||
				string(secret.Data[v1alpha1.UserDataSecretKey]) != "join token of globex" {
				t.Errorf("the Secret of another was changed: %v", err)
			}
			for _, left := range w.secrets() {
				if left.Name != secret.Name {
					t.Errorf("Secret %s is left", left.Name)
				}
			}
		})
	}
}

func unreturned(host *bmov1alpha1.BareMetalHost) bool {
	why, _ := hosts.WhyUnclean(host)
	return host.Annotations[preReturn] != "" && (why == "" && hosts.IsEmptied(host) || inventory.IsOff(host))
}

// hostNamed returns the host of that name.
func (w *fixture) hostNamed(name string) *bmov1alpha1.BareMetalHost {
	w.t.Helper()
	host := &bmov1alpha1.BareMetalHost{}
	if err := w.client.Get(context.Background(), types.NamespacedName{Namespace: w.metal3, Name: name}, host); err != nil {
		w.t.Fatal(err)
	}
	return host
}

// TestClaimUIDThatIsNone: the identity is replaced, and an event says why.
func TestClaimUIDThatIsNone(t *testing.T) {
	w := newFixture(t, 1)
	key := w.machine("m", func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Annotations = map[string]string{v1alpha1.ClaimUIDAnnotationKey: "a/b"}
	})
	manager := w.start(w.client)
	now := func() *process { return manager }
	w.until("provisioned", now, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	if got := w.get(key).Annotations[v1alpha1.ClaimUIDAnnotationKey]; got != string(w.get(key).UID) {
		t.Errorf("the Machine claims as %q", got)
	}
	if !manager.reported(`karpenter.metal3.io/claim-uid is "a/b", which is no UID: it is replaced by the Machine's own`) {
		t.Error("no event says that the identity is ignored")
	}
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	w.until("gone", now, func() bool { return w.get(key) == nil })
	w.checkNothingLeft()
}

// TestClaimOfBadUID: a host that an older version claimed under no UID is released, too.
func TestClaimOfBadUID(t *testing.T) {
	w := newFixture(t, 0)
	host := spare(w)
	host.Spec.ConsumerRef = hosts.Owner{NamespacedName: types.NamespacedName{Namespace: w.tenant, Name: "m"}, UID: "a/b"}.ConsumerRef()
	w.api.CreateHost(t, host)
	refusing := interceptor.NewClient(w.api.Client, interceptor.Funcs{
		// As client-go does. The client in memory takes any name.
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if strings.Contains(key.Name, "/") {
				return apierrors.NewBadRequest("invalid resource name " + key.Name)
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	manager := w.start(refusing)
	w.until("released", func() *process { return manager }, func() bool { return w.hosts()[0].Spec.ConsumerRef == nil })
}

// TestUserDataOfAnotherIsNotDeleted: the name of the Secret follows from the name and the identity that a Machine says it has.
func TestUserDataOfAnotherIsNotDeleted(t *testing.T) {
	w := newFixture(t, 1)
	victim := hosts.Owner{NamespacedName: types.NamespacedName{Namespace: "globex", Name: "m"}, UID: "12345678-aaaa-bbbb-cccc-1234567890ab"}
	secret := userDataSecret(victim, w.metal3, bootstrap.Documents{UserData: []byte("join token of globex")})
	w.create(secret)
	thief := hosts.Owner{NamespacedName: types.NamespacedName{Namespace: w.tenant, Name: "m"}, UID: "12345678-ffff-bbbb-cccc-1234567890ab"}
	if name := hosts.UserDataName(thief); name != secret.Name {
		t.Fatalf("Secret %s is not that of the other", name)
	}
	manager := w.start(w.client)
	if err := manager.deleteUserData(t.Context(), thief, w.metal3); err != nil {
		t.Error(err)
	}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}); err != nil {
		t.Errorf("the Secret of another is gone: %v", err)
	}
	if err := manager.deleteUserData(t.Context(), victim, w.metal3); err != nil {
		t.Error(err)
	}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("its owner's deletion leaves it: %v", err)
	}
}

// TestPatchesReadNoFleet: a Machine that says that it was restored has all hosts read, live, once and not at each of its changes.
func TestPatchesReadNoFleet(t *testing.T) {
	w := newFixture(t, 0)
	lists := 0
	live := interceptor.NewClient(w.api.Client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, hosts := list.(*bmov1alpha1.BareMetalHostList); hosts {
				lists++
			}
			return c.List(ctx, list, options...)
		},
	})
	key := w.machine("m", func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Annotations = map[string]string{v1alpha1.ClaimUIDAnnotationKey: formerUID}
	})
	manager := w.startWith(w.client, live)
	for n := range 50 {
		w.edit(key, func(machine *v1alpha1.Machine) { metav1.SetMetaDataAnnotation(&machine.ObjectMeta, "n", fmt.Sprint(n)) })
		manager.round()
	}
	if lists != 1 {
		t.Errorf("50 patches of an annotation: %d live lists of all BareMetalHosts, want 1", lists)
	}
	// Its server is found all the same when it is registered later.
	host := spare(w)
	host.Spec.ConsumerRef = hosts.Owner{NamespacedName: key, UID: formerUID}.ConsumerRef()
	host.Annotations = map[string]string{v1alpha1.NodeTypeAnnotationKey: w.nodeType}
	w.api.CreateHost(t, host)
	w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	w.until("gone", func() *process { return manager }, func() bool { return w.get(key) == nil })
	if lists != 1 {
		t.Errorf("%d live lists in the end", lists)
	}
}
