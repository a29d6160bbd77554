// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

func (f *fixture) poolRequiring(requirements ...requirement) *karpv1.NodePool {
	nodePool := &karpv1.NodePool{}
	nodePool.Name = "gpu"
	nodePool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{
		Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: f.class.Name}
	nodePool.Spec.Template.Spec.Requirements = requirements
	return nodePool
}

// A static NodePool that asks for servers of two types is shown those that match both, and none of the others.
func TestFreeForOfTwoTypes(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	nodeType := &v1alpha1.NodeType{}
	if err := environment.Client.Get(f.ctx, types.NamespacedName{Name: f.nodeType}, nodeType); err != nil {
		t.Fatal(err)
	}
	free := func(count int32, sharedWith ...string) v1alpha1.DomainCapacity {
		return v1alpha1.DomainCapacity{Zone: "dc1", SharedWith: sharedWith, Capacity: v1alpha1.Capacity{Total: count, Available: count}}
	}
	nodeType.Status.Capacity.Available = 6
	nodeType.Status.Domains = []v1alpha1.DomainCapacity{free(3), free(2, "customer-a"), free(1, "customer-a", "edge")}
	for _, also := range []string{"customer-a", "edge", f.nodeType} {
		nodeType.Status.Requirements = append(nodeType.Status.Requirements, v1alpha1.NodeTypeRequirement{
			Key: v1alpha1.TypeLabelKey(also), Values: []string{"true"}})
	}
	f.updateStatus(nodeType)
	also := func(names ...string) (result []requirement) {
		for _, name := range names {
			result = append(result, requirement{Key: v1alpha1.TypeLabelKey(name), Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}})
		}
		return result
	}
	onDemand := requirement{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"on-demand"}}
	spot := requirement{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"spot"}}
	for name, tc := range map[string]struct {
		reason       string
		requirements []requirement
		want         int64
	}{
		"any":            {"all that are free", nil, 6},
		"two types":      {"those that match both", also("customer-a"), 3},
		"three types":    {"those that match all three", also("customer-a", "edge"), 1},
		"its own":        {"servers that match no other type do not have the label", also(f.nodeType), 3},
		"unknown":        {"no server matches it", also("customer-b"), 0},
		"on-demand":      {"the servers are the same", []requirement{onDemand}, 6},
		"both":           {"as above", append(also("customer-a"), onDemand), 3},
		"spot":           {"there are none", []requirement{spot}, 0},
		"not customer-a": {"the others", []requirement{{Key: v1alpha1.TypeLabelKey("customer-a"), Operator: "DoesNotExist"}}, 3},
	} {
		f.eventually(name, func() error {
			got, _, err := f.FreeFor(f.ctx, f.poolRequiring(tc.requirements...))
			if err == nil && got != tc.want {
				err = fmt.Errorf("%d servers are free, want %d: %s", got, tc.want, tc.reason)
			}
			return err
		})
	}
}

// A NodeClaim gets its Machine while the servers are counted, at each read of the counting. Its server is never counted as free.
func TestFreeForWhileMachineIsMade(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// before and after are called before and after the NodeClaims are read.
		before, after func(makeMachine func())
	}{
		"before": {"the cache has the Machine when the NodeClaims are read", func(makeMachine func()) { makeMachine() }, func(func()) {}},
		"after":  {"the NodeClaims are read, and then the Machine is made", func(func()) {}, func(makeMachine func()) { makeMachine() }},
		"later":  {"there is no Machine yet", func(func()) {}, func(func()) {}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, interceptor.Funcs{})
			nodePool := f.poolRequiring()
			f.freeTwo(nodePool)
			nodeClaim := f.nodeClaim("gpu-1")
			f.create(nodeClaim)
			makeMachine := sync.OnceFunc(func() {
				types := f.management.Catalog.InstanceTypes(instancetypes.NewFilter(nil, f.class))
				machine := machineFor(nodeClaim, f.class, types, f.management.Catalog.Advertises, f.options)
				f.create(machine)
				f.eventually("the cache has the Machine", func() error {
					return f.management.Client.Get(f.ctx, client.ObjectKeyFromObject(machine), machine)
				})
			})
			direct, err := client.NewWithWatch(environment.Config, client.Options{Scheme: environment.Scheme})
			if err != nil {
				t.Fatal(err)
			}
			f.live = interceptor.NewClient(direct, interceptor.Funcs{
				List: func(ctx context.Context, live client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					tc.before(makeMachine)
					defer tc.after(makeMachine)
					return live.List(ctx, list, opts...)
				},
			})
			if free, _, err := f.FreeFor(f.ctx, nodePool); err != nil || free != 1 {
				t.Errorf("%d of 2 servers are free (%v), and one is for the NodeClaim: %s", free, err, tc.reason)
			}
		})
	}
}

// A NodePool that allows on-demand only gets on-demand types, and nodes with that label: with another one they would have drifted.
func TestOnDemandNodePool(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	onDemand := requirement{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"on-demand"}}
	for name, tc := range map[string]struct {
		reason       string
		requirements []requirement
		want         string
	}{
		"on-demand": {"the NodePool allows nothing else", []requirement{onDemand}, "on-demand"},
		"nothing":   {"the provider's", nil, "reserved"},
	} {
		types, err := f.GetInstanceTypes(f.ctx, f.poolRequiring(tc.requirements...))
		if err != nil {
			t.Fatal(err)
		}
		for _, offering := range types[0].Offerings {
			if got := offering.CapacityType(); got != tc.want {
				t.Errorf("%s: an offering is %s, want %s: %s", name, got, tc.want, tc.reason)
			}
		}
	}
	nodeClaim := f.nodeClaim("gpu-1")
	nodeClaim.Spec.Requirements = append(nodeClaim.Spec.Requirements, onDemand)
	nodeClaim.Spec.Resources.Requests = nil // of a static NodePool: what it asks for follows from the types that it may get
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		f.answer(nodeClaim.Name, func(machine *v1alpha1.Machine) {
			if _, asks := machine.Spec.Resources["nvidia.com/gpu"]; !asks {
				t.Errorf("the machine asks for no accelerator: %v", machine.Spec.Resources)
			}
			f.claims(machine)
		})
	}()
	created, err := f.Create(f.ctx, nodeClaim)
	<-answered
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, key := range []string{karpv1.CapacityTypeLabelKey, v1alpha1.ReservationIDLabelKey} {
		if value, has := created.Labels[key]; has {
			got[key] = value
		}
	}
	if diff := cmp.Diff(map[string]string{karpv1.CapacityTypeLabelKey: "on-demand"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
