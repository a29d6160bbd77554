// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestMachineIsCountedOnce counts, dies without knowing whether the write was done, starts again, sees every Machine
// again, and ends up with the same estimate as if nothing had happened.
func TestMachineIsCountedOnce(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "big"}}
	answerLost := true
	api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(nodeType).WithStatusSubresource(nodeType).Build(),
		interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, object client.Object,
				options ...client.SubResourceUpdateOption) error {
				if err := c.SubResource(sub).Update(ctx, object, options...); err != nil || !answerLost {
					return err
				}
				answerLost = false
				return errors.New("the answer never arrives")
			},
		})
	now := clocktesting.NewFakePassiveClock(time.Unix(10_000, 0))
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: "big"}}
	machines := []*v1alpha1.Machine{joined("a", 100, 700), joined("b", 100, 1300)}

	c := NewController(api, now)
	for _, machine := range machines {
		c.observe(machine, nil, queue)
	}
	if _, err := c.Reconcile(t.Context(), request); err == nil {
		t.Fatal("the write was to fail")
	}
	c = NewController(api, now)
	for _, machine := range machines {
		c.observe(machine, nil, queue)
	}
	// One that joins at this very moment waits for others of the same second.
	young := joined("c", 9_000, 9_999)
	c.observe(young, joined("c", 9_000, 9_999), queue) // nothing new about it
	c.observe(young, &v1alpha1.Machine{}, queue)
	result, err := c.Reconcile(t.Context(), request)
	if err != nil || result.RequeueAfter != settlePeriod {
		t.Fatalf("result %v, error %v; want another look after %v", result, err, settlePeriod)
	}
	want := &v1alpha1.ProvisioningEstimate{TypicalSeconds: 900, Samples: 2, CountedUntil: second(1300)}
	if diff := cmp.Diff(want, estimateOf(t, api)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	now.SetTime(time.Unix(10_002, 0))
	if _, err := c.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	want = &v1alpha1.ProvisioningEstimate{TypicalSeconds: 933, Samples: 3, CountedUntil: second(9_999)}
	if diff := cmp.Diff(want, estimateOf(t, api)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(c.waiting) != 0 {
		t.Errorf("%d types still have samples that wait", len(c.waiting))
	}
}

func estimateOf(t *testing.T, api client.Client) *v1alpha1.ProvisioningEstimate {
	t.Helper()
	nodeType := &v1alpha1.NodeType{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: "big"}, nodeType); err != nil {
		t.Fatal(err)
	}
	if estimate := nodeType.Status.Provisioning; estimate != nil {
		estimate.CountedUntil = metav1.NewTime(estimate.CountedUntil.UTC())
	}
	return nodeType.Status.Provisioning
}
