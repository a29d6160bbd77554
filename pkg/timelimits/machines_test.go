// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimits

import (
	"context"
	"testing"

	"github.com/awslabs/operatorpkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
)

// registered is a controller that remembers the client of the manager that it is registered with.
type registered struct{ client client.Client }

func (r *registered) Register(_ context.Context, m manager.Manager) error {
	r.client = m.GetClient()
	return nil
}

type managerOf struct {
	manager.Manager
	client client.Client
}

func (m managerOf) GetClient() client.Client { return m.client }

// TestTeach: the two controllers with limits read through our clients, and all others stay as they are.
func TestTeach(t *testing.T) {
	w := newWorld(t)
	other := &registered{}
	all := []controller.Controller{&lifecycle.Controller{}, other, &disruption.Queue{}}
	taught, err := Teach(all, w.clock, w.machines())
	if err != nil || len(taught) != len(all) || taught[1] != controller.Controller(other) {
		t.Fatalf("got %v, error %v", taught, err)
	}
	for n, is := range map[int]func(client.Client) bool{
		0: func(c client.Client) bool { _, ok := c.(*registering); return ok },
		2: func(c client.Client) bool { _, ok := c.(*replacing); return ok },
	} {
		p, ok := taught[n].(*patient)
		if !ok {
			t.Fatalf("controller %d is a %T", n, taught[n])
		}
		stub := &registered{}
		p.Controller = stub
		if err := p.Register(t.Context(), managerOf{client: w.api}); err != nil {
			t.Fatal(err)
		}
		if !is(stub.client) {
			t.Errorf("controller %d reads through a %T", n, stub.client)
		}
	}
	if _, err := Teach(all[:2], w.clock, w.machines()); err == nil {
		t.Error("core without its queue is not what this package knows: want an error")
	}
}
