// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// mishap is what happens to the n-th call to the management cluster.
type mishap string

const (
	// refusedCall: it never arrives.
	refusedCall mishap = "Refused"
	// lostAnswer: it is served, and the answer never arrives.
	lostAnswer mishap = "AnswerLost"
	// diesBefore and diesAfter: the provider dies, and nothing that it does afterwards arrives.
	diesBefore mishap = "DiesBefore"
	diesAfter  mishap = "DiesAfter"
)

// connection counts calls, and has one mishap.
type connection struct {
	lock   sync.Mutex
	kind   mishap
	failAt int
	calls  int
	dead   bool
	// made are the UIDs of all Machines that were ever made.
	made map[types.UID]bool
}

func (c *connection) call(do func() error) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	lost := apierrors.NewTimeoutError("no answer", 0)
	if c.dead {
		return lost
	}
	c.calls++
	hit := c.calls == c.failAt
	if hit && (c.kind == refusedCall || c.kind == diesBefore) {
		c.dead = c.kind == diesBefore
		return lost
	}
	err := do()
	if hit {
		c.dead = c.kind == diesAfter
		return lost
	}
	return err
}

// restart is a new provider in the place of one that has died.
func (c *connection) restart() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.dead = false
}

func (c *connection) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, direct client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			return c.call(func() error { return direct.Get(ctx, key, object, opts...) })
		},
		Create: func(ctx context.Context, direct client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			return c.call(func() error {
				err := direct.Create(ctx, object, opts...)
				if err == nil {
					c.made[object.GetUID()] = true
				}
				return err
			})
		},
		Patch: func(ctx context.Context, direct client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return c.call(func() error { return direct.Patch(ctx, object, patch, opts...) })
		},
		Delete: func(ctx context.Context, direct client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			return c.call(func() error { return direct.Delete(ctx, object, opts...) })
		},
	}
}

// maxAttempts is far more often than core has to ask. Reaching it means that it would ask for ever.
const maxAttempts = 10

// claimAndReturn has a server claimed and given back, asking again as core does. A call that fails is all that core
// sees of a mishap.
func claimAndReturn(t *testing.T, c *connection) {
	t.Helper()
	c.made = map[types.UID]bool{}
	f := newFixture(t, c.funcs())
	nodeClaim := f.nodeClaim("gpu-1")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		f.answer(nodeClaim.Name, f.claims)
	}()
	attempt := func(what string, do func() bool) {
		t.Helper()
		for range maxAttempts {
			if do() {
				return
			}
			c.restart()
		}
		t.Fatalf("%s: not after %d attempts", what, maxAttempts)
	}
	attempt("Create", func() bool {
		created, err := f.Create(f.ctx, nodeClaim)
		if err == nil {
			nodeClaim.Status.ProviderID = created.Status.ProviderID
		}
		return err == nil
	})
	<-answered
	attempt("Delete", func() bool { return cloudprovider.IsNodeClaimNotFoundError(f.Delete(f.ctx, nodeClaim)) })
	f.machineGone(nodeClaim.Name)
	machines := &v1alpha1.MachineList{}
	if err := environment.Client.List(f.ctx, machines, client.InNamespace(f.namespace)); err != nil {
		t.Fatal(err)
	}
	if len(machines.Items) != 0 || len(c.made) != 1 {
		t.Errorf("%d Machines are left, and %d were made; want none of one", len(machines.Items), len(c.made))
	}
}

// TestFaultAtEveryCall: whatever happens to whichever call, one Machine is made, and none is left.
func TestFaultAtEveryCall(t *testing.T) {
	undisturbed := &connection{}
	claimAndReturn(t, undisturbed)
	if undisturbed.calls < 4 {
		t.Fatalf("a claim and its return have %d calls; the test does not see them all", undisturbed.calls)
	}
	points := 0
	for _, kind := range []mishap{refusedCall, lostAnswer, diesBefore, diesAfter} {
		for call := 1; call <= undisturbed.calls; call++ {
			points++
			t.Run(fmt.Sprintf("%s/Call%d", kind, call), func(t *testing.T) {
				claimAndReturn(t, &connection{kind: kind, failAt: call})
			})
		}
	}
	t.Logf("Create and Delete: %d points tried, 4 mishaps at each of the %d calls", points, undisturbed.calls)
}
