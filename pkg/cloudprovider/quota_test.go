// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// rackOf is a domain of the type, with so many free servers.
func rackOf(name string, free int32) v1alpha1.DomainCapacity {
	return v1alpha1.DomainCapacity{Zone: "dc1", Labels: map[string]string{"rack": name},
		Capacity: v1alpha1.Capacity{Total: free, Available: free}}
}

// A server counts from the choice on, which is on the Machine before its status says so.
func TestUsageCountsChosenServers(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "chosen"}}
	machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "tenant"}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: f.nodeType}
	machine.SetChosenHost(v1alpha1.HostReference{Namespace: "metal3", Name: "server-01", UID: "uid"}, f.nodeType)
	f.create(machine)
	// More devices of a DRA driver than extended resources: the manager counts the devices.
	nodeType := &v1alpha1.NodeType{}
	if err := environment.Client.Get(f.ctx, types.NamespacedName{Name: f.nodeType}, nodeType); err != nil {
		t.Fatal(err)
	}
	nodeType.Spec.Devices = []v1alpha1.NodeTypeDevice{{Driver: "gpu.example.com", Count: 6}}
	if err := environment.Client.Update(f.ctx, nodeType); err != nil {
		t.Fatal(err)
	}
	tenant := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(f.ctx, types.NamespacedName{Namespace: f.namespace, Name: "tenant"}, tenant); err != nil {
		t.Fatal(err)
	}
	tenant.Spec.Quota = &v1alpha1.Quota{Servers: new(int64), GPUs: new(int64)}
	if err := environment.Client.Update(f.ctx, tenant); err != nil {
		t.Fatal(err)
	}
	want := quota.Usage{Servers: 1, GPUs: 6, NodeTypes: map[string]int64{f.nodeType: 1}}
	f.eventually("the choice counts", func() error {
		s, err := f.scopeOf(f.ctx, nil)
		if diff := cmp.Diff(want, s.rest.Usage); err != nil || diff != "" {
			return fmt.Errorf("usage (-want +got): %s, %v", diff, err)
		}
		return nil
	})
}

// What core plans with, and what a static pool can have, follow the type and the quota.
func TestQuotaLimitsCapacity(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	nodeType := &v1alpha1.NodeType{}
	key := types.NamespacedName{Name: f.nodeType}
	if err := environment.Client.Get(f.ctx, key, nodeType); err != nil {
		t.Fatal(err)
	}
	nodeType.Status.Capacity = v1alpha1.Capacity{Total: 5, Available: 5}
	nodeType.Status.Domains = []v1alpha1.DomainCapacity{rackOf("r1", 3), rackOf("r2", 2)}
	f.updateStatus(nodeType)
	held := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "held"}}
	held.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: f.nodeType}
	held.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "tenant"}
	f.create(held)
	f.claims(held)
	f.updateStatus(held)

	pool := func(requirements ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodePool {
		nodePool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "static"}}
		nodePool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass",
			Name: f.class.Name}
		nodePool.Spec.Template.Spec.Requirements = requirements
		return nodePool
	}
	inRack := karpv1.NodeSelectorRequirementWithMinValues{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{"r1"}}
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: env.Resources("nvidia.com/gpu", "1")}}}},
	}
	// The NodePool that a pod gets a server of: any type of the class.
	serving := pool()
	serving.Name = "serving-" + f.namespace
	serving.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{
		Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpExists}}
	f.create(serving)
	t.Cleanup(func() { _ = environment.Client.Delete(context.Background(), serving) })
	two, five, nothing := int64(2), int64(5), int64(1)
	ofType := func(servers v1alpha1.ServerCount) *v1alpha1.Quota {
		return &v1alpha1.Quota{NodeTypes: map[string]v1alpha1.ServerCount{f.nodeType: servers, "other": 0}}
	}

	// More pods than there are servers in a rack, so that racks are counted.
	for n := range 4 {
		pending := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: fmt.Sprintf("spread-%d", n)}}
		pending.Spec.Containers = []corev1.Container{{Name: "main", Image: "example.com/main"}}
		pending.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "rack", MaxSkew: 1,
			WhenUnsatisfiable: corev1.DoNotSchedule}}
		f.create(pending)
	}
	for _, step := range []struct {
		name  string
		quota *v1alpha1.Quota
		// free is what the pool can have, inRack what one that asks for r1 can.
		free, inRack int64
		// planned are the servers that core sees in all places, and in each.
		planned []int
		// all are the servers that it could have in each place if it had none.
		all  []int32
		told string
		// leaves is whether the TenantCluster is deleted.
		leaves bool
	}{
		{"no quota", nil, 5, 3, []int{5, 3, 2}, []int32{3, 2}, "", false},
		{"one of two servers", &v1alpha1.Quota{Servers: &two}, 1, 1, []int{1, 1, 1}, []int32{2, 2}, "", false},
		{"four of five GPUs", &v1alpha1.Quota{GPUs: &five}, 0, 0, nil, []int32{1, 1}, "TenantCluster " + f.namespace +
			"/tenant has 4 GPUs, a server of NodeType " + f.nodeType + " has 4 more, and its spec.quota.gpus is 5: raise the " +
			"quota, or release a server", false},
		{"one of three of the type", ofType(3), 2, 2, []int{2, 2, 2}, []int32{3, 2}, "", false},
		{"one of one of the type", ofType(1), 0, 0, nil, []int32{1, 1}, "TenantCluster " + f.namespace +
			"/tenant has 1 servers of NodeType " +
			f.nodeType + " and its spec.quota.nodeTypes[" + f.nodeType + "] is 1: raise the quota, or release a server", false},
		{"all", &v1alpha1.Quota{Servers: &nothing}, 0, 0, nil, []int32{1, 1}, "TenantCluster " + f.namespace +
			"/tenant has 1 servers and its spec.quota.servers is 1: raise the quota, or release a server", false},
		{"a tenant that leaves", nil, 0, 0, nil, []int32{3, 2}, "TenantCluster " + f.namespace +
			"/tenant is being deleted and gets no more servers", true},
	} {
		tenant := &v1alpha1.TenantCluster{}
		if err := environment.Client.Get(f.ctx, types.NamespacedName{Namespace: f.namespace, Name: "tenant"}, tenant); err != nil {
			t.Fatal(err)
		}
		tenant.Spec.Quota = step.quota
		if step.leaves {
			tenant.Finalizers = []string{v1alpha1.TenantClusterFinalizer}
		}
		if err := environment.Client.Update(f.ctx, tenant); err != nil {
			t.Fatal(err)
		}
		if step.leaves {
			if err := environment.Client.Delete(f.ctx, tenant); err != nil {
				t.Fatal(err)
			}
		}
		f.eventually(step.name, func() error {
			free, _, err := f.FreeFor(f.ctx, pool())
			if err != nil {
				return err
			}
			inRack, _, err := f.FreeFor(f.ctx, pool(inRack))
			if err != nil {
				return err
			}
			types, err := f.GetInstanceTypes(f.ctx, pool())
			if err != nil {
				return err
			}
			var planned []int
			for _, offering := range types[0].Offerings.Available() {
				planned = append(planned, offering.ReservationCapacity)
			}
			told, err := f.QuotaReached(f.ctx, pod)
			if err != nil {
				return err
			}
			if toldPool, err := f.PoolQuotaReached(f.ctx, pool()); err != nil || toldPool != told {
				return fmt.Errorf("of a static NodePool: %q, %v; of a pod: %q", toldPool, err, told)
			}
			alike, err := f.AllServers(f.ctx)
			if err != nil {
				return err
			}
			var all []int32
			for _, servers := range alike {
				all = append(all, servers.Count)
			}
			slices.Sort(all)
			slices.Reverse(all)
			if diff := cmp.Diff([]any{step.free, step.inRack, step.planned, step.all, step.told},
				[]any{free, inRack, planned, all, told}); diff != "" {
				return fmt.Errorf("(-want +got):\n%s", diff)
			}
			return nil
		})
	}
}
