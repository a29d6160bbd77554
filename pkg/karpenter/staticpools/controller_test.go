// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpools

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
)

// fixture is a pool, as core and the management cluster would have it.
type fixture struct {
	running, replaced int
	free              int64
	retryAfter        time.Duration
	err               error
	// quota is why the tenant gets no more servers.
	quota string
	// problem with the NodeProfile of the pool.
	problem string
	// asked are the replicas that core was shown, call by call.
	asked []int64
}

func (w *fixture) Reconcile(_ context.Context, nodePool *karpv1.NodePool) (reconcile.Result, error) {
	w.asked = append(w.asked, *nodePool.Spec.Replicas)
	return reconcile.Result{}, nil
}

func (w *fixture) FreeFor(context.Context, *karpv1.NodePool) (int64, time.Duration, error) {
	return w.free, w.retryAfter, w.err
}

func (w *fixture) PoolQuotaReached(context.Context, *karpv1.NodePool) (string, error) {
	return w.quota, w.err
}

func pool(replicas int64) *karpv1.NodePool {
	nodePool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "edge", UID: "edge"}}
	nodePool.Spec.Replicas = &replicas
	for _, condition := range []string{karpv1.ConditionTypeValidationSucceeded, karpv1.ConditionTypeNodeClassReady} {
		nodePool.StatusConditions().SetTrue(condition)
	}
	return nodePool
}

func newController(w *fixture, recorder record.EventRecorder) *Controller {
	return NewController(Dependencies{
		Core: w, Servers: w, Recorder: events.NewRecorder(recorder),
		Nodes: func(string) (int, int) { return w.running, w.replaced },
		Planned: func(_ context.Context, nodePool *karpv1.NodePool) (*karpv1.NodePool, string, error) {
			return nodePool, w.problem, nil
		},
	})
}

func TestReplicasAreLimitedToFreeServers(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		fixture  fixture
		replicas int64
		// want is what core is shown; nil if it is not called.
		want []int64
		told string
	}{
		"enough": {reason: "it wants what it says", fixture: fixture{running: 1, free: 5}, replicas: 3, want: []int64{3}},
		"too few": {reason: "it gets what there is, and says what is missing", fixture: fixture{running: 1, free: 1}, replicas: 4,
			want: []int64{2}, told: "it has 1 nodes of the 4 that replicas asks for, and 1 servers that it could have are free"},
		"none": {reason: "core would make a NodeClaim, see it fail, and make another", fixture: fixture{running: 2}, replicas: 4,
			told: "it has 2 nodes of the 4"},
		"quota": {reason: "servers that come back are of no use", fixture: fixture{running: 2, quota: "TenantCluster a/a has 2 servers"},
			replicas: 4, told: "it has 2 nodes of the 4 that replicas asks for: TenantCluster a/a has 2 servers"},
		"satisfied": {reason: "core looks after the rest", fixture: fixture{running: 3}, replicas: 3, want: []int64{3}},
		"to shrink": {reason: "that is another of core's controllers", fixture: fixture{running: 3}, replicas: 1, want: []int64{1}},
		"being replaced": {reason: "a node that is about to be replaced is still there", fixture: fixture{running: 2, replaced: 1, free: 1},
			replicas: 4, want: []int64{4}},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := record.NewFakeRecorder(10)
			nodePool := pool(tc.replicas)
			c := newController(&tc.fixture, recorder)
			if _, err := c.Reconcile(t.Context(), nodePool); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, tc.fixture.asked); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if *nodePool.Spec.Replicas != tc.replicas {
				t.Error("the pool itself, which is the cache's, has changed")
			}
			told := ""
			select {
			case told = <-recorder.Events:
			default:
			}
			if (told == "") != (tc.told == "") || !strings.Contains(told, tc.told) {
				t.Errorf("told %q, want %q: %s", told, tc.told, tc.reason)
			}
		})
	}
}

// Servers that were refused are not free until they may be tried again: core would make NodeClaims in a loop.
func TestRefusedServers(t *testing.T) {
	w := &fixture{retryAfter: 2 * time.Second}
	c := newController(w, record.NewFakeRecorder(10))
	if result, err := c.Reconcile(t.Context(), pool(1)); err != nil || len(w.asked) > 0 || result.RequeueAfter != w.retryAfter {
		t.Errorf("core was asked %d times, and the pool is looked at again after %v, want %v: %v", len(w.asked), result.RequeueAfter,
			w.retryAfter, err)
	}
	w.retryAfter = 10 * time.Minute
	if result, err := c.Reconcile(t.Context(), pool(1)); err != nil || result.RequeueAfter != recheckPeriod {
		t.Errorf("the pool is looked at again after %v: a class may be corrected, which it does not watch (%v)", result.RequeueAfter, err)
	}
	w.free, w.retryAfter = 1, 2*time.Second
	if result, err := c.Reconcile(t.Context(), pool(2)); err != nil || len(w.asked) != 1 || result.RequeueAfter != w.retryAfter {
		t.Errorf("core was asked %d times, and the pool is looked at again after %v, want %v: it gets one server of two, and the other was "+
			"refused (%v)", len(w.asked), result.RequeueAfter, w.retryAfter, err)
	}
}

// An outage of the management cluster is no reason to make or to drop anything.
func TestOutage(t *testing.T) {
	w := &fixture{running: 1, free: 3, err: errors.New("the cache of the management cluster is not filled yet")}
	c := newController(w, record.NewFakeRecorder(10))
	if _, err := c.Reconcile(t.Context(), pool(3)); err == nil || !strings.Contains(err.Error(), "counting the servers for NodePool edge") {
		t.Errorf("got %v, want an error", err)
	}
	if len(w.asked) > 0 {
		t.Error("core was asked for nodes without knowing what there is")
	}
}

func TestWaitingNodePoolsAreRequeued(t *testing.T) {
	w := &fixture{}
	c := newController(w, record.NewFakeRecorder(10))
	queue := &queue{}
	c.requeueWaiting(queue)
	if _, err := c.Reconcile(t.Context(), pool(1)); err != nil {
		t.Fatal(err)
	}
	c.requeueWaiting(queue)
	w.free = 1
	if _, err := c.Reconcile(t.Context(), pool(1)); err != nil {
		t.Fatal(err)
	}
	c.requeueWaiting(queue)
	if diff := cmp.Diff([]reconcile.Request{{NamespacedName: types.NamespacedName{Name: "edge"}}}, queue.added); diff != "" {
		t.Errorf("while it waits, and not before or after (-want +got):\n%s", diff)
	}
}

// queue notes what is added.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added []reconcile.Request
}

func (q *queue) AddAfter(request reconcile.Request, _ time.Duration) {
	q.added = append(q.added, request)
}

// TestNoNodeProfile: nodes without the taints of their profile would get pods that must not run there.
func TestNoNodeProfile(t *testing.T) {
	recorder := record.NewFakeRecorder(10)
	w := &fixture{free: 2, problem: "there is no NodeProfile"}
	result, err := newController(w, recorder).Reconcile(t.Context(), pool(2))
	if err != nil || len(w.asked) > 0 || result.RequeueAfter != recheckPeriod {
		t.Errorf("core was shown %v, and it is looked at again in %v, %v", w.asked, result.RequeueAfter, err)
	}
	select {
	case message := <-recorder.Events:
		if !strings.Contains(message, "NoNodeProfile there is no NodeProfile") {
			t.Errorf("the event says %s", message)
		}
	default:
		t.Error("no event says why")
	}
}

// A NodePool that waits for servers of two types says so: of each of the two there may be enough.
func TestShortageNamesTheOtherType(t *testing.T) {
	recorder := record.NewFakeRecorder(10)
	nodePool := pool(2)
	nodePool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: "karpenter.metal3.io/node-type", Operator: "In", Values: []string{"h100"}},
		{Key: "type.karpenter.metal3.io/customer-a", Operator: "In", Values: []string{"true"}},
	}
	if _, err := newController(&fixture{running: 1}, recorder).Reconcile(t.Context(), nodePool); err != nil {
		t.Fatal(err)
	}
	const want = "0 servers that it could have are free (they must match NodeType customer-a as well): the rest follows"
	select {
	case got := <-recorder.Events:
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	default:
		t.Error("there is no event")
	}
}
