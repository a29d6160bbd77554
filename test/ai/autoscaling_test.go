// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ai

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

const (
	gpu    = "nvidia.com/gpu"
	driver = "gpu.example.com"
)

// TestAcceleratorClusterAutoscaling is KAR-0055, for each of the ways by which pods request accelerators.
func TestAcceleratorClusterAutoscaling(t *testing.T) {
	system.Only(t)
	t.Run("DevicePlugin", func(t *testing.T) {
		w := newFixture(t, "ai", env.Resources(gpu, "1"))
		w.scaleUpAndDown(t, mode{
			request: func(name string) *corev1.Pod { return w.pod(name, env.Resources("cpu", "1", gpu, "1")) },
			count: func(_ context.Context, node *corev1.Node) (int, error) {
				quantity := node.Status.Allocatable[gpu]
				return int(quantity.Value()), nil
			},
			short: "Insufficient " + gpu,
		})
	})
	t.Run("DRA", func(t *testing.T) {
		w := newFixture(t, "ai-dra", nil, v1alpha1.NodeTypeDevice{Driver: driver, Count: 1})
		w.needDriver(t)
		w.create(t, w.Tenant, &resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: "accelerator"},
			Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
				Requests: []resourcev1.DeviceRequest{{Name: "accelerator", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: driver}}},
			}}},
		})
		w.scaleUpAndDown(t, mode{request: w.claiming, count: w.devices, short: "cannot allocate all claims"})
	})
}

// mode is a way by which pods request accelerators.
type mode struct {
	// request returns a pod that requests one.
	request func(name string) *corev1.Pod
	// count returns how many a node has.
	count func(context.Context, *corev1.Node) (int, error)
	// short is what kube-scheduler says of nodes that have none left.
	short string
}

// scaleUpAndDown: on each of N nodes is a pod that has the node's accelerator. One more pod is unschedulable; one more node comes, on which
// it runs. When it is deleted, that node goes, and the N nodes and pods are the same as before.
func (w *fixture) scaleUpAndDown(t *testing.T, m mode) {
	t.Helper()
	const baseline = servers - 1
	var names []string
	for i := range baseline {
		names = append(names, fmt.Sprint("baseline-", i))
		w.create(t, w.Tenant, m.request(names[i]))
	}
	pods := w.untilPlaced(t, names...)
	nodes := w.untilNodes(t, m, baseline)

	trigger := m.request("trigger")
	w.create(t, w.Tenant, trigger)
	w.untilEvent(t, trigger.Name, "FailedScheduling: ", m.short)
	w.untilPlaced(t, append(names, trigger.Name)...)
	w.untilNodes(t, m, baseline+1)

	if err := w.remove(t.Context(), w.Tenant, trigger); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the pool has the nodes that it had", func(ctx context.Context) error {
		now, err := w.nodes(ctx)
		if diff := cmp.Diff(nodes, now); err == nil && diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return err
	})
	t.Logf("the pool has the %d nodes again that it had", baseline)
	if diff := cmp.Diff(pods, w.untilPlaced(t, names...)); diff != "" {
		t.Errorf("the other pods have moved (-want +got):\n%s", diff)
	}
}

// untilNodes waits until the pool has so many nodes, with one accelerator each.
func (w *fixture) untilNodes(t *testing.T, m mode, count int) (nodes map[string]types.UID) {
	t.Helper()
	poll.Eventually(t, fmt.Sprintf("the pool has %d nodes with one accelerator each", count), func(ctx context.Context) error {
		var err error
		if nodes, err = w.nodes(ctx); err != nil {
			return err
		}
		if len(nodes) != count {
			return fmt.Errorf("it has the nodes %v", nodes)
		}
		for name := range nodes {
			node := &corev1.Node{}
			if err := w.Tenant.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
				return err
			}
			has, err := m.count(ctx, node)
			if err != nil {
				return err
			}
			if has != 1 {
				return fmt.Errorf("node %s has %d accelerators", name, has)
			}
		}
		return nil
	})
	t.Logf("the pool has %d nodes, with one accelerator each", count)
	return nodes
}

// needDriver skips a test where no driver publishes the devices of servers. The class of all devices comes with the driver. On a
// sandbox, whose emulated nodes publish them, it is made here.
func (w *fixture) needDriver(t *testing.T) {
	t.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)}}},
	}}
	if w.Sandbox != nil {
		w.create(t, w.Tenant, class)
		return
	}
	err := w.Tenant.Get(t.Context(), client.ObjectKeyFromObject(class), class)
	if apierrors.IsNotFound(err) {
		t.Skip("this test needs a DRA driver, and there is no DeviceClass " + driver)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// claiming is a pod with a claim for one device.
func (w *fixture) claiming(name string) *corev1.Pod {
	pod, template := w.pod(name, env.Resources("cpu", "1")), "accelerator"
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: template, ResourceClaimTemplateName: &template}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: template}}
	return pod
}

// devices counts those that the driver publishes of a node.
func (w *fixture) devices(ctx context.Context, node *corev1.Node) (count int, err error) {
	published := &resourcev1.ResourceSliceList{}
	err = w.Tenant.List(ctx, published)
	for _, slice := range published.Items {
		if slice.Spec.Driver == driver && slice.Spec.NodeName != nil && *slice.Spec.NodeName == node.Name {
			count += len(slice.Spec.Devices)
		}
	}
	return count, err
}
