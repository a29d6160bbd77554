// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimits

import (
	"context"
	"testing"

	"github.com/awslabs/operatorpkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

// registered is a controller that stores the client of the manager that it is registered with.
type registered struct{ client client.Client }

func (r *registered) Register(_ context.Context, m manager.Manager) error {
	r.client = m.GetClient()
	return nil
}

// registeredClient returns the client that core's controller gets instead of the one of its manager.
func (w *fixture) registeredClient(c controller.Controller) client.Client {
	w.t.Helper()
	wrapped, ok := c.(*wrappedController)
	if !ok {
		w.t.Fatalf("the controller is a %T", c)
	}
	stub := &registered{}
	wrapped.Controller = stub
	if err := wrapped.Register(w.t.Context(), operator.WithClient(nil, w.api)); err != nil {
		w.t.Fatal(err)
	}
	return stub.client
}

// TestControllersReadThroughInterceptors: core's two controllers with limits get clients that move the time.
func TestControllersReadThroughInterceptors(t *testing.T) {
	w := newFixture(t)
	queue := w.replaces(t, "gpu-1")
	w.setClock(25)
	nodeClaim := &karpv1.NodeClaim{}
	reads := w.registeredClient(Lifecycle(&lifecycle.Controller{}, w.clock, w.machines()))
	if err := reads.Get(t.Context(), client.ObjectKey{Name: "gpu-1"}, nodeClaim); err != nil {
		t.Fatal(err)
	}
	for _, condition := range nodeClaim.Status.Conditions {
		if condition.Type == karpv1.ConditionTypeRegistered && !condition.LastTransitionTime.Time.Equal(w.clock.Now()) {
			t.Errorf("Registered changed last at %v, want now", condition.LastTransitionTime)
		}
	}
	reads = w.registeredClient(Queue(queue, w.clock, w.machines()))
	if err := reads.Get(t.Context(), client.ObjectKey{Name: "old"}, nodeClaim); err != nil {
		t.Fatal(err)
	}
	for _, command := range queue.ProviderIDToCommand {
		if !command.CreationTimestamp.Equal(w.clock.Now()) {
			t.Errorf("the command was created at %v, want now", command.CreationTimestamp)
		}
	}
}
