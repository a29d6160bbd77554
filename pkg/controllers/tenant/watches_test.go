// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/garbagecollection"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/repairs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// With caches and watches: with a NodeClaim its own Machine is deleted, and no other.
func TestMachineWatches(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	going, staying := createNodeClaim(t, "going-"+cluster.Namespace), createNodeClaim(t, "staying-"+cluster.Namespace)
	goingMachine := createMachine(t, cluster, going.Name, going.UID)
	stayingMachine := createMachine(t, cluster, staying.Name, staying.UID)
	orphan := createMachine(t, cluster, "orphan-"+cluster.Namespace, otherUID)
	tenanttest.Run(t, &environment, cluster, func(clusters tenant.Clusters, _ manager.Manager) tenanttest.Registrar {
		return garbagecollection.NewMachineController(clock.RealClock{}, clusters)
	})
	tenanttest.Eventually(t, "the orphaned Machine is gone", func(context.Context) (bool, error) {
		return !exists(t, orphan), nil
	})
	if !exists(t, goingMachine) {
		t.Fatal("the machine went before its nodeclaim")
	}
	if err := environment.Client.Delete(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	tenanttest.Eventually(t, "the machine has followed its nodeclaim", func(context.Context) (bool, error) {
		return !exists(t, goingMachine), nil
	})
	if !exists(t, stayingMachine) {
		t.Error("the machine of a nodeclaim that exists was deleted")
	}
}

func TestLeftoverWatches(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	machine := createMachine(t, cluster, "machine", "x")
	token := invited(t, cluster.Namespace, "machine", machine.UID)
	before := invited(t, cluster.Namespace, "before", uidFrom(cluster, 1))
	tenanttest.Run(t, &environment, cluster, func(clusters tenant.Clusters, _ manager.Manager) tenanttest.Registrar {
		return garbagecollection.NewLeftoverController(clusters)
	})
	tenanttest.Eventually(t, "what was left over before the start is gone", func(context.Context) (bool, error) {
		return !exists(t, before), nil
	})
	if !exists(t, token) {
		t.Fatal("the token went before its machine")
	}
	if err := environment.Client.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	tenanttest.Eventually(t, "the token has followed its machine", func(context.Context) (bool, error) {
		return !exists(t, token), nil
	})
}

// TestRepairWatches: each event that asks for a repair is seen, and the event that ends one. Each wait has one event that leads to what is
// waited for, and nothing else looks again.
func TestRepairWatches(t *testing.T) {
	labelled := newSickNode(t, nil)
	labelled.join()
	labelled.label(rebootLabel)
	tenanttest.Run(t, &environment, labelled.key, func(clusters tenant.Clusters, _ manager.Manager) tenanttest.Registrar {
		return newRepairs(clusters, repairs.DefaultLabels())
	})
	t.Run("NodeBeforeStart", func(t *testing.T) { labelled.mustReboot(t) })
	t.Run("NodeLabelled", func(t *testing.T) {
		s := newSickNode(t, nil)
		s.join()
		s.label(rebootLabel)
		s.mustReboot(t)
		// The same node again.
		s.label(rebootLabel)
		s.mustReboot(t)
	})
	t.Run("NodeCreated", func(t *testing.T) {
		s := newSickNode(t, nil)
		again := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node.Name, Labels: map[string]string{rebootLabel: byNVSentinel}},
			Spec:   corev1.NodeSpec{ProviderID: v1alpha1.ProviderID("metal3-system", "server-01", s.nodeClaim.Name)},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot-0"}}}
		if err := environment.Client.Delete(t.Context(), s.node); err != nil {
			t.Fatal(err)
		}
		if err := environment.Client.Create(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		s.mustReboot(t)
	})
	t.Run("LabelChanged", func(t *testing.T) {
		s := newSickNode(t, nil)
		s.node.Labels = map[string]string{rebootLabel: "done"}
		s.join()
		s.label(rebootLabel)
		s.mustReboot(t)
	})
	t.Run("BootUnknown", func(t *testing.T) {
		s := newSickNode(t, nil)
		s.node.Status.NodeInfo.BootID = ""
		s.write(s.node)
		s.join()
		s.label(rebootLabel)
		s.node.Status.NodeInfo.BootID = "boot-0"
		s.write(s.node)
		s.mustReboot(t)
	})
	t.Run("NodeToTerminate", func(t *testing.T) {
		s := newSickNode(t, nil)
		s.join()
		s.label(terminateLabel)
		s.mustGo(t)
	})
	t.Run("NodeClaimAnnotated", func(t *testing.T) {
		s := newSickNode(t, nil)
		s.nodeClaim.Annotations = map[string]string{v1alpha1.ReportIssueAnnotationKey: "GPU 3"}
		update(t, s.nodeClaim)
		s.mustGo(t)
	})
}

// join gives the node the provider ID of the NodeClaim's server.
func (s *sickNode) join() {
	s.t.Helper()
	s.node.Spec.ProviderID = v1alpha1.ProviderID("metal3-system", "server-01", s.nodeClaim.Name)
	update(s.t, s.node)
}

// mustReboot plays core once it is asked, and waits until the label is gone.
func (s *sickNode) mustReboot(t *testing.T) {
	t.Helper()
	before := s.resets
	tenanttest.Eventually(t, "core is asked for a reboot", func(context.Context) (bool, error) {
		if s.read() {
			s.reboots()
		}
		return s.resets == before+1, nil
	})
	tenanttest.Eventually(t, "the label is gone", func(context.Context) (bool, error) {
		_, is := s.node.Labels[rebootLabel]
		return s.read() && !is && s.resets == before+1, nil
	})
}

// mustGo waits until the NodeClaim is gone.
func (s *sickNode) mustGo(t *testing.T) {
	t.Helper()
	tenanttest.Eventually(t, "the NodeClaim is gone", func(context.Context) (bool, error) {
		return !exists(t, s.nodeClaim), nil
	})
}
