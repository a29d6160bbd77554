// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// noHost is for Machines that have no server.
func noHost(context.Context, v1alpha1.MachineReference) (bool, error) { return false, nil }

func newMachine(t testing.TB) (*v1alpha1.Machine, v1alpha1.MachineReference) {
	t.Helper()
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: environment.Namespace(t), Name: "m"}}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "type"}
	if err := environment.Client.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	return machine, v1alpha1.MachineReference{Namespace: machine.Namespace, Name: machine.Name, UID: machine.UID}
}

// machineErrors answers every read of a Machine with an error.
func machineErrors(t testing.TB, failure error) client.Client {
	t.Helper()
	withWatch, err := client.NewWithWatch(environment.Config, client.Options{Scheme: environment.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return interceptor.NewClient(withWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, ok := object.(*v1alpha1.Machine); ok {
				return failure
			}
			return c.Get(ctx, key, object, options...)
		},
	})
}

func TestSweep(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "machines"}, "m")
	for name, tc := range map[string]struct {
		reason string
		gone   bool
		inUse  InUse
		// cached and live are what reading the Machine answers, nil for the truth.
		cached, live error
		wantKept     bool
		wantError    bool
	}{
		"Exists":     {reason: "the Machine has its address", wantKept: true},
		"Gone":       {reason: "it would never be released", gone: true},
		"StaleCache": {reason: "a cache that does not know the Machine is no proof", cached: notFound, wantKept: true},
		"Outage": {reason: "no answer is no proof", gone: true, cached: notFound, live: apierrors.NewServiceUnavailable("x"), wantKept: true,
			wantError: true},
		"InUse": {reason: "its server is still running with it", gone: true, wantKept: true,
			inUse: func(context.Context, v1alpha1.MachineReference) (bool, error) { return true, nil }},
		"Unknown": {reason: "its server may still be running with it", gone: true, wantKept: true, wantError: true,
			inUse: func(context.Context, v1alpha1.MachineReference) (bool, error) { return false, errors.New("no answer") }},
	} {
		t.Run(name, func(t *testing.T) {
			machine, owner := newMachine(t)
			pool, allocator := newPool(t, 1), direct()
			given, err := allocator.Ensure(t.Context(), owner, pool)
			if err != nil {
				t.Fatal(err)
			}
			if tc.gone {
				if err := environment.Client.Delete(t.Context(), machine); err != nil {
					t.Fatal(err)
				}
			}
			if tc.cached != nil {
				allocator.Client = machineErrors(t, tc.cached)
			}
			if tc.live != nil {
				allocator.Live = machineErrors(t, tc.live)
			}
			if tc.inUse == nil {
				tc.inUse = noHost
			}
			request := ctrl.Request{NamespacedName: client.ObjectKey{Name: ipam.NewObject(owner, pool, given.Address.Addr()).Name}}
			result, err := NewSweep(allocator, tc.inUse).Reconcile(t.Context(), request)
			if (err != nil) != tc.wantError {
				t.Errorf("%s: error %v", tc.reason, err)
			}
			if kept := len(addressesOf(t, pool)) == 1; kept != tc.wantKept {
				t.Errorf("%s: the address is kept: %v", tc.reason, kept)
			}
			if later := result.RequeueAfter > 0; later != (tc.wantKept && tc.gone && err == nil) {
				t.Errorf("%s: it is looked at again later: %v", tc.reason, later)
			}
		})
	}
}

// TestSweepAsController lets a manager run it: a Machine goes by force, and so does its address.
func TestSweepAsController(t *testing.T) {
	mgr, err := ctrl.NewManager(environment.Config,
		manager.Options{Scheme: environment.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	allocator := Allocator{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	if err := NewSweep(allocator, noHost).Register(t.Context(), mgr); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("running the manager, %v", err)
		}
	})
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache never synced")
	}
	machine, owner := newMachine(t)
	pool := newPool(t, 2)
	if _, err := allocator.Ensure(t.Context(), owner, pool); err != nil {
		t.Fatal(err)
	}
	if _, err := allocator.Ensure(t.Context(), newOwner("never-was"), pool); err != nil {
		t.Fatal(err)
	}
	waitFor := func(what string, want int) {
		poll.Eventually(t, what, func(context.Context) error {
			if n := len(addressesOf(t, pool)); n != want {
				return errors.New("it is not so")
			}
			return nil
		})
	}
	waitFor("the address of a Machine that never was is back", 1)
	if err := environment.Client.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	waitFor("the address of the deleted Machine is back", 0)
}
