// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// group has servers, NodePools and NodeTypes that no other group has, and a namespace for its pods. The tests of a group run one after
// the other, those of different groups at the same time.
type group struct {
	// namespace of the pods in the tenant cluster.
	namespace string
	// pools are the names of the NodePools whose nodes the tests of the group may have, types those of their NodeTypes.
	pools, types []string
	// servers are what the names of the group's servers begin with.
	servers []string
	busy    sync.Mutex
}

var (
	reference = &group{
		namespace: "reference", pools: []string{"default", "defaults", "explicit"},
		types: []string{"h100-8x", "a100-4x", "cpu"}, servers: []string{"server-"},
	}
	threeServers = newGroup("trio", "trio-")
	devices      = &group{namespace: "dra", pools: []string{"dra"}, types: []string{"dra-40", "dra-80"}, servers: []string{"gpu-40", "gpu-80"}}
	nvlink       = newGroup("nvl", "nvl-")
	edge         = newGroup("edge", "edge-")
	otherNames   = &group{namespace: "other-names", pools: []string{"mig", "amd"}, types: []string{"mig", "amd"},
		servers: []string{"mig", "amd"}}
	slow  = newGroup("slow", demoHangs, "slow")
	flaky = newGroup("flaky", demoFails, "flaky", "spare")
)

// newGroup is a group with one NodePool and one NodeType of its own name.
func newGroup(name string, servers ...string) *group {
	return &group{namespace: name, pools: []string{name}, types: []string{name}, servers: servers}
}

// owns returns whether a NodeClaim, a Machine or a Node of that name is of one of the group's pools. Karpenter begins the names with
// that of the pool.
func (l *group) owns(name string) bool {
	return slices.ContainsFunc(l.pools, func(pool string) bool { return strings.HasPrefix(name, pool+"-") })
}

func (l *group) ownsMachine(machine *v1alpha1.Machine) bool {
	wanted := machine.Spec.NodeTypeRef
	return l.owns(machine.Name) || wanted != nil && slices.Contains(l.types, wanted.Name)
}

func (l *group) ownsServer(name string) bool {
	return slices.ContainsFunc(l.servers, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// place has a pod run on nodes of the group only.
func (l *group) place(spec *corev1.PodSpec) {
	pools := l.pools
	if l == reference {
		pools = pools[:1] // the others are made for a test without pods
	}
	if len(pools) == 1 {
		if spec.NodeSelector == nil {
			spec.NodeSelector = map[string]string{}
		}
		spec.NodeSelector[karpv1.NodePoolLabelKey] = pools[0]
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: karpv1.NodePoolLabelKey, Operator: corev1.NodeSelectorOpIn, Values: pools},
		}}},
	}}
}

// enter returns the clusters, with the servers of the group free. The test runs at the same time as those of other groups, unless they all
// have the servers of the reference fleet.
func enter(t *testing.T, l *group) *fixture {
	t.Helper()
	if shared, err := theFixture(); err == nil && shared.clusters.AllServers {
		t.Parallel()
	}
	return enterAlone(t, l)
}

// enterAlone is for tests that disturb all others, because they kill programs, and for those that others disturb: they count what all
// groups have, or wait for an event that names NodeTypes. There is no such event while a type of another group would fit, and it
// has room for some types only. These tests run before those that run at the same time.
func enterAlone(t *testing.T, l *group) *fixture {
	t.Helper()
	l.busy.Lock()
	t.Cleanup(l.busy.Unlock)
	shared, err := theFixture()
	if err != nil {
		t.Fatal(err)
	}
	w := *shared
	w.group = l
	w.settings.slots <- struct{}{}
	t.Cleanup(func() { <-w.settings.slots })
	made, err := w.clusters.MakeNamespace(t.Context(), l.namespace)
	if err != nil {
		t.Fatal(err)
	}
	if made {
		w.namespaces.Store(l.namespace, true)
	}
	t.Cleanup(func() { w.giveBack(t) })
	if l == reference {
		if err := w.clusters.DescribeFleet(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.eventually(t, "the NodeTypes and the NodePool of the reference fleet are ready", w.fleetIsReady)
	}
	return &w
}

// deleteNamespaces deletes the namespaces of groups that were not there before.
func (w *fixture) deleteNamespaces() (err error) {
	w.namespaces.Range(func(name, _ any) bool {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name.(string)}}
		err = errors.Join(err, w.tenant.Delete(context.Background(), namespace))
		return true
	})
	return err
}

// deletePods deletes all pods of the group.
func (w *fixture) deletePods(ctx context.Context) error {
	return w.tenant.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(w.group.namespace), client.GracePeriodSeconds(0))
}

// deleteNodeClaims deletes all NodeClaims of the group.
func (w *fixture) deleteNodeClaims(ctx context.Context) error {
	for _, pool := range w.group.pools {
		if err := w.tenant.DeleteAllOf(ctx, &karpv1.NodeClaim{}, client.MatchingLabels{karpv1.NodePoolLabelKey: pool}); err != nil {
			return err
		}
	}
	return nil
}
