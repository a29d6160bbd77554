// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/tenantcluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// identified is a TenantCluster whose provider reports clusters.
type identified struct {
	*v1alpha1.TenantCluster
	t *testing.T
}

func newIdentified(t *testing.T) *identified {
	t.Helper()
	i := &identified{&v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: environment.Namespace(t), Name: "blue",
		Finalizers: []string{v1alpha1.TenantClusterFinalizer}}}, t}
	i.Spec.APIServerEndpoint = "192.0.2.1:6443"
	if err := environment.Client.Create(t.Context(), i.TenantCluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Client.Delete(context.Background(), i.TenantCluster); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
		free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := environment.Client.Patch(context.Background(), i.TenantCluster, free); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return i
}

// reports plays the provider, and returns the condition that the manager then writes.
func (i *identified) reports(uid string) metav1.Condition {
	i.t.Helper()
	i.Status.ObservedClusterUID = uid
	if err := environment.Client.Status().Update(i.t.Context(), i.TenantCluster); err != nil {
		i.t.Fatal(err)
	}
	return i.reconciled()
}

func (i *identified) reconciled() metav1.Condition {
	i.t.Helper()
	controller := tenantcluster.NewController(environment.Client, environment.Client, events.NewFakeRecorder(10), clock.RealClock{})
	if _, err := controller.Reconcile(i.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(i)}); err != nil {
		i.t.Fatal(err)
	}
	i.read()
	return conditions.Find(i.Status.Conditions, v1alpha1.ConditionClusterIdentified)
}

func (i *identified) read() {
	i.t.Helper()
	if err := environment.Client.Get(i.t.Context(), client.ObjectKeyFromObject(i), i.TenantCluster); err != nil {
		i.t.Fatal(err)
	}
}

// accept does what the message says.
func (i *identified) accept(message string) {
	i.t.Helper()
	_, annotation, found := strings.Cut(message, "kubectl annotate --overwrite tenantcluster -n "+i.Namespace+" blue ")
	key, value, also := strings.Cut(annotation, "=")
	if !found || !also {
		i.t.Fatalf("the message does not say how to accept the cluster: %s", message)
	}
	i.Annotations = map[string]string{key: value}
	if err := environment.Client.Update(i.t.Context(), i.TenantCluster); err != nil {
		i.t.Fatal(err)
	}
}

func TestIdentity(t *testing.T) {
	tenant, mine, other := newIdentified(t), env.UID("mine-"+t.Name()), env.UID("other-"+t.Name())
	if condition := tenant.reconciled(); condition.Type != "" {
		t.Errorf("before the first report: %+v", condition)
	}
	if condition := tenant.reports(mine); condition.Status != metav1.ConditionTrue || tenant.Status.ClusterUID != mine {
		t.Fatalf("at first contact: %+v, cluster %q", condition, tenant.Status.ClusterUID)
	}
	condition := tenant.reports(other)
	if condition.Reason != v1alpha1.ReasonAnotherCluster || condition.Status != metav1.ConditionFalse || tenant.Status.ClusterUID != mine {
		t.Fatalf("another cluster: %+v, cluster %q", condition, tenant.Status.ClusterUID)
	}
	if back := tenant.reports(mine); back.Status != metav1.ConditionTrue {
		t.Errorf("the kubeconfig was corrected: %+v", back)
	}
	condition = tenant.reports(other)
	tenant.accept(condition.Message)
	if accepted := tenant.reconciled(); accepted.Status != metav1.ConditionTrue || tenant.Status.ClusterUID != other {
		t.Errorf("another cluster was accepted: %+v, cluster %q", accepted, tenant.Status.ClusterUID)
	}
	if len(tenant.Annotations) > 0 {
		t.Errorf("the annotation is left, and would accept the cluster again: %v", tenant.Annotations)
	}
}

// TestReportIsNoCommand: a provider reports a text that a shell would run. The API server takes UIDs alone, and the command
// that the manager tells an operator to run has no text of the provider at all.
func TestReportIsNoCommand(t *testing.T) {
	tenant, ran := newIdentified(t), filepath.Join(t.TempDir(), "ran")
	tenant.reports(env.UID("mine-" + t.Name()))
	for _, report := range []string{"$(touch " + ran + ")", "`touch " + ran + "`", "x; touch " + ran, "",
		strings.ToUpper(env.UID("x")), env.UID("x") + "\n"} {
		err := environment.Client.Status().Patch(t.Context(), tenant.DeepCopy(), client.RawPatch(types.MergePatchType,
			fmt.Appendf(nil, `{"status":{"observedClusterUID":%q}}`, report)))
		if !apierrors.IsInvalid(err) {
			t.Errorf("the provider reports %q: %v", report, err)
		}
	}
	tenant.read()
	condition := tenant.reports(env.UID("other-" + t.Name()))
	_, command, _ := strings.Cut(condition.Message, "accept it: ")
	if want := tenant.ConfirmCommand(v1alpha1.ConfirmAcceptClusterAnnotationKey, tenant.ClusterToken()); command != want {
		t.Errorf("the message has %q, want %q", command, want)
	}
	if strings.Contains(command, tenant.Status.ObservedClusterUID) {
		t.Errorf("the command has what the provider reports: %s", command)
	}
}

func TestIdentityIsUnique(t *testing.T) {
	first, second, uid := newIdentified(t), newIdentified(t), env.UID(t.Name())
	first.reports(uid)
	condition := second.reports(uid)
	if condition.Reason != v1alpha1.ReasonClusterTaken || second.Status.ClusterUID != "" {
		t.Fatalf("the cluster is that of another TenantCluster: %+v, cluster %q", condition, second.Status.ClusterUID)
	}
	second.Annotations = map[string]string{v1alpha1.ConfirmAcceptClusterAnnotationKey: second.ClusterToken()}
	if err := environment.Client.Update(t.Context(), second.TenantCluster); err != nil {
		t.Fatal(err)
	}
	if condition := second.reconciled(); condition.Reason != v1alpha1.ReasonClusterTaken {
		t.Errorf("the cluster of another TenantCluster was accepted: %+v", condition)
	}
	first.Status.ClusterUID, first.Status.ObservedClusterUID = "", ""
	if err := environment.Client.Status().Update(t.Context(), first.TenantCluster); err != nil {
		t.Fatal(err)
	}
	if condition := second.reconciled(); condition.Status != metav1.ConditionTrue || second.Status.ClusterUID != uid {
		t.Errorf("the other TenantCluster has it no more: %+v, cluster %q", condition, second.Status.ClusterUID)
	}
}

// TestUsedConfirmationIsRemoved: the confirmation stays until the provider has recorded it.
func TestUsedConfirmationIsRemoved(t *testing.T) {
	tenant := newIdentified(t)
	tenant.Annotations = map[string]string{v1alpha1.ConfirmDeleteMachinesAnnotationKey: "3", "other": "kept"}
	if err := environment.Client.Update(t.Context(), tenant.TenantCluster); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason string
		left   bool
	}{{v1alpha1.ReasonSynced, true}, {v1alpha1.ReasonReleasesServers, true}, {v1alpha1.ReasonConfirmed, false}} {
		tenant.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPoolsSynced, Status: metav1.ConditionFalse, Reason: tc.reason,
			LastTransitionTime: metav1.Now()}}
		tenant.reports(env.UID(t.Name()))
		if _, left := tenant.Annotations[v1alpha1.ConfirmDeleteMachinesAnnotationKey]; left != tc.left || tenant.Annotations["other"] != "kept" {
			t.Errorf("with %s the annotations are %v", tc.reason, tenant.Annotations)
		}
	}
}

// TestStandingConfirmationIsLeft: a tool would write it again.
func TestStandingConfirmationIsLeft(t *testing.T) {
	tenant := newIdentified(t)
	tenant.Annotations = map[string]string{v1alpha1.ConfirmDeleteMachinesAnnotationKey: v1alpha1.ConfirmAnyNumber}
	if err := environment.Client.Update(t.Context(), tenant.TenantCluster); err != nil {
		t.Fatal(err)
	}
	tenant.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPoolsSynced, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonConfirmed, LastTransitionTime: metav1.Now()}}
	tenant.reports(env.UID(t.Name()))
	if tenant.Annotations[v1alpha1.ConfirmDeleteMachinesAnnotationKey] != v1alpha1.ConfirmAnyNumber {
		t.Errorf("the annotations are %v", tenant.Annotations)
	}
}

// runTenantClusters runs the controller until the end of the test, and returns what gets its events about a namespace.
func runTenantClusters(t *testing.T, namespace string, clk clock.PassiveClock) *events.FakeRecorder {
	t.Helper()
	skip := true
	mgr, err := ctrl.NewManager(environment.Config, manager.Options{Scheme: environment.Scheme,
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip}})
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(100)
	if err := tenantcluster.NewController(mgr.GetClient(), mgr.GetAPIReader(), about(recorder, namespace), clk).
		Register(t.Context(), mgr); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return recorder
}

// TestIdentityIsAnnounced runs the controller: a Warning event says why a provider does nothing, or deletes no NodePools.
func TestIdentityIsAnnounced(t *testing.T) {
	tenant := newIdentified(t)
	recorder := runTenantClusters(t, tenant.Namespace, clock.RealClock{})
	for _, uid := range []string{env.UID("mine-" + t.Name()), env.UID("other-" + t.Name())} {
		patch := client.MergeFrom(tenant.DeepCopy())
		tenant.Status.ObservedClusterUID = uid
		if err := environment.Client.Status().Patch(t.Context(), tenant.TenantCluster, patch); err != nil {
			t.Fatal(err)
		}
		poll.Eventually(t, "the manager says something of the cluster", func(context.Context) error {
			tenant.read()
			if conditions.Find(tenant.Status.Conditions, v1alpha1.ConditionClusterIdentified).Type == "" {
				return fmt.Errorf("its conditions are %+v", tenant.Status.Conditions)
			}
			return nil
		})
	}
	event := poll.Receive(t, "an event", recorder.Events)
	if !strings.HasPrefix(event, "Warning AnotherCluster ") || !strings.Contains(event, v1alpha1.ConfirmAcceptClusterAnnotationKey) {
		t.Errorf("the event is %q", event)
	}
	poll.Eventually(t, "the provider keeps NodePools", func(context.Context) error {
		tenant.read()
		tenant.Status.Conditions = append(tenant.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionPoolsSynced,
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReleasesServers, Message: "3 of its servers", LastTransitionTime: metav1.Now()})
		return environment.Client.Status().Update(t.Context(), tenant.TenantCluster)
	})
	if event := poll.Receive(t, "an event", recorder.Events); event != "Warning ReleasesServers 3 of its servers" {
		t.Errorf("the event is %q", event)
	}
}

// TestSilenceIsAnnounced runs the controller: a Warning event says that a provider is silent, and its next renewal ends that.
func TestSilenceIsAnnounced(t *testing.T) {
	tenant := newIdentified(t)
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC))
	recorder := runTenantClusters(t, tenant.Namespace, clk)
	until := func(reason string, change func()) {
		t.Helper()
		poll.Eventually(t, "Ready has the reason "+reason, func(context.Context) error {
			tenant.read()
			ready := conditions.Find(tenant.Status.Conditions, v1alpha1.ConditionReady)
			if ready.Reason == reason {
				return nil
			}
			change()
			return fmt.Errorf("it is %+v", ready)
		})
	}
	renew := func(minute int) {
		patch := client.MergeFrom(tenant.DeepCopy())
		tenant.Status.ObservedClusterUID = env.UID("mine-" + t.Name())
		tenant.Status.ProviderRenewTime = ptr.To(metav1.Date(2020, 1, 1, 0, minute, 0, 0, time.UTC))
		if err := environment.Client.Status().Patch(t.Context(), tenant.TenantCluster, patch); err != nil {
			t.Fatal(err)
		}
	}
	until(v1alpha1.ReasonIdentified, func() { renew(1) })
	until(v1alpha1.ReasonProviderSilent, func() {
		clk.SetTime(clk.Now().Add(3 * time.Minute))
		patch := client.MergeFrom(tenant.DeepCopy())
		metav1.SetMetaDataAnnotation(&tenant.ObjectMeta, "example.com/looked-at", clk.Now().String())
		if err := environment.Client.Patch(t.Context(), tenant.TenantCluster, patch); err != nil {
			t.Fatal(err)
		}
	})
	until(v1alpha1.ReasonIdentified, func() { renew(2) })
	if event := poll.Receive(t, "an event", recorder.Events); !strings.HasPrefix(event, "Warning ProviderSilent ") {
		t.Errorf("the event is %q", event)
	}
}
