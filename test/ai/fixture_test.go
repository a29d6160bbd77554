// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/e2e/clusters"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
)

// servers is how many the pool of a test has.
const servers = 3

// opened are the clusters of this run, once a test has needed them.
var opened *clusters.Clusters

var theClusters = sync.OnceValues(func() (*clusters.Clusters, error) {
	var err error
	opened, err = clusters.Open(context.Background(), sandbox.Config{KwokConfigs: []string{filepath.Join("testdata", "kwok.yaml")}})
	if err != nil {
		return nil, err
	}
	return opened, opened.DescribeFleet(context.Background())
})

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	code := m.Run()
	if opened != nil {
		if err := opened.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// fixture is a NodePool of servers with one accelerator each, and a namespace for pods that may run there only. Both have its name.
type fixture struct {
	*clusters.Clusters
	name string
}

// newFixture makes the pool, which is gone when the test ends. This is the platform's part; all that follows is a tenant's.
func newFixture(t *testing.T, name string, accelerators corev1.ResourceList, devices ...v1alpha1.NodeTypeDevice) *fixture {
	t.Helper()
	shared, err := theClusters()
	if err != nil {
		t.Fatal(err)
	}
	if !shared.AllServers {
		t.Skip("this test needs the servers of test/e2e/servers beside the reference fleet, and " + clusters.AllServersVariable + " is not true")
	}
	properties, err := shared.FleetProperties(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	has := env.Resources("cpu", "16", "memory", "64Gi")
	for resource, count := range accelerators {
		has[resource] = count
	}
	pool := clusters.NewPool(name, properties, has)
	pool.Provider.Spec.Metal3.NodeTypes[0].Devices = devices
	pool.NodePool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("5s")
	w := &fixture{Clusters: shared, name: name}
	w.create(t, w.Management, pool.Provider)
	w.create(t, w.Tenant, pool.Class)
	poll.Eventually(t, fmt.Sprintf("the %d servers of NodeType %s are free", servers, name), func(ctx context.Context) error {
		return w.AreFree(ctx, name, servers)
	})
	w.create(t, w.Tenant, pool.NodePool)
	if _, err := w.MakeNamespace(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	w.removeLater(t, w.Tenant, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return w
}

// create creates an object that is gone when the test ends.
func (w *fixture) create(t *testing.T, in client.Client, object client.Object) {
	t.Helper()
	if err := in.Create(t.Context(), object); err != nil {
		t.Fatalf("creating %T %s, %v", object, object.GetName(), err)
	}
	w.removeLater(t, in, object)
}

func (w *fixture) removeLater(t *testing.T, from client.Client, object client.Object) {
	t.Helper()
	t.Cleanup(func() {
		if err := w.remove(context.Background(), from, object); err != nil {
			t.Error(err)
		}
	})
}

// remove deletes an object, as soon as nothing uses it any more, and returns when it is gone.
func (w *fixture) remove(ctx context.Context, from client.Client, object client.Object) error {
	return poll.Await(ctx, fmt.Sprintf("%T %s is gone", object, object.GetName()), func(ctx context.Context) error {
		err := from.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationForeground))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return cmp.Or(err, errors.New("it is there"))
	})
}

// pod runs in the pool, in a container that asks for resources.
func (w *fixture) pod(name string, asks corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: name}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{karpv1.NodePoolLabelKey: w.name},
		Containers: []corev1.Container{{
			Name: "main", Image: w.PodImage, Resources: corev1.ResourceRequirements{Requests: asks, Limits: asks},
		}},
	}}
}

// placed returns the nodes of pods, by pod. It returns an error unless all of them run at one time, each on a node of its own.
func (w *fixture) placed(ctx context.Context, names ...string) (map[string]string, error) {
	found, nodes := map[string]string{}, map[string]string{}
	for _, name := range names {
		pod := &corev1.Pod{}
		if err := w.Tenant.Get(ctx, client.ObjectKey{Namespace: w.name, Name: name}, pod); err != nil {
			return nil, err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return nil, errors.New(w.pods(ctx))
		}
		if other := nodes[pod.Spec.NodeName]; other != "" {
			return nil, fmt.Errorf("pods %s and %s are both on node %s", other, name, pod.Spec.NodeName)
		}
		found[name], nodes[pod.Spec.NodeName] = pod.Spec.NodeName, name
	}
	return found, nil
}

// untilPlaced waits until the pods are placed, and returns their nodes.
func (w *fixture) untilPlaced(t *testing.T, names ...string) (nodes map[string]string) {
	t.Helper()
	poll.Eventually(t, fmt.Sprintf("pods %q run, each on a node of its own", names), func(ctx context.Context) (err error) {
		nodes, err = w.placed(ctx, names...)
		return err
	})
	t.Logf("pods and their nodes: %v", nodes)
	return nodes
}

// nodes are those of the pool: the UIDs by name.
func (w *fixture) nodes(ctx context.Context) (map[string]types.UID, error) {
	nodes, found := &corev1.NodeList{}, map[string]types.UID{}
	err := w.Tenant.List(ctx, nodes, client.MatchingLabels{karpv1.NodePoolLabelKey: w.name})
	for _, node := range nodes.Items {
		found[node.Name] = node.UID
	}
	return found, err
}

// untilEvent waits until an event on a pod has the parts.
func (w *fixture) untilEvent(t *testing.T, pod string, parts ...string) {
	t.Helper()
	poll.Eventually(t, fmt.Sprintf("an event on pod %s has %q", pod, parts), func(ctx context.Context) error {
		events, err := w.PodEvents(ctx, client.ObjectKey{Namespace: w.name, Name: pod})
		if err != nil {
			return err
		}
		for _, event := range events {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(event, part) }) {
				t.Logf("pod %s: %s", pod, event)
				return nil
			}
		}
		return fmt.Errorf("its events are %q", events)
	})
}

// pods says of each pod of the test where it is.
func (w *fixture) pods(ctx context.Context) string {
	pods, text := &corev1.PodList{}, &strings.Builder{}
	if err := w.Tenant.List(ctx, pods, client.InNamespace(w.name)); err != nil {
		return err.Error()
	}
	for _, pod := range pods.Items {
		events, err := w.PodEvents(ctx, client.ObjectKeyFromObject(&pod))
		fmt.Fprintf(text, "pod %s is %s on node %q; its events are %q, error %v\n", pod.Name, pod.Status.Phase, pod.Spec.NodeName, events, err)
	}
	return text.String()
}
