// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/test"
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

// TestPromisesEnd: an address that was promised and is not wanted any more wakes a Machine that waits for it, which then
// gets it.
func TestPromisesEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		ends   func(r *Reconciler, promised *v1alpha1.Machine) error
	}{
		"OtherPool": {"its type is another, with addresses of its own", func(r *Reconciler, promised *v1alpha1.Machine) error {
			_, err := r.noAddress(t.Context(), promised, &plan{pool: single(t, "192.0.2.5/30")})
			return err
		}},
		"NoPool": {"its type is another, which needs no address", func(r *Reconciler, promised *v1alpha1.Machine) error {
			_, err := r.noAddress(t.Context(), promised, &plan{})
			return err
		}},
		"Remade": {"it was deleted and made again so fast that nobody has seen it gone", func(r *Reconciler, promised *v1alpha1.Machine) error {
			_, err := r.noAddress(t.Context(), named(promised.Name, "another"), &plan{})
			return err
		}},
		"Deleted": {"cleaning its server takes long", func(r *Reconciler, promised *v1alpha1.Machine) error {
			_, err := r.release(t.Context(), &run{machine: promised})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLines(t)
			cache := fake.NewClientBuilder().WithScheme(test.Scheme()).Build()
			p := &process{Reconciler: New(Dependencies{Client: cache, Live: cache, Clock: clock.RealClock{}, Recorder: events.NewFakeRecorder(10)})}
			p.waiting = l.waiting
			pool := single(t, "192.0.2.1/30")
			if no, err := p.noAddress(t.Context(), named("promised", "1"), &plan{pool: pool}); no != "" || err != nil {
				t.Fatal(no, err)
			}
			waits := named("w", "2")
			if no, err := p.noAddress(t.Context(), waits, &plan{pool: pool}); no == "" || err != nil {
				t.Fatal("there are two addresses", err)
			}
			l.look("w", wishForAddress(*pool), false)
			if err := tc.ends(p.Reconciler, named("promised", "1")); err != nil {
				t.Fatal(err)
			}
			l.want(tc.reason, "w")
			if no, err := p.noAddress(t.Context(), waits, &plan{pool: pool}); no != "" || err != nil {
				t.Errorf("%s: and still %s, %v", tc.reason, no, err)
			}
		})
	}
}

// TestTenantsThatGoWake: without tenants in its namespace, a Machine that stands alone may have any type.
func TestTenantsThatGoWake(t *testing.T) {
	l := newLines(t, wish{need: aServer})
	(&Reconciler{waiting: l.waiting}).wakeWaiting().Delete(t.Context(), event.DeleteEvent{Object: &v1alpha1.TenantCluster{}}, l.queue)
	l.want("it may have one now", "a")
}

// TestHooksFollowTheTenant: a Machine has waited for a server, and meanwhile its tenant was given another network.
func TestHooksFollowTheTenant(t *testing.T) {
	machine, tenant := named("m", "1"), &v1alpha1.TenantCluster{}
	tenant.Spec.Network = &v1alpha1.TenantNetwork{VLAN: ptr.To(int32(100))}
	machine.Annotations = missingHooks(machine, tenant)
	if again := missingHooks(machine, tenant); len(machine.Annotations) != 2 || len(again) != 0 {
		t.Fatalf("hooks %v, and then %v", machine.Annotations, again)
	}
	tenant.Spec.Network.VLAN = ptr.To(int32(200))
	for key, network := range missingHooks(machine, tenant) {
		machine.Annotations[key] = network
	}
	if network := networkOf(machine); network != "vlan:200" {
		t.Errorf("the server is moved into network %s, want that of the tenant", network)
	}
}
