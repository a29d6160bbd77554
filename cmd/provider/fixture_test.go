// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/identity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// fixture is a management cluster and a tenant cluster in one, with two types of servers. The test claims servers in
// place of the manager.
type fixture struct {
	t         *testing.T
	namespace string
	logs      *buffer
	// stopped has what the provider ended with.
	stopped chan error
}

// newFixture makes a tenant that may have one a100-4x and one h100-8x.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{t: t, namespace: environment.Namespace(t), logs: captureLogs(t)}
	for _, object := range []client.Object{
		&v1alpha1.TenantCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "tenant"},
			Spec:       v1alpha1.TenantClusterSpec{APIServerEndpoint: "192.0.2.1:6443", AllowedNodeTypes: &[]string{w.namespace + ".*"}},
		},
		&v1alpha1.NodeProvider{
			ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
			Spec:       v1alpha1.NodeProviderSpec{Metal3: v1alpha1.Metal3Fleet{ClusterRef: v1alpha1.Metal3ClusterRef{Namespace: w.namespace}}},
		},
		&v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}},
		w.nodePool(),
	} {
		w.create(object)
		t.Cleanup(func() { w.remove(object) })
		if cluster, ok := object.(*v1alpha1.TenantCluster); ok { // as the manager does once the provider has reported it
			uid, err := identity.UID(t.Context(), environment.Client)
			if err != nil {
				t.Fatal(err)
			}
			cluster.Status.ClusterUID = uid
			w.updateStatus(cluster)
		}
	}
	for name, resources := range map[string]corev1.ResourceList{
		w.a100():                 env.Resources("cpu", "64", "memory", "512Gi", "nvidia.com/gpu", "4"),
		"h100-8x-" + w.namespace: env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8"),
	} {
		nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: env.MadeBy(w.namespace)}}
		nodeType.Spec.ProviderRef.Name = w.namespace
		nodeType.Spec.Resources = resources
		w.create(nodeType)
		nodeType.Status.Cost = nodeType.EffectiveCost()
		nodeType.Status.Zones = []v1alpha1.ZoneCapacity{{Name: "dc1", Capacity: v1alpha1.Capacity{Total: 1, Available: 1}}}
		nodeType.Status.Requirements = []v1alpha1.NodeTypeRequirement{{Key: "rack", Values: []string{"r1"}}}
		meta.SetStatusCondition(&nodeType.Status.Conditions,
			metav1.Condition{Type: v1alpha1.ConditionSynced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSynced})
		w.updateStatus(nodeType)
	}
	return w
}

func (w *fixture) a100() string { return "a100-4x-" + w.namespace }

func (w *fixture) nodePool() *karpv1.NodePool {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: w.namespace}
	pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeReserved}},
	}
	pool.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("Never")
	pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
	return pool
}

// pendingPod makes a pod that the scheduler has given up on.
func (w *fixture) pendingPod(name string) *corev1.Pod {
	w.t.Helper()
	gpu := env.Resources("nvidia.com/gpu", "1")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "train", Resources: corev1.ResourceRequirements{Limits: gpu, Requests: gpu},
		}}},
	}
	w.create(pod)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: corev1.PodReasonUnschedulable}}
	w.updateStatus(pod)
	return pod
}

// machine waits for the one Machine that there is.
func (w *fixture) machine() *v1alpha1.Machine {
	w.t.Helper()
	machines := &v1alpha1.MachineList{}
	w.eventually("a machine", func() error {
		if err := environment.Client.List(context.Background(), machines, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		if len(machines.Items) != 1 {
			return fmt.Errorf("%d machines, want 1", len(machines.Items))
		}
		return nil
	})
	return &machines.Items[0]
}

// claim plays the manager that has claimed a server.
func (w *fixture) claim(machine *v1alpha1.Machine) {
	w.t.Helper()
	cost := int64(41741)
	machine.Status.HostRef = &v1alpha1.HostReference{Namespace: "metal3", Name: "a100-01", UID: "1"}
	machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: w.a100()}
	machine.Status.Cost = &cost
	machine.Status.ProviderID = v1alpha1.ProviderID("metal3", "a100-01", machine.Name)
	machine.Status.NodeLabels = map[string]string{corev1.LabelTopologyZone: "dc1", "rack": "r1"}
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionClaimed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonClaimed, ObservedGeneration: machine.Generation,
	})
	w.updateStatus(machine)
}

// launched waits until the NodeClaim has the server of its Machine.
func (w *fixture) launched(machine *v1alpha1.Machine) *karpv1.NodeClaim {
	w.t.Helper()
	nodeClaim := &karpv1.NodeClaim{}
	w.eventually("the NodeClaim to be launched", func() error {
		if err := environment.Client.Get(context.Background(), client.ObjectKey{Name: machine.Name}, nodeClaim); err != nil {
			return err
		}
		if nodeClaim.Status.ProviderID != machine.Status.ProviderID {
			return fmt.Errorf("provider ID %q, want %q", nodeClaim.Status.ProviderID, machine.Status.ProviderID)
		}
		return nil
	})
	return nodeClaim
}

// giveBack deletes a NodeClaim and waits until it and its Machine are gone.
func (w *fixture) giveBack(nodeClaim *karpv1.NodeClaim) {
	w.t.Helper()
	if err := environment.Client.Delete(context.Background(), nodeClaim); err != nil {
		w.t.Fatal(err)
	}
	w.gone(nodeClaim, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: nodeClaim.Name}})
}

// gone waits until objects do not exist any more.
func (w *fixture) gone(objects ...client.Object) {
	w.t.Helper()
	for _, object := range objects {
		w.eventually(fmt.Sprintf("%T %s to go", object, object.GetName()), func() error {
			err := environment.Client.Get(context.Background(), client.ObjectKeyFromObject(object), object)
			if err == nil {
				return errors.New("it is still there")
			}
			return client.IgnoreNotFound(err)
		})
	}
}

// start runs the provider until the test ends.
func (w *fixture) start(o *options) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(log.IntoContext(context.Background(), klog.Background()))
	w.stopped = make(chan error, 1)
	go func() {
		w.stopped <- o.run(ctx)
		close(w.stopped)
	}()
	w.t.Cleanup(func() {
		cancel()
		if err := <-w.stopped; err != nil {
			w.t.Errorf("the provider ended with %v", err)
		}
	})
}

// ends waits until the provider has ended by itself.
func (w *fixture) ends() error {
	w.t.Helper()
	return poll.Receive(w.t, "the end of the provider", w.stopped)
}

func (w *fixture) create(object client.Object) {
	w.t.Helper()
	if err := environment.Client.Create(context.Background(), object); err != nil {
		w.t.Fatalf("creating %T, %v", object, err)
	}
}

func (w *fixture) updateStatus(object client.Object) {
	w.t.Helper()
	if err := environment.Client.Status().Update(context.Background(), object); err != nil {
		w.t.Fatalf("writing the status of %T, %v", object, err)
	}
}

func (w *fixture) remove(object client.Object) {
	if err := environment.Client.Delete(context.Background(), object, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		w.t.Errorf("deleting %T, %v", object, err)
	}
}

func (w *fixture) eventually(what string, check func() error) {
	w.t.Helper()
	poll.Eventually(w.t, what, func(context.Context) error { return check() })
}
