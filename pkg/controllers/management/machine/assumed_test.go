// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// rack adds a server, and tells the process as a watch would.
func (p *process) rack(name string) {
	p.fixture.t.Helper()
	p.inventory.SetHost(p.fixture.api.CreateHost(p.fixture.t, env.AvailableHost(p.fixture.metal3, name, nil)))
}

// withoutImage has the Machine be installed with an image that there is not.
func withoutImage(machine *v1alpha1.Machine) {
	machine.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: "no-such-image"}
}

// unfounded are the Machines for which something is assumed, although they have no server, and no worker is to bind what the loop has
// decided.
func (p *process) unfounded() (all []types.NamespacedName) {
	p.fixture.t.Helper()
	queue := p.scheduler.queue
	for key, assumed := range p.scheduler.assumed {
		waiting, parked := queue.Take(key)
		if parked {
			queue.Park(waiting, queue.Version())
		}
		machine := p.fixture.get(key)
		if machine == nil || machine.UID != assumed.uid ||
			machine.Status.HostRef == nil && machine.Annotations[v1alpha1.ChosenHostAnnotationKey] == "" && waiting.Value.assigned == nil {
			all = append(all, key)
		}
	}
	return all
}

// TestRefusedMachineKeepsNoServer: a Machine is edited after the loop has assumed a server for it, and before a worker has written the
// choice.
func TestRefusedMachineKeepsNoServer(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		spec   func(*v1alpha1.Machine)
		change func(*fixture, types.NamespacedName)
		want   string
	}{
		"no such image": {reason: "it cannot be installed", want: v1alpha1.ReasonInvalidSpec,
			change: func(w *fixture, key types.NamespacedName) { w.edit(key, withoutImage) }},
		"tenant gone": {reason: "it is charged to nobody", want: v1alpha1.ReasonInvalidSpec,
			change: func(w *fixture, _ types.NamespacedName) {
				if err := w.client.Delete(w.t.Context(), &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, "tenant")}); err != nil {
					w.t.Fatal(err)
				}
			}},
		"may not stand alone": {reason: "it is charged to nobody", want: v1alpha1.ReasonNotAllowed, spec: standAlone,
			change: func(w *fixture, _ types.NamespacedName) {
				update(w, &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, "tenant")}, func(tenant *v1alpha1.TenantCluster) {
					tenant.Spec.StandAloneMachines = v1alpha1.StandAloneForbidden
				})
			}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 0)
			p := w.start(w.client)
			p.scheduler.listen()
			refused := w.machine("refused", tc.spec)
			p.look(refused)
			p.rack("server-00")
			p.scheduler.schedulePending(t.Context())
			if _, assumed := p.scheduler.assumed[refused]; !assumed {
				t.Fatal("no server is assumed for the first Machine")
			}
			tc.change(w, refused)
			p.scheduler.move(objectChanged)
			p.look(refused)
			if claimed := condition(w.get(refused), v1alpha1.ConditionClaimed); claimed.Reason != tc.want {
				t.Fatalf("the Machine is not refused: %+v; %s", claimed, tc.reason)
			}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.api.Namespace(t)}}
			update(w, namespace, func(namespace *corev1.Namespace) {
				namespace.Labels = map[string]string{v1alpha1.StandAloneMachinesLabelKey: v1alpha1.StandAloneMachinesLabelValue}
			})
			next := w.other(namespace.Name, "next")
			p.look(next)
			if machine := w.get(next); machine.Status.HostRef == nil {
				t.Errorf("the server is kept for the Machine that was refused: %+v", condition(machine, v1alpha1.ConditionClaimed))
			}
		})
	}
}

// TestAssumedIsChosenOrQueued: after random events, once workers have looked at all Machines, nothing is assumed for one that has no
// server and is to be given none.
func TestAssumedIsChosenOrQueued(t *testing.T) {
	assumed, refused := 0, 0
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 29))
			w := newFixture(t, 0)
			p := w.start(w.client)
			p.scheduler.listen()
			var keys []types.NamespacedName
			spec := func(machine *v1alpha1.Machine) {
				if machine.Spec.Properties = nil; random.IntN(3) == 0 {
					withoutImage(machine)
				}
			}
			for step := range 40 {
				switch random.IntN(8) {
				case 0, 1:
					keys = append(keys, w.machine(fmt.Sprintf("m-%02d", step), func(machine *v1alpha1.Machine) {
						if spec(machine); random.IntN(3) == 0 {
							standAlone(machine)
						}
					}))
				case 2:
					p.rack(fmt.Sprintf("server-%02d", step))
				case 3:
					update(w, &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, "tenant")}, func(tenant *v1alpha1.TenantCluster) {
						tenant.Spec.Quota = &v1alpha1.Quota{Servers: ptr.To(random.Int64N(6))}
						tenant.Spec.StandAloneMachines = []v1alpha1.StandAlonePolicy{v1alpha1.StandAloneForbidden, v1alpha1.StandAloneAllowed}[random.IntN(2)]
					})
					p.scheduler.move(objectChanged)
				case 4:
					p.scheduler.schedulePending(t.Context())
				default:
					if len(keys) == 0 {
						continue
					}
					key := keys[random.IntN(len(keys))]
					machine := w.get(key)
					switch {
					case machine == nil || machine.Status.HostRef != nil:
					case random.IntN(3) > 0:
						w.edit(key, spec)
					default:
						if err := w.client.Delete(t.Context(), machine); err != nil {
							t.Fatal(err)
						}
					}
				}
				assumed += len(p.scheduler.assumed)
				if random.IntN(3) > 0 {
					continue
				}
				for _, key := range keys {
					p.look(key)
					if machine := w.get(key); machine != nil && len(condition(machine, v1alpha1.ConditionClaimed).Message) > 0 {
						refused++
					}
				}
				if left := p.unfounded(); len(left) > 0 {
					t.Fatalf("step %d: something is assumed for %v", step, left)
				}
			}
		})
	}
	if assumed == 0 || refused == 0 {
		t.Errorf("%d assumptions and %d refusals: nothing has been tested", assumed, refused)
	}
}
