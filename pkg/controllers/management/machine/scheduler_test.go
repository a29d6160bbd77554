// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// single is a pool of one address.
func single(t *testing.T, cidr string) *ipam.Pool {
	t.Helper()
	pool, err := ipam.NewPool(netip.MustParsePrefix(cidr), netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	return &pool
}

func named(name, uid string) *v1alpha1.Machine {
	machine := &v1alpha1.Machine{ObjectMeta: metaIn("blue", name)}
	machine.UID = types.UID(uid)
	return machine
}

// TestAssumptionsEnd: an assumption that comes to nothing moves a Machine that waits for the address, which then gets it.
func TestAssumptionsEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		ends   func(p *process, assumed *v1alpha1.Machine)
	}{
		"OtherPool": {"its type is another, with addresses of its own", func(p *process, assumed *v1alpha1.Machine) {
			p.scheduler.assumePool(assumed, single(t, "192.0.2.5/30"))
		}},
		"NoPool": {"its type is another, which needs no address", func(p *process, assumed *v1alpha1.Machine) {
			p.scheduler.assumePool(assumed, nil)
		}},
		"Recreated": {"it was deleted and created again so fast that no reconcile has seen it gone", func(p *process, assumed *v1alpha1.Machine) {
			p.scheduler.assumePool(named(assumed.Name, "another"), nil)
		}},
		"Deleted": {"cleaning its server takes long", func(p *process, assumed *v1alpha1.Machine) {
			_, _ = p.release(t.Context(), &visit{machine: assumed})
		}},
		"Vanished": {"it was deleted by force", func(p *process, assumed *v1alpha1.Machine) {
			p.vanished(hosts.OwnerOf(assumed).NamespacedName)
		}},
		"BindingLost": {"another manager has claimed the server", func(p *process, assumed *v1alpha1.Machine) {
			p.scheduler.forget(client.ObjectKeyFromObject(assumed))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cache := fake.NewClientBuilder().WithScheme(env.Scheme()).Build()
			p := &process{Reconciler: New(Dependencies{Client: cache, Live: cache, Clock: clock.RealClock{}, Recorder: events.NewFakeRecorder(10),
				Inventory: inventory.NewInventory(inventory.Options{})})}
			pool, assumed, waits := single(t, "192.0.2.1/30"), named("assumed", "1"), named("w", "2")
			if err := p.scheduler.checkAddress(t.Context(), assumed, pool); err != nil {
				t.Fatal(err)
			}
			p.scheduler.assumePool(assumed, pool)
			if err := p.scheduler.checkAddress(t.Context(), waits, pool); err == nil {
				t.Fatal("there are two addresses")
			}
			since := p.scheduler.queue.Version()
			p.scheduler.park(scheduling.Machine[candidate]{
				Key: hosts.OwnerOf(waits).NamespacedName, Hints: []scheduling.Event{addressFreed("")}}, since)
			tc.ends(p, assumed)
			if moved, _, found := p.scheduler.queue.Pop(); !found || moved.Key.Name != "w" {
				t.Errorf("%s: got %v, %v, want the Machine that waits", tc.reason, moved.Key, found)
			}
			if err := p.scheduler.checkAddress(t.Context(), waits, pool); err != nil {
				t.Errorf("%s: and still %v", tc.reason, err)
			}
		})
	}
}

// TestDecidedOnce: a worker binds what the loop has decided. It decides again if that could have changed meanwhile, and only then.
func TestDecidedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		meanwhile func(p *process, machine *v1alpha1.Machine)
		// plans is how often the plan is resolved, and lost is true if the Machine gets no server.
		plans int
		lost  bool
	}{
		"Stands": {"the decision is as good as it was", func(*process, *v1alpha1.Machine) {}, 1, false},
		"Object": {"its type may have another image now", func(p *process, _ *v1alpha1.Machine) { p.scheduler.move(objectChanged) }, 2, false},
		"Machine": {"it may ask for something else now", func(p *process, machine *v1alpha1.Machine) {
			p.fixture.edit(client.ObjectKeyFromObject(machine), func(machine *v1alpha1.Machine) {
				machine.Spec.Labels = map[string]string{"example.com/team": "a"}
			})
		}, 2, false},
		"Forgotten": {"its server and its share of the quota may be another's", func(p *process, machine *v1alpha1.Machine) {
			p.scheduler.forget(client.ObjectKeyFromObject(machine))
		}, 2, false},
		"Taken": {"another manager has claimed the server", func(p *process, _ *v1alpha1.Machine) {
			host := p.fixture.hosts()[0]
			host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "other"}
			p.inventory.SetHost(&host)
		}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, plans := newFixture(t, 0), 0
			key := w.machine("m", standAlone)
			p := w.start(interceptor.NewClient(w.api.Client, interceptor.Funcs{Get: func(
				ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
			) error {
				if _, image := object.(*v1alpha1.OSImage); image {
					plans++
				}
				return c.Get(ctx, key, object, options...)
			}}))
			p.scheduler.listen()
			p.look(key)
			p.inventory.SetHost(w.api.CreateHost(t, env.AvailableHost(w.metal3, "server-00", nil)))
			p.scheduler.schedulePending(t.Context())
			if plans != 1 {
				t.Fatalf("the loop has resolved %d plans", plans)
			}
			tc.meanwhile(p, w.get(key))
			p.look(key)
			machine := w.get(key)
			if _, chosen := machine.Host(); chosen == tc.lost || plans != tc.plans {
				t.Errorf("%s: has a server is %t, with %d plans: %+v", tc.reason, chosen, plans, machine.Status.Conditions)
			}
		})
	}
}

// TestDeletedTenantsMove: without tenants in its namespace, a Machine that stands alone may have any type.
func TestDeletedTenantsMove(t *testing.T) {
	r := &Reconciler{scheduler: newScheduler(Dependencies{Clock: clock.RealClock{}})}
	r.scheduler.park(scheduling.Machine[candidate]{Key: types.NamespacedName{Name: "a"},
		Hints: []scheduling.Event{objectChanged, hostChanged}}, 0)
	r.scheduler.movePending().Delete(t.Context(), event.DeleteEvent{Object: &v1alpha1.TenantCluster{}}, nil)
	if moved, _, found := r.scheduler.queue.Pop(); !found || moved.MovedBy != objectChanged {
		t.Errorf("got %v, %v, want the Machine", moved, found)
	}
}

// TestHooksFollowTheTenant: a Machine has waited for a server, and meanwhile its tenant was given another network.
func TestHooksFollowTheTenant(t *testing.T) {
	machine, tenant := named("m", "1"), &v1alpha1.TenantCluster{}
	tenant.Spec.Network = &v1alpha1.TenantNetwork{VLAN: ptr.To(int32(100))}
	setNetworkHooks(machine, networkFor(tenant))
	tenant.Spec.Network.VLAN = ptr.To(int32(200))
	setNetworkHooks(machine, networkFor(tenant))
	for _, prefix := range hosts.HookPrefixes {
		if network := machine.Annotations[v1alpha1.HookKey(prefix, v1alpha1.NetworkHook)]; network != "vlan:200" {
			t.Errorf("%s says network %s, want that of the tenant", prefix, network)
		}
	}
	if setNetworkHooks(machine, ""); len(machine.Annotations) > 0 {
		t.Errorf("hooks %v for a tenant without a network", machine.Annotations)
	}
}
