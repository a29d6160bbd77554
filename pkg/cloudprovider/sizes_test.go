// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// sizesFixture has two free servers of a type, and a pod that asks for one GPU and some memory.
type sizesFixture struct {
	*fixture
	pool     *karpv1.NodePool
	pod      *corev1.Pod
	requests corev1.ResourceList
}

func newSizesFixture(t *testing.T, memory string) *sizesFixture {
	t.Helper()
	f := newFixture(t, interceptor.Funcs{})
	pool, requests := f.nodePool(), env.Resources("nvidia.com/gpu", "1", "memory", memory)
	f.freeTwo(pool)
	return &sizesFixture{f, pool, podFor(pool, requests), requests}
}

// planned returns an error unless the type has room for the pod, or has none.
func (f *sizesFixture) planned(want bool) error {
	found, err := f.GetInstanceTypes(f.ctx, f.pool)
	if err == nil && (len(found) != 1 || holds(found[0], f.requests) != want) {
		err = fmt.Errorf("%d types, with room for the pod: %v", len(found), !want)
	}
	return err
}

// told fails the test unless the pod is told this.
func (f *sizesFixture) told(t *testing.T, want string) {
	t.Helper()
	if got, err := f.tooSmallFor(f.ctx, f.pod); err != nil || got != want {
		t.Errorf("a pod that waits is told %q, %v, want %q", got, err, want)
	}
}

// joins reports the node of a Machine with so much memory.
func (f *sizesFixture) joins(t *testing.T, name, memory string) {
	t.Helper()
	machine := &v1alpha1.Machine{}
	if err := environment.Client.Get(f.ctx, types.NamespacedName{Namespace: f.namespace, Name: name}, machine); err != nil {
		t.Fatal(err)
	}
	machine.Spec.Node = &v1alpha1.MachineNode{Name: name, Resources: env.Resources("cpu", "64", "memory", memory)}
	if err := environment.Client.Update(f.ctx, machine); err != nil {
		t.Fatal(err)
	}
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionJoined, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonJoined})
	f.updateStatus(machine)
}

// TestOwnNodeIsTooSmall: a pod that does not fit the node that was launched for it is planned for no other server of the type, also after
// that server was given back, until the class has another image. The pod is told why.
func TestOwnNodeIsTooSmall(t *testing.T) {
	f := newSizesFixture(t, "400Gi")
	if err := f.planned(true); err != nil {
		t.Fatal(err)
	}
	f.told(t, "")

	nodeClaim := f.launched("gpu-1")
	f.joins(t, "gpu-1", "360Gi")
	f.eventually("the node is seen", func() error { return f.planned(false) })
	f.told(t, fmt.Sprintf("too small: a node of NodeType %s with MetalNodeClass %s had cpu 64, memory 360Gi", f.nodeType, f.class.Name))
	nodeClaims, err := f.List(f.ctx)
	if err != nil || len(nodeClaims) != 1 || nodeClaims[0].Status.Capacity.Memory().String() != "360Gi" {
		t.Errorf("a node that starts is counted with another size than it is planned with: %v, %v", nodeClaims, err)
	}

	if err := f.Delete(f.ctx, nodeClaim); err != nil {
		t.Fatal(err)
	}
	f.released("gpu-1")
	f.eventually("the server is given back", func() error {
		nodeClaims, err := f.List(f.ctx)
		if err == nil && len(nodeClaims) > 0 {
			err = errors.New("it is still there")
		}
		return err
	})
	if err := f.planned(false); err != nil {
		t.Errorf("its server would be launched again: %v", err)
	}
	f.class.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: "debian"}
	if err := environment.Client.Update(f.ctx, f.class); err != nil {
		t.Fatal(err)
	}
	f.eventually("another image may leave more", func() error { return f.planned(true) })
	f.told(t, "")
}

// TestOwnNodesReplaceTolerance: a pod that asks for nearly all memory of a type gets no server before one of the
// tenant's own nodes has shown how much there is, because a server with less may be claimed as the type. The pod is
// told why.
func TestOwnNodesReplaceTolerance(t *testing.T) {
	f := newSizesFixture(t, "505Gi")
	if err := f.planned(false); err != nil {
		t.Fatal(err)
	}
	f.told(t, fmt.Sprintf("too small: NodeType %s is planned with memory 508559Mi, which each of its servers has, until a node of it with "+
		"MetalNodeClass %s has shown more", f.nodeType, f.class.Name))
	f.launched("gpu-1")
	f.joins(t, "gpu-1", "510Gi")
	f.eventually("the node is seen", func() error { return f.planned(true) })
	f.told(t, "")
}
