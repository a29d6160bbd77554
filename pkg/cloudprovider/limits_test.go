// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Core exceeds limits.nodes in a burst of pods; the provider must not.
func TestNodesLimitInABurst(t *testing.T) {
	const burst, limit = 20, 3
	f := newFixture(t, interceptor.Funcs{})
	pool := &karpenterv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	pool.Spec.Limits = karpenterv1.Limits{v1alpha1.ResourceNodes: resource.MustParse(fmt.Sprint(limit))}
	pool.Spec.Template.Spec.NodeClassRef = &karpenterv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: f.class.Name}
	pool.Spec.Template.Spec.Requirements = []karpenterv1.NodeSelectorRequirementWithMinValues{}
	pool.Spec.Template.Spec.ExpireAfter = karpenterv1.MustParseNillableDuration("Never")
	pool.Spec.Disruption.ConsolidateAfter = karpenterv1.MustParseNillableDuration("Never")
	f.create(pool)

	errs := make([]error, burst)
	var group sync.WaitGroup
	for i := range burst {
		group.Go(func() {
			nodeClaim := f.nodeClaim(fmt.Sprintf("burst-%02d", i))
			nodeClaim.Labels[karpenterv1.NodePoolLabelKey] = pool.Name
			wanted := machineFor(nodeClaim, f.class, nil, f.management.Catalog.Advertises, f.options)
			for range 2 { // Karpenter asks again
				_, errs[i] = f.createWithinLimits(f.ctx, pool, wanted.DeepCopy())
			}
		})
	}
	group.Wait()
	machines := &v1alpha1.MachineList{}
	if err := environment.Client.List(f.ctx, machines, client.InNamespace(f.namespace)); err != nil {
		t.Fatal(err)
	}
	if len(machines.Items) != limit {
		t.Errorf("%d machines, want %d", len(machines.Items), limit)
	}
	made := 0
	for _, err := range errs {
		switch {
		case err == nil:
			made++
		case !cloudprovider.IsInsufficientCapacityError(err) || !strings.Contains(err.Error(), "raise its limits.nodes"):
			t.Errorf("got %v, want an InsufficientCapacityError that says what to do", err)
		}
	}
	if made != limit {
		t.Errorf("%d calls succeeded, want %d: existing Machines count", made, limit)
	}
}
