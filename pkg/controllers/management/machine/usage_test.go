// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
)

// uses are all uses in the record, by server.
func (w *fixture) uses() (all []v1alpha1.HostUse) {
	w.t.Helper()
	for _, record := range w.records() {
		all = append(all, record.Uses...)
	}
	return all
}

func TestUseOfOneCycle(t *testing.T) {
	w := newRichFixture(t, 1)
	manager := w.start(w.api.Client)
	cycle(w, func() *process { return manager })
	uses := w.uses()
	if len(uses) != 1 {
		t.Fatalf("the record has %d uses, want one: %+v", len(uses), uses)
	}
	use := uses[0]
	if use.Machine.Namespace != w.tenant || use.Machine.Name != "m" || use.TenantCluster != "tenant" || use.NodeType != w.nodeType ||
		use.Cost == nil || *use.Cost != 1 || use.HostUID == "" || use.End == nil || !use.Start.Before(use.End) {
		t.Errorf("the record says %+v", use)
	}
}

// TestUseEndsByForce: whatever takes a server from its Machine without a release, its use ends, and once.
func TestUseEndsByForce(t *testing.T) {
	byForce := map[string]struct {
		reason string
		lose   func(*fixture, types.NamespacedName)
	}{
		"Machine": {"its finalizers were removed", func(w *fixture, key types.NamespacedName) {
			w.edit(key, func(machine *v1alpha1.Machine) { machine.Finalizers = nil })
			if err := w.client.Delete(w.t.Context(), w.get(key)); err != nil {
				w.t.Fatal(err)
			}
		}},
		"Host": {"its BareMetalHost was deleted", func(w *fixture, key types.NamespacedName) {
			host := w.hosts()[0]
			if err := w.client.Delete(w.t.Context(), &host); err != nil {
				w.t.Fatal(err)
			}
		}},
		"Consumer": {"its consumerRef was removed by hand", func(w *fixture, key types.NamespacedName) {
			w.byHand = true
			w.edithost("server-00", func(host *bmov1alpha1.BareMetalHost) { host.Spec.ConsumerRef = nil })
		}},
	}
	for name, tc := range byForce {
		t.Run(name, func(t *testing.T) {
			points := 0
			for _, kind := range faults.AtWrites {
				for write := 1; ; write++ {
					w := newFixture(t, 1)
					key := w.machine("m", standAlone)
					calm := w.start(w.api.Client)
					w.until("claimed", func() *process { return calm }, func() bool { return len(w.uses()) == 1 })
					tc.lose(w, key)
					connection := &faults.Connection{Kind: kind, At: write}
					running := w.start(connection.Client(w.api.Client))
					w.until("ended", func() *process {
						if connection.Dead() {
							connection = &faults.Connection{}
							running = w.start(connection.Client(w.api.Client))
						}
						connection.PassTime()
						return running
					}, func() bool {
						uses := w.uses()
						return len(uses) > 0 && uses[0].End != nil
					})
					for range 5 {
						running.round()
						w.playMetal3()
					}
					ended := 0
					for _, use := range w.uses() {
						if use.Machine.Name == "m" && use.End != nil {
							ended++
						}
					}
					if ended != 1 {
						t.Fatalf("%s, %s at write %d: the use has ended %d times: %+v", tc.reason, kind, write, ended, w.uses())
					}
					points++
					if len(connection.Writes()) < write && kind != faults.Crash || write > 12 {
						break
					}
				}
			}
			t.Logf("%s: %d points tried", tc.reason, points)
		})
	}
}

// TestRecordOfTwoManagers: two managers at the same time, which leader election makes rare, give servers back and claim them again.
func TestRecordOfTwoManagers(t *testing.T) {
	const servers, times = 8, 3
	w := newFixture(t, servers)
	managers := []*process{w.start(slowly(w.api.Client)), w.start(slowly(w.api.Client))}
	managers[1].backwards = true
	until := func(what string, reached func() bool) {
		t.Helper()
		for range maxRounds {
			var both sync.WaitGroup
			for _, manager := range managers {
				both.Go(manager.round)
			}
			both.Wait()
			w.checkClaims()
			if reached() {
				return
			}
			w.playMetal3()
		}
		t.Fatalf("not %s after %d rounds", what, maxRounds)
	}
	for n := range times {
		for i := range servers {
			w.machine(fmt.Sprintf("m-%d-%d", n, i), standAlone)
		}
		until("claimed", func() bool {
			for _, machine := range w.machines() {
				if machine.Status.ProviderID == "" {
					return false
				}
			}
			return true
		})
		for _, machine := range w.machines() {
			if err := w.client.Delete(t.Context(), &machine); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
		until("deleted", func() bool { return len(w.machines()) == 0 })
	}
	count := int64(len(w.uses()))
	for _, use := range w.uses() {
		if use.End == nil {
			t.Errorf("use %+v has no end", use)
		}
	}
	for _, record := range w.records() {
		for _, folded := range record.Folded {
			count += folded.Count
		}
	}
	if count != servers*times {
		t.Errorf("the record has %d uses, want %d", count, servers*times)
	}
	t.Logf("%d Machines, %d servers, 2 managers: %d uses", servers*times, servers, len(w.uses()))
}
