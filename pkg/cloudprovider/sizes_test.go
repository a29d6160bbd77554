// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestOwnNodeIsTooSmall: a pod that does not fit the node that was launched for it is planned for no other server of the type, also after
// that server was given back, until the class has another image. The pod is told why.
func TestOwnNodeIsTooSmall(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	nodePool := f.nodePool()
	f.freeTwo(nodePool)
	requests := env.Resources("nvidia.com/gpu", "1", "memory", "400Gi")
	pod := podFor(nodePool, requests)
	planned := func(want bool) error {
		found, err := f.GetInstanceTypes(f.ctx, nodePool)
		if err == nil && (len(found) != 1 || holds(found[0], requests) != want) {
			err = fmt.Errorf("%d types, with room for the pod: %v", len(found), !want)
		}
		return err
	}
	told := func(want string) {
		t.Helper()
		if got, err := f.tooSmallFor(f.ctx, pod); err != nil || got != want {
			t.Errorf("a pod that waits is told %q, %v, want %q", got, err, want)
		}
	}
	if err := planned(true); err != nil {
		t.Fatal(err)
	}
	told("")

	nodeClaim := f.launched("gpu-1")
	machine := &v1alpha1.Machine{}
	key := types.NamespacedName{Namespace: f.namespace, Name: "gpu-1"}
	if err := environment.Client.Get(f.ctx, key, machine); err != nil {
		t.Fatal(err)
	}
	machine.Spec.Node = &v1alpha1.MachineNode{Name: "gpu-1", Resources: env.Resources("cpu", "64", "memory", "360Gi")}
	if err := environment.Client.Update(f.ctx, machine); err != nil {
		t.Fatal(err)
	}
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionJoined, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonJoined})
	f.updateStatus(machine)
	f.eventually("the node is seen", func() error { return planned(false) })
	told(fmt.Sprintf("too small: a node of NodeType %s with MetalNodeClass %s had cpu 64, memory 360Gi", f.nodeType, f.class.Name))
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
	if err := planned(false); err != nil {
		t.Errorf("its server would be launched again: %v", err)
	}
	f.class.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: "debian"}
	if err := environment.Client.Update(f.ctx, f.class); err != nil {
		t.Fatal(err)
	}
	f.eventually("another image may leave more", func() error { return planned(true) })
	told("")
}

// TestOwnNodesReplaceTolerance: a pod that asks for nearly all memory of a type gets no server before one of the
// tenant's own nodes has shown how much there is, because a server with less may be claimed as the type. The pod is
// told why.
func TestOwnNodesReplaceTolerance(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	nodePool := f.nodePool()
	f.freeTwo(nodePool)
	requests := env.Resources("nvidia.com/gpu", "1", "memory", "505Gi")
	pod := podFor(nodePool, requests)
	planned := func(want bool) error {
		found, err := f.GetInstanceTypes(f.ctx, nodePool)
		if err == nil && (len(found) != 1 || holds(found[0], requests) != want) {
			err = fmt.Errorf("%d types, with room for the pod: %v", len(found), !want)
		}
		return err
	}
	told := func(want string) {
		t.Helper()
		if got, err := f.tooSmallFor(f.ctx, pod); err != nil || got != want {
			t.Errorf("a pod that waits is told %q, %v, want %q", got, err, want)
		}
	}
	if err := planned(false); err != nil {
		t.Fatal(err)
	}
	told(fmt.Sprintf("too small: NodeType %s is planned with memory 508559Mi, which each of its servers has, until a node of it with "+
		"MetalNodeClass %s has shown more", f.nodeType, f.class.Name))
	f.launched("gpu-1")
	machine := &v1alpha1.Machine{}
	if err := environment.Client.Get(f.ctx, types.NamespacedName{Namespace: f.namespace, Name: "gpu-1"}, machine); err != nil {
		t.Fatal(err)
	}
	machine.Spec.Node = &v1alpha1.MachineNode{Name: "gpu-1", Resources: env.Resources("cpu", "64", "memory", "510Gi")}
	if err := environment.Client.Update(f.ctx, machine); err != nil {
		t.Fatal(err)
	}
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionJoined, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonJoined})
	f.updateStatus(machine)
	f.eventually("the node is seen", func() error { return planned(true) })
	told("")
}
