// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/e2e/clusters"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// createPool makes the servers of a group a NodeType, with a NodeProvider, a MetalNodeClass and a NodePool of the same name.
// Change may change the NodePool before it is made; it may be nil.
func (w *fixture) createPool(t *testing.T, name string, servers int32, has corev1.ResourceList,
	change func(*karpv1.NodePool)) *karpv1.NodePool {
	t.Helper()
	w.needsServers(t)
	pool := clusters.NewPool(name, w.fleetProperties(t), has)
	provider, class, nodePool := pool.Provider, pool.Class, pool.NodePool
	if err := w.management.Create(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(nodePool)
	}
	t.Cleanup(func() {
		ctx, cancel := poll.WithPatience(context.Background())
		defer cancel()
		if err := w.tenant.Delete(ctx, nodePool); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
		w.giveBack(t)
		for _, gone := range []struct {
			from   client.Client
			object client.Object
		}{{w.tenant, class}, {w.management, provider}} {
			w.remove(t, gone.from, gone.object)
		}
		// The next test counts all types that there are.
		if err := poll.Await(ctx, "NodeType "+name+" is gone", func(ctx context.Context) error {
			err := w.management.Get(ctx, client.ObjectKey{Name: name}, &v1alpha1.NodeType{})
			if err == nil {
				return errors.New("it is there")
			}
			return client.IgnoreNotFound(err)
		}); err != nil {
			t.Error(err)
		}
	})
	if err := w.tenant.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, fmt.Sprintf("the %d servers of group %s are free", servers, name), func(ctx context.Context) error {
		return w.clusters.AreFree(ctx, name, servers)
	})
	if err := w.tenant.Create(t.Context(), nodePool); err != nil {
		t.Fatal(err)
	}
	return nodePool
}

// createPods creates pods that ask for the same.
func (w *fixture) createPods(t *testing.T, prefix string, count int, asks corev1.ResourceList, change func(*corev1.Pod)) []string {
	t.Helper()
	var names []string
	for i := range count {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: fmt.Sprintf("%s-%d", prefix, i)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{w.container(asks)}},
		}
		if change != nil {
			change(pod)
		}
		w.group.place(&pod.Spec)
		if err := w.tenant.Create(t.Context(), pod); err != nil {
			t.Fatalf("creating pod %s, %v", pod.Name, err)
		}
		names = append(names, pod.Name)
	}
	return names
}

// exactly is a condition: so many of the pods run, and an event on each of the others says why not.
func (w *fixture) exactly(count int, pods []string, told ...string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		running := 0
		var waiting []string
		for _, name := range pods {
			missing, err := w.runs(name)(ctx)
			if err != nil {
				return "", err
			}
			if missing == "" {
				running++
			} else {
				waiting = append(waiting, name)
			}
		}
		if running != count {
			return fmt.Sprintf("%d run", running), nil
		}
		for _, name := range waiting {
			if missing, err := w.podHasEvent(name, told...)(ctx); missing != "" || err != nil {
				return missing, err
			}
		}
		return "", nil
	}
}

// nodeLabels are the values of a label of the nodes that the pods run on, with how many nodes have each.
func (w *fixture) nodeLabels(t *testing.T, label string, pods []string) map[string]int {
	t.Helper()
	values := map[string]int{}
	for _, name := range pods {
		pod, node := &corev1.Pod{}, &corev1.Node{}
		if err := w.tenant.Get(t.Context(), client.ObjectKey{Namespace: w.group.namespace, Name: name}, pod); err != nil {
			t.Fatal(err)
		}
		if pod.Spec.NodeName == "" {
			continue
		}
		if err := w.tenant.Get(t.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, node); err != nil {
			t.Fatal(err)
		}
		values[node.Labels[label]]++
	}
	return values
}
