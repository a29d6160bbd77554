// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// controllers counts the controllers that are added to a manager.
type controllers struct {
	manager.Manager
	added int
}

// Add implements manager.Manager.
func (c *controllers) Add(runnable manager.Runnable) error {
	if _, ok := runnable.(controller.Controller); ok {
		c.added++
	}
	return c.Manager.Add(runnable)
}

// watches notes which kinds informers read: by a watch, or by a list of a version and a watch after it.
type watches struct {
	http.RoundTripper
	lock  sync.Mutex
	paths sets.Set[string]
}

// RoundTrip implements http.RoundTripper.
func (w *watches) RoundTrip(request *http.Request) (*http.Response, error) {
	if query := request.URL.Query(); query.Has("watch") || query.Has("resourceVersion") {
		w.lock.Lock()
		w.paths.Insert(request.URL.Path)
		w.lock.Unlock()
	}
	return w.RoundTripper.RoundTrip(request)
}

func (w *watches) seen() sets.Set[string] {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.paths.Clone()
}

// TestStandby: a replica that waits for the lease has everything in its caches that it needs as the leader. With thousands of servers
// it would have to read them between the election and the first claim.
func TestStandby(t *testing.T) {
	environment := env.NewEnvironment(t)
	o := newOptions()
	o.process.MetricsAddress, o.process.HealthAddress = operator.Disabled, operator.Disabled
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	now := metav1.NowMicro()
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To(int32(3600)), AcquireTime: &now,
		RenewTime: &now}
	if err := environment.Client.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	seen := &watches{paths: sets.New[string]()}
	config := rest.CopyConfig(environment.Config)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { seen.RoundTripper = base; return seen })
	var working atomic.Int32
	mgr, err := o.process.NewManager(config, manager.Options{Scheme: operator.ManagementScheme(),
		Logger: funcr.New(func(_, text string) {
			if strings.Contains(text, `"Starting workers"`) {
				working.Add(1)
			}
		}, funcr.Options{})}, &operator.Lease{Config: environment.Config, Namespace: lease.Namespace, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	counted := &controllers{Manager: mgr}
	if err := register(t.Context(), counted, o, topology.Default()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		stop()
		if err := poll.Receive(t, "the manager ends", ended); err != nil {
			t.Error(err)
		}
	}()
	synced, done := poll.WithPatience(t.Context())
	defer done()
	if !mgr.GetCache().WaitForCacheSync(synced) {
		t.Fatal("the caches of the standby are not synced")
	}
	before := seen.seen()

	if err := environment.Client.Delete(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "all controllers work", func(context.Context) error {
		if n := int(working.Load()); n != counted.added {
			return fmt.Errorf("%d of %d do", n, counted.added)
		}
		return nil
	})
	if late := seen.seen().Difference(before); late.Len() > 0 || counted.added == 0 {
		t.Errorf("%d controllers; what the standby had not read before it was elected: %v", counted.added, sets.List(late))
	}
}
