// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/draining"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// leaving is a tenant whose TenantCluster is being deleted, and its NodeClaim with a server.
type leaving struct {
	*fleet
	nodeClaim *karpv1.NodeClaim
}

func newLeaving(t *testing.T, change func(*karpv1.NodeClaim)) *leaving {
	t.Helper()
	f := newFleet(t, 0, true)
	nodeClaim := createNodeClaim(t, "leaving-"+f.key.Namespace, func(n *karpv1.NodeClaim) {
		n.Finalizers = []string{karpv1.TerminationFinalizer} // core's, while it drains
		if change != nil {
			change(n)
		}
	})
	l := &leaving{f, nodeClaim}
	l.machines = append(l.machines, createMachine(t, f.key, nodeClaim.Name, nodeClaim.UID))
	cluster := f.cluster()
	cluster.Finalizers = []string{v1alpha1.TenantClusterFinalizer} // the manager's
	update(t, cluster)
	t.Cleanup(func() {
		for _, object := range []client.Object{l.nodeClaim, cluster} {
			if err := environment.Client.Get(context.Background(), client.ObjectKeyFromObject(object), object); err == nil {
				object.SetFinalizers(nil)
				_ = environment.Client.Update(context.Background(), object)
			}
		}
	})
	return l
}

func update(t *testing.T, object client.Object) {
	t.Helper()
	if err := environment.Client.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func (l *leaving) reconcile(process *faults.Connection) {
	l.t.Helper()
	controller := draining.NewController(l.clock, tenanttest.Clusters(&environment, l.key, process))
	if _, err := controller.Reconcile(l.t.Context(), reconcile.Request{}); err != nil && !process.Dead() {
		l.t.Fatal(err)
	}
	exists(l.t, l.nodeClaim)
}

// drains returns whether the NodeClaim is being deleted, and until when Karpenter drains its node.
func (l *leaving) drains() (bool, time.Time) {
	l.t.Helper()
	until, _ := time.Parse(time.RFC3339, l.nodeClaim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey])
	return !l.nodeClaim.DeletionTimestamp.IsZero(), until
}

func (l *leaving) drained() metav1.Condition {
	return conditions.Find(l.cluster().Status.Conditions, v1alpha1.ConditionNodesDrained)
}

func TestLeavingTenantIsDrained(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*karpv1.NodeClaim)
		// until is how long after the deletion of the TenantCluster the drain ends.
		until time.Duration
	}{
		"Default": {reason: "within the bound of the TenantCluster", until: v1alpha1.DefaultDrainTimeout},
		"Shorter": {reason: "the NodePool gives less time", until: time.Minute,
			change: func(n *karpv1.NodeClaim) { n.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Minute} }},
		"Longer": {reason: "the NodePool gives more time than there is", until: v1alpha1.DefaultDrainTimeout,
			change: func(n *karpv1.NodeClaim) { n.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour} }},
		"Begun": {reason: "it is drained already, for longer", until: v1alpha1.DefaultDrainTimeout, change: func(n *karpv1.NodeClaim) {
			n.Annotations = map[string]string{karpv1.NodeClaimTerminationTimestampAnnotationKey: time.Now().Add(time.Hour).Format(time.RFC3339)}
		}},
		"EndsBefore": {reason: "it is drained already, and ends before", until: time.Minute, change: func(n *karpv1.NodeClaim) {
			n.Annotations = map[string]string{karpv1.NodeClaimTerminationTimestampAnnotationKey: time.Now().Add(time.Minute).Format(time.RFC3339)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeaving(t, tc.change)
			l.reconcile(&faults.Connection{})
			if deleting, _ := l.drains(); deleting || l.drained().Status != "" {
				t.Fatalf("the TenantCluster stays, and the NodeClaim is being deleted: %v, %+v", deleting, l.drained())
			}
			l.delete(l.cluster())
			l.reconcile(&faults.Connection{})
			deleting, until := l.drains()
			if want := l.cluster().DeletionTimestamp.Add(tc.until); !deleting || until.Sub(want).Abs() > 30*time.Second {
				t.Errorf("%s: the NodeClaim is being deleted: %v, and its node drained until %v, want %v", tc.reason, deleting, until, want)
			}
			if condition := l.drained(); condition.Status != metav1.ConditionFalse || !strings.Contains(condition.Message, l.nodeClaim.Name) {
				t.Errorf("NodesDrained is %+v", condition)
			}
			// Core has drained the node, and releases the server.
			l.delete(l.machines[0])
			l.reconcile(&faults.Connection{})
			if condition := l.drained(); condition.Status != metav1.ConditionTrue {
				t.Errorf("NodesDrained is %+v after the drain", condition)
			}
		})
	}
}

func (f *fleet) delete(object client.Object) {
	f.t.Helper()
	if err := environment.Client.Delete(f.t.Context(), object); err != nil {
		f.t.Fatal(err)
	}
}

// TestOnlyOwnNodeClaimsAreDrained: a tenant that leaves takes no server of another with it.
func TestOnlyOwnNodeClaimsAreDrained(t *testing.T) {
	l := newLeaving(t, nil)
	suffix := l.key.Namespace
	others := createNodeClaim(t, "others-"+suffix)
	createMachine(t, l.key, others.Name, others.UID, func(m *v1alpha1.Machine) { m.Spec.TenantClusterRef.Name = "red" })
	later := createNodeClaim(t, "later-"+suffix)
	createMachine(t, l.key, later.Name, otherUID)
	without := createNodeClaim(t, "without-"+suffix)
	l.delete(l.cluster())
	l.reconcile(&faults.Connection{})
	for _, nodeClaim := range []*karpv1.NodeClaim{others, later, without} {
		if !exists(t, nodeClaim) {
			t.Errorf("NodeClaim %s is deleted: it has no server of this tenant", nodeClaim.Name)
		}
	}
	if deleting, _ := l.drains(); !deleting {
		t.Error("the tenant's own NodeClaim is not")
	}
}

// TestDrainBoundIsLowered: an operator that does not want to wait any longer lowers spec.drainTimeout.
func TestDrainBoundIsLowered(t *testing.T) {
	l := newLeaving(t, nil)
	l.delete(l.cluster())
	l.reconcile(&faults.Connection{})
	cluster := l.cluster()
	cluster.Spec.DrainTimeout = &metav1.Duration{Duration: time.Second}
	update(t, cluster)
	l.reconcile(&faults.Connection{})
	if _, until := l.drains(); until.After(cluster.DeletionTimestamp.Add(time.Minute)) {
		t.Errorf("the node is drained until %v, and the TenantCluster was deleted at %v", until, cluster.DeletionTimestamp)
	}
}

// TestDrainAfterCrash: the next run goes on after a crash at any write.
func TestDrainAfterCrash(t *testing.T) {
	for writes := range 2 {
		l := newLeaving(t, nil)
		l.delete(l.cluster())
		process := &faults.Connection{Kind: faults.Crash, At: writes}
		if l.reconcile(process); !process.Dead() {
			t.Fatalf("there is no write after %d", writes)
		}
		l.reconcile(&faults.Connection{})
		if deleting, until := l.drains(); !deleting || until.IsZero() || l.drained().Status != metav1.ConditionFalse {
			t.Errorf("after a crash at write %d the NodeClaim is being deleted: %v, drained until %v, and %+v", writes, deleting, until,
				l.drained())
		}
	}
}

// TestDrainWatches: with caches and watches, the deletion of the TenantCluster drains, and the end of the last NodeClaim is seen.
func TestDrainWatches(t *testing.T) {
	l := newLeaving(t, nil)
	tenanttest.Run(t, &environment, l.key, func(clusters tenant.Clusters, _ manager.Manager) tenanttest.Registrar {
		return draining.NewController(clock.RealClock{}, clusters)
	})
	l.delete(l.cluster())
	tenanttest.Eventually(t, "the NodeClaim is being deleted", func(context.Context) (bool, error) {
		return exists(t, l.nodeClaim) && !l.nodeClaim.DeletionTimestamp.IsZero() && l.drained().Status == metav1.ConditionFalse, nil
	})
	l.delete(l.machines[0])
	l.nodeClaim.Finalizers = nil
	update(t, l.nodeClaim)
	tenanttest.Eventually(t, "the condition says that the nodes are drained", func(context.Context) (bool, error) {
		return l.drained().Status == metav1.ConditionTrue, nil
	})
}
