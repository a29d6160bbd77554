// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// gangWorld has gangs of several tenants that want the same servers, and single Machines beside them.
type gangWorld struct {
	*fixture
	*process
	random *rand.Rand
	sizes  map[types.NamespacedName]int
}

func newGangWorld(t *testing.T, seed uint64) *gangWorld {
	w := &gangWorld{random: rand.New(rand.NewPCG(seed, 1)), sizes: map[types.NamespacedName]int{}}
	api := env.Fake(t, env.Index{Object: &v1alpha1.Machine{}, Field: gangField, Values: kube.Of(gangOf)})
	w.fixture = newFixtureOn(t, api, 1+w.random.IntN(8))
	other := &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.api.Namespace(t), "tenant")}
	other.Spec.APIServerEndpoint = "other.example.com:6443"
	w.create(other)
	w.others = []string{other.Namespace}
	w.process = w.start(w.fixture.client)
	w.scheduler.listen()
	for _, host := range w.hosts() {
		w.process.inventory.SetHost(&host)
	}
	return w
}

// machinesOf are the Machines of a gang, and how many of them have a server.
func (w *gangWorld) machinesOf(gang types.NamespacedName) (all []v1alpha1.Machine, served int) {
	for _, machine := range w.machines() {
		if machine.Namespace == gang.Namespace && machine.Spec.Gang != nil && machine.Spec.Gang.Name == gang.Name {
			all = append(all, machine)
			if machine.HasHost() {
				served++
			}
		}
	}
	return all, served
}

// settle has workers look at Machines in any order until none has anything more to do.
func (w *gangWorld) settle() {
	for range 4 {
		machines := w.machines()
		w.random.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
		for _, machine := range machines {
			_, _ = w.Reconcile(w.fixture.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&machine)})
			if w.random.IntN(3) == 0 {
				w.scheduler.schedulePending(w.fixture.t.Context())
			}
		}
	}
}

// withdraw deletes the Machines that were refused, as their providers do.
func (w *gangWorld) withdraw() {
	for _, machine := range w.machines() {
		claimed := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionClaimed)
		if machine.HasHost() || claimed == nil || claimed.Reason == v1alpha1.ReasonGangIncomplete {
			continue
		}
		if err := w.fixture.client.Delete(w.fixture.t.Context(), &machine); err != nil {
			w.fixture.t.Fatal(err)
		}
	}
}

// TestGangGetsAllServersOrNone: in random worlds, in which Machines come one by one and workers look at them in any order, a gang has no
// server, or as many as it needs.
func TestGangGetsAllServersOrNone(t *testing.T) {
	var whole, refused int
	for seed := range uint64(40) {
		w := newGangWorld(t, seed)
		namespaces := append([]string{w.tenant}, w.others...)
		var machines []*v1alpha1.Machine
		for i := range 1 + w.random.IntN(3) {
			gang := types.NamespacedName{Namespace: namespaces[w.random.IntN(2)], Name: fmt.Sprint("job train-", i)}
			w.sizes[gang] = 1 + w.random.IntN(6)
			for n := range w.sizes[gang] + w.random.IntN(2) {
				machine := &v1alpha1.Machine{ObjectMeta: metaIn(gang.Namespace, fmt.Sprintf("train-%d-%d", i, n))}
				machine.Spec.Gang = &v1alpha1.MachineGang{Name: gang.Name, MinCount: int32(w.sizes[gang])}
				machines = append(machines, machine)
			}
		}
		for i := range w.random.IntN(3) {
			machines = append(machines, &v1alpha1.Machine{ObjectMeta: metaIn(namespaces[w.random.IntN(2)], fmt.Sprint("single-", i))})
		}
		w.random.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
		for len(machines) > 0 {
			next := 1 + w.random.IntN(len(machines))
			for _, machine := range machines[:next] {
				machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: w.nodeType}
				machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "tenant"}
				w.create(machine)
			}
			machines = machines[next:]
			w.settle()
			free := len(w.hosts()) - len(slices.DeleteFunc(w.machines(), func(m v1alpha1.Machine) bool { return !m.HasHost() }))
			for gang, size := range w.sizes {
				all, served := w.machinesOf(gang)
				switch {
				case served > 0 && served < size:
					t.Errorf("seed %d: gang %s has %d of the %d servers that it needs", seed, gang, served, size)
				case served > 0:
					whole++
				case len(all) >= size && free >= len(all):
					t.Errorf("seed %d: gang %s has none of the %d servers that it needs, and %d are free", seed, gang, size, free)
				case len(all) >= size:
					refused++
				}
			}
			if w.random.IntN(2) == 0 {
				w.withdraw()
				w.settle()
			}
		}
	}
	// A test in which nothing happens shows nothing.
	if whole < 20 || refused < 20 {
		t.Errorf("gangs had all servers %d times, and none although they were complete %d times", whole, refused)
	}
}
