// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
)

// TestTwoManagersRace runs two managers without leader election for the same Machines. Leader election makes that rare;
// the protocol must make it harmless.
func TestTwoManagersRace(t *testing.T) {
	for name, tc := range map[string]struct {
		reason           string
		wanting, servers int
	}{
		"Enough":    {"every Machine gets a server", 100, 100},
		"NotEnough": {"no server is claimed twice", 30, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Log(tc.reason)
			race(newFixture(t, tc.servers), tc.wanting, tc.servers)
		})
	}
}

func race(w *fixture, wanting, servers int) {
	t := w.t
	t.Helper()
	for n := range wanting {
		w.machine(fmt.Sprintf("m-%03d", n), func(machine *v1alpha1.Machine) { machine.Spec.TenantClusterRef = nil })
	}
	managers := []*process{w.start(slowly(w.api.Client)), w.start(slowly(w.api.Client))}
	managers[1].backwards = true // so that different Machines are after the same server, too
	claims := func() (machines map[types.UID]string) {
		machines = map[types.UID]string{}
		for _, machine := range w.machines() {
			if condition(&machine, v1alpha1.ConditionClaimed).Status == metav1.ConditionTrue {
				machines[machine.UID] = machine.Status.HostRef.Name
			}
		}
		return machines
	}
	for range maxRounds {
		var both sync.WaitGroup
		for _, manager := range managers {
			both.Go(manager.round)
		}
		both.Wait()
		w.checkClaims()
		if len(claims()) == servers {
			break
		}
	}
	// Once more, so that whatever one manager left behind when the other was faster is swept up.
	for _, manager := range managers {
		manager.round()
	}
	got, consumers := claims(), map[types.UID]string{}
	for _, host := range w.hosts() {
		consumer, ok := hosts.ConsumerOf(&host)
		if !ok {
			t.Errorf("host %s is not claimed", host.Name)
			continue
		}
		if other, twice := consumers[consumer.UID]; twice {
			t.Errorf("Machine %s has claimed hosts %s and %s", consumer, host.Name, other)
		}
		consumers[consumer.UID] = host.Name
		if got[consumer.UID] != host.Name {
			t.Errorf("host %s is claimed by Machine %s, whose status names host %q", host.Name, consumer, got[consumer.UID])
		}
	}
	if len(got) != servers {
		t.Errorf("%d Machines are claimed, want %d", len(got), servers)
	}
	t.Logf("%d Machines, %d servers, 2 managers: %d claimed, none twice", wanting, servers, len(got))
	for _, machine := range w.machines() {
		claimed := condition(&machine, v1alpha1.ConditionClaimed)
		if claimed.Status != metav1.ConditionTrue && (claimed.Reason != v1alpha1.ReasonNoCapacity || machine.Status.HostRef != nil) {
			t.Errorf("Machine %s without a server: reason %s, host %v; want NoCapacity and none", machine.Name, claimed.Reason,
				machine.Status.HostRef)
		}
	}
}

// slowly is a connection on which hosts arrive late, so that the managers are between a read and a write at the same time,
// also in memory.
func slowly(direct client.WithWatch) client.WithWatch {
	return interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			err := c.Get(ctx, key, object, options...)
			if _, ok := object.(*bmov1alpha1.BareMetalHost); ok {
				time.Sleep(rand.N(2 * time.Millisecond))
			}
			return err
		},
	})
}

// TestTwoManagersRaceOnAPIServer is the harder case of TestTwoManagersRace with an API server's own timing.
func TestTwoManagersRaceOnAPIServer(t *testing.T) {
	t.Parallel()
	race(newFixtureOn(t, &environment, 20), 30, 20)
}

// TestOvertakenClaim plays the worst case: a manager that was paused between its two writes claims a host for a
// Machine that got another host meanwhile.
func TestOvertakenClaim(t *testing.T) {
	w := newFixture(t, 2)
	key := w.machine("m", func(machine *v1alpha1.Machine) { machine.Spec.TenantClusterRef = nil })
	manager := w.start((&faults.Connection{}).Client(w.api.Client))
	w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	stale, other := w.get(key), ""
	for _, host := range w.hosts() {
		if host.Name != stale.Status.HostRef.Name {
			other = host.Name
			stale.Status.HostRef = &v1alpha1.HostReference{Namespace: host.Namespace, Name: host.Name, UID: host.UID}
			break
		}
	}
	if _, err := (hosts.Writer{Client: w.client, Live: w.client}).Claim(t.Context(), *stale.Status.HostRef, stale); err != nil {
		t.Fatal(err)
	}
	w.until("swept", func() *process { return manager }, func() bool {
		for _, host := range w.hosts() {
			if host.Name == other && host.Spec.ConsumerRef != nil {
				return false
			}
		}
		return true
	})
	machine := w.get(key)
	if machine.Status.Phase != v1alpha1.MachineProvisioned || machine.Status.HostRef.Name == other {
		t.Errorf("the Machine's own host suffered: %+v", machine.Status)
	}
}
