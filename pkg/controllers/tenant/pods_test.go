// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/unschedulable"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// createClaimedType creates a NodeType whose servers are all claimed, and a NodePool that may have it.
func createClaimedType(t *testing.T) *v1alpha1.NodeType {
	t.Helper()
	capacity := v1alpha1.Capacity{Total: 2, Claimed: 2}
	fleet := v1alpha1.NodeType{
		ObjectMeta: metav1.ObjectMeta{Name: "h100-8x", OwnerReferences: env.MadeBy("metal")},
		Spec: v1alpha1.NodeTypeSpec{
			ProviderRef:     v1alpha1.NameReference{Name: "metal"},
			HardwareProfile: v1alpha1.HardwareProfile{Resources: env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")},
		},
		Status: v1alpha1.NodeTypeStatus{Capacity: capacity, Zones: []v1alpha1.ZoneCapacity{{Name: "global", Capacity: capacity}}},
	}
	stored := fleet.DeepCopy()
	if err := environment.Client.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Client.Delete(context.Background(), stored); err != nil {
			t.Errorf("deleting a NodeType, %v", err)
		}
	})
	pool := planning.Pool("pods", func(pool *karpv1.NodePool) {
		pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{} // the API server requires the field
	})
	if err := environment.Client.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Client.Delete(context.Background(), pool); err != nil {
			t.Errorf("deleting a NodePool, %v", err)
		}
	})
	stored.Status = fleet.Status
	if err := environment.Client.Status().Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	return stored
}

// unschedulablePod is a pod for which the scheduler found no node.
func unschedulablePod(namespace string) *corev1.Pod {
	waiting := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: env.Resources("nvidia.com/gpu", "8")},
	}}}}
	waiting.Namespace, waiting.Name, waiting.UID = namespace, "job", types.UID("uid-"+namespace)
	waiting.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
	}}}
	return waiting
}

func TestPodEvents(t *testing.T) {
	createClaimedType(t)
	for name, tc := range map[string]struct {
		reason  string
		change  func(*corev1.Pod)
		planned bool
		why     explain.Explanation
		want    bool
		requeue bool
	}{
		"Devices": {reason: "Karpenter plans it with devices, and passes over a server", planned: true, want: true, requeue: true,
			why: explain.Explanation{Reason: explain.ReasonDevicesNotDeclared, Message: "NodeType a100 has a free server and no devices"}},
		"Waiting":     {reason: "it waits in vain", want: true, requeue: true},
		"Planned":     {reason: "its server is booting", planned: true, requeue: true},
		"Scheduled":   {reason: "it has a node", change: func(p *corev1.Pod) { p.Spec.NodeName = "node" }},
		"NotYetTried": {reason: "the scheduler has yet to look at it", change: func(p *corev1.Pod) { p.Status.Conditions = nil }},
		"Leaving": {reason: "it does not wait any more", change: func(p *corev1.Pod) {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}},
		"DaemonSet": {reason: "no server is made for it", change: func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "x"}}
		}},
		"ResourceClaim": {reason: "what devices it needs is not in its requests", change: func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := tenanttest.TenantCluster(t, &environment)
			published := record.NewFakeRecorder(10)
			controller := unschedulable.NewPodController(tenanttest.ClustersOf(cluster, environment.Client, environment.Client),
				events.NewRecorder(published),
				func(context.Context, *corev1.Pod) (bool, explain.Explanation, error) { return tc.planned, tc.why, nil })
			waiting := unschedulablePod(cluster.Namespace)
			if tc.change != nil {
				tc.change(waiting)
			}
			// The second reconcile writes no second event.
			for range 2 {
				result, err := controller.Reconcile(t.Context(), waiting)
				if err != nil {
					t.Fatal(err)
				}
				if (result.RequeueAfter > 0) != tc.requeue {
					t.Errorf("%s: looking again after %s, want again %v", tc.reason, result.RequeueAfter, tc.requeue)
				}
			}
			want := 0
			if tc.want {
				want = 1
			}
			if got := len(published.Events); got != want {
				t.Errorf("%s: %d events, want %d", tc.reason, got, want)
			}
		})
	}
}

// TestEventOnDomainOfAnother: servers are free in a domain of another tenant alone. The event names the domain, and not whose it is.
func TestEventOnDomainOfAnother(t *testing.T) {
	fleet := createClaimedType(t)
	capacity := v1alpha1.Capacity{Total: 2, Claimed: 1, Available: 1}
	fleet.Status.Capacity, fleet.Status.Zones[0].Capacity = capacity, capacity
	fleet.Status.Domains = []v1alpha1.DomainCapacity{{Zone: "global", Labels: map[string]string{"nvlink-domain": "n1"},
		Held: []string{"nvlink-domain"}, Capacity: capacity}}
	if err := environment.Client.Status().Update(t.Context(), fleet); err != nil {
		t.Fatal(err)
	}
	cluster := tenanttest.TenantCluster(t, &environment)
	published := record.NewFakeRecorder(10)
	controller := unschedulable.NewPodController(tenanttest.ClustersOf(cluster, environment.Client, environment.Client),
		events.NewRecorder(published), nil)
	if _, err := controller.Reconcile(t.Context(), unschedulablePod(cluster.Namespace)); err != nil {
		t.Fatal(err)
	}
	want := "Warning NoServerAvailable no server available: h100-8x: 2 servers match, 2 claimed, 0 in error; counted as claimed is what is " +
		"free in nvlink-domain n1: other tenants have servers there"
	if len(published.Events) != 1 {
		t.Fatalf("%d events, want one", len(published.Events))
	}
	if got := <-published.Events; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestEventRepeatedOnChange: another reason is another event. Counts alone are not: they change all the time, and each change would be
// an event of each pod.
func TestEventRepeatedOnChange(t *testing.T) {
	fleet := createClaimedType(t)
	cluster := tenanttest.TenantCluster(t, &environment)
	published := record.NewFakeRecorder(10)
	controller := unschedulable.NewPodController(tenanttest.ClustersOf(cluster, environment.Client, environment.Client),
		events.NewRecorder(published), nil)
	for _, step := range []struct {
		change func(*v1alpha1.NodeType)
		want   string
	}{
		{func(*v1alpha1.NodeType) {}, "Warning NoServerAvailable no server available: h100-8x: "},
		{func(n *v1alpha1.NodeType) { n.Status.Capacity.Error = 1 }, ""},
		{func(n *v1alpha1.NodeType) {
			n.Spec.Resources = env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "4")
		},
			"Warning NoNodeTypeFits no NodeType fits: h100-8x: "},
	} {
		step.change(fleet)
		status := fleet.Status
		if err := environment.Client.Update(t.Context(), fleet); err != nil {
			t.Fatal(err)
		}
		fleet.Status = status
		if err := environment.Client.Status().Update(t.Context(), fleet); err != nil {
			t.Fatal(err)
		}
		if _, err := controller.Reconcile(t.Context(), unschedulablePod(cluster.Namespace)); err != nil {
			t.Fatal(err)
		}
		told := ""
		select {
		case told = <-published.Events:
		default:
		}
		if (told == "") != (step.want == "") || !strings.HasPrefix(told, step.want) {
			t.Errorf("got event %q, want %q", told, step.want)
		}
	}
}

// While a NodeClaim has no answer, core creates none for any pod, and says so in its log only.
func TestPodWaitsForAnotherNodeClaim(t *testing.T) {
	fleet := createClaimedType(t)
	fleet.Status.Capacity = v1alpha1.Capacity{Total: 2, Available: 2}
	fleet.Status.Zones[0].Capacity = fleet.Status.Capacity
	if err := environment.Client.Status().Update(t.Context(), fleet); err != nil {
		t.Fatal(err)
	}
	cluster := tenanttest.TenantCluster(t, &environment)
	for name, tc := range map[string]struct {
		reason string
		change func(*karpv1.NodeClaim)
		want   string
	}{
		"Failed": {
			reason: "its launch is tried again and again",
			change: func(nodeClaim *karpv1.NodeClaim) {
				nodeClaim.StatusConditions().SetUnknownWithReason(karpv1.ConditionTypeLaunched, "WaitingForManager", "has no server after 10s")
			},
			want: "has no server: WaitingForManager: has no server after 10s",
		},
		"New": {
			reason: "it is being launched",
			change: func(nodeClaim *karpv1.NodeClaim) {
				nodeClaim.StatusConditions().SetUnknown(karpv1.ConditionTypeLaunched)
			},
		},
		"Launched": {
			reason: "it has a server",
			change: func(nodeClaim *karpv1.NodeClaim) {
				nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
				nodeClaim.Status.ProviderID = "metal3://a/b/c"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "waits-" + strings.ToLower(name)}}
			nodeClaim.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: "default"}
			nodeClaim.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{}
			if err := environment.Client.Create(t.Context(), nodeClaim); err != nil {
				t.Fatal(err)
			}
			tc.change(nodeClaim)
			if err := environment.Client.Status().Update(t.Context(), nodeClaim); err != nil {
				t.Fatal(err)
			}
			published := record.NewFakeRecorder(10)
			controller := unschedulable.NewPodController(tenanttest.ClustersOf(cluster, environment.Client, environment.Client),
				events.NewRecorder(published), nil)
			waiting := unschedulablePod(cluster.Namespace)
			if _, err := controller.Reconcile(t.Context(), waiting); err != nil {
				t.Fatal(err)
			}
			told := ""
			select {
			case told = <-published.Events:
			default:
			}
			if (told == "") != (tc.want == "") || !strings.Contains(told, tc.want) {
				t.Errorf("%s: told %q, want %q", tc.reason, told, tc.want)
			}
			if err := environment.Client.Delete(t.Context(), nodeClaim); err != nil {
				t.Error(err)
			}
		})
	}
}

// With caches and watches, and a recorder that writes events to the API server.
func TestPodEventIsWritten(t *testing.T) {
	createClaimedType(t)
	cluster := tenanttest.TenantCluster(t, &environment)
	tenanttest.Run(t, &environment, cluster, func(clusters tenant.Clusters, m manager.Manager) tenanttest.Registrar {
		//lint:ignore SA1019 Karpenter's recorder takes no other.
		recorder := m.GetEventRecorderFor("karpenter")
		return unschedulable.NewPodController(clusters, events.NewRecorder(recorder), nil)
	})
	waiting := unschedulablePod(cluster.Namespace)
	waiting.UID = ""
	waiting.Spec.Containers[0].Name, waiting.Spec.Containers[0].Image = "job", "job"
	waiting.Spec.Containers[0].Resources.Limits = waiting.Spec.Containers[0].Resources.Requests
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "default"}}
	if err := environment.Client.Create(t.Context(), serviceAccount); err != nil {
		t.Fatal(err)
	}
	status := waiting.Status
	if err := environment.Client.Create(t.Context(), waiting); err != nil {
		t.Fatal(err)
	}
	waiting.Status = status
	if err := environment.Client.Status().Update(t.Context(), waiting); err != nil {
		t.Fatal(err)
	}
	tenanttest.Eventually(t, "the pod has been told", func(ctx context.Context) (bool, error) {
		list := &corev1.EventList{}
		err := environment.Client.List(ctx, list, client.InNamespace(cluster.Namespace))
		for _, event := range list.Items {
			if event.InvolvedObject.UID == waiting.UID && event.Reason == explain.ReasonNoServerAvailable {
				return true, nil
			}
		}
		return false, err
	})
}
