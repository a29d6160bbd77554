// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/nodeclaimstatus"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// driftFixture is a Machine with its NodeClaim and its class. The test plays the manager.
type driftFixture struct {
	t         *testing.T
	machine   *v1alpha1.Machine
	nodeClaim *karpv1.NodeClaim
	class     *v1alpha1.MetalNodeClass
	events    *record.FakeRecorder
}

func newDriftFixture(t *testing.T, properties map[string]string) (*driftFixture, types.NamespacedName) {
	t.Helper()
	cluster := tenanttest.TenantCluster(t, &environment)
	name := "claim-" + cluster.Namespace
	f := &driftFixture{t: t, events: record.NewFakeRecorder(100)}
	f.class = &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MetalNodeClassSpec{Properties: properties}}
	f.nodeClaim = &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: karpv1.NodeClaimSpec{
		NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: name},
		Requirements: []karpv1.NodeSelectorRequirementWithMinValues{},
	}}
	f.machine = &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, Labels: map[string]string{v1alpha1.NodeClaimLabelKey: name}},
		Spec: v1alpha1.MachineSpec{
			NodeTypeRef: &v1alpha1.NameReference{Name: "h100"}, Properties: properties,
			TenantClusterRef: &v1alpha1.NameReference{Name: cluster.Name},
		},
	}
	for _, object := range []client.Object{f.class, f.nodeClaim, f.machine} {
		if err := environment.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	meta.SetStatusCondition(&f.machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ConditionReady,
	})
	f.machine.Status.ProviderID = v1alpha1.ProviderID("metal3", "server-01", name)
	f.nodeClaim.Status.ProviderID = f.machine.Status.ProviderID
	for _, object := range []client.Object{f.nodeClaim, f.machine} {
		if err := environment.Client.Status().Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	return f, cluster
}

func (f *driftFixture) controller(clusters tenant.Clusters) *nodeclaimstatus.Controller {
	return nodeclaimstatus.NewController(clock.RealClock{}, clusters, events.NewRecorder(f.events), nodeclaimstatus.DefaultResourcesGrace)
}

// reconcile has a controller look at the NodeClaim.
func (f *driftFixture) reconcile(c *nodeclaimstatus.Controller) {
	f.t.Helper()
	if _, err := c.Reconcile(f.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f.nodeClaim)}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *driftFixture) setDrifted(status metav1.ConditionStatus, message string) {
	f.t.Helper()
	machine := &v1alpha1.Machine{}
	if err := environment.Client.Get(f.t.Context(), client.ObjectKeyFromObject(f.machine), machine); err != nil {
		f.t.Fatal(err)
	}
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionDrifted, Status: status, Reason: v1alpha1.ReasonOSImageChanged, Message: message,
	})
	if err := environment.Client.Status().Update(f.t.Context(), machine); err != nil {
		f.t.Fatal(err)
	}
}

// annotation is the drift that the NodeClaim has.
func (f *driftFixture) annotation(ctx context.Context) (string, error) {
	nodeClaim := &karpv1.NodeClaim{}
	err := environment.Client.Get(ctx, client.ObjectKeyFromObject(f.nodeClaim), nodeClaim)
	return nodeClaim.Annotations[v1alpha1.DriftAnnotationKey], err
}

// With caches and watches: what the manager finds is on the NodeClaim at once, where Karpenter looks at what has changed,
// and what a class says now is on the Machine, where the manager compares.
func TestDriftIsPassedOn(t *testing.T) {
	f, cluster := newDriftFixture(t, map[string]string{v1alpha1.PropertyOSImage: "old", v1alpha1.PropertyServerName: "server-01"})
	tenanttest.Run(t, &environment, cluster, func(clusters tenant.Clusters, m manager.Manager) tenanttest.Registrar {
		if err := m.GetFieldIndexer().IndexField(t.Context(), &karpv1.NodeClaim{}, tenant.NodeClassNameField,
			func(object client.Object) []string {
				return []string{object.(*karpv1.NodeClaim).Spec.NodeClassRef.Name}
			}); err != nil {
			t.Fatal(err)
		}
		return f.controller(clusters)
	})
	eventually := func(what, want string) {
		tenanttest.Eventually(t, what, func(ctx context.Context) (bool, error) {
			got, err := f.annotation(ctx)
			return got == want, err
		})
	}
	f.setDrifted(metav1.ConditionTrue, "the image is another")
	eventually("the nodeclaim says why it has drifted", "OSImageChanged: the image is another")
	// The controller tells it after it has written it, and has told before that the server is ready.
	for event := ""; !strings.Contains(event, "the image is another"); {
		event = poll.Receive(t, "an event that says that the image is another", f.events.Events)
	}
	f.setDrifted(metav1.ConditionFalse, "")
	eventually("the nodeclaim says nothing once that is taken back", "")

	before := f.class.DeepCopy()
	f.class.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: "new", v1alpha1.PropertyServerName: "server-02"}
	if err := environment.Client.Patch(t.Context(), f.class, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	machine := &v1alpha1.Machine{}
	tenanttest.Eventually(t, "the machine has the properties of its class", func(ctx context.Context) (bool, error) {
		err := environment.Client.Get(ctx, client.ObjectKeyFromObject(f.machine), machine)
		return machine.Spec.Properties[v1alpha1.PropertyOSImage] == "new", err
	})
	// It has its server. A pin selects the server of a Machine without one.
	want := v1alpha1.Properties{v1alpha1.PropertyOSImage: "new",
		v1alpha1.PropertyServerName: "server-01"}
	if diff := cmp.Diff(want, machine.Spec.Properties); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}

// TestClassWithOtherKeys: a class that has the same properties under their other keys changes nothing of its Machines.
func TestClassWithOtherKeys(t *testing.T) {
	f, cluster := newDriftFixture(t, map[string]string{v1alpha1.PropertyOSImage: "old"})
	c := f.controller(tenanttest.Clusters(&environment, cluster, &faults.Connection{}))
	get := func() *v1alpha1.Machine {
		t.Helper()
		machine := &v1alpha1.Machine{}
		if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(f.machine), machine); err != nil {
			t.Fatal(err)
		}
		return machine
	}
	version := get().ResourceVersion
	for _, key := range v1alpha1.Spellings(v1alpha1.PropertyOSImage) {
		before := f.class.DeepCopy()
		f.class.Spec.Properties = map[string]string{key: "old"}
		if err := environment.Client.Patch(t.Context(), f.class, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		f.reconcile(c)
		if machine := get(); machine.ResourceVersion != version {
			t.Errorf("the Machine of a class with %s has been written: %v", key, machine.Spec.Properties)
		}
	}
}

// TestDriftIgnoresOtherMachines: the Machines of others, and those of earlier NodeClaims, are left alone.
func TestDriftIgnoresOtherMachines(t *testing.T) {
	for name, change := range map[string]func(*tenant.Clusters, *v1alpha1.Machine){
		"OtherTenant":    func(c *tenant.Clusters, _ *v1alpha1.Machine) { c.TenantCluster.Name = "green" },
		"NoNodeClaim":    func(_ *tenant.Clusters, m *v1alpha1.Machine) { m.Labels = nil },
		"OtherNodeClaim": func(_ *tenant.Clusters, m *v1alpha1.Machine) { m.Status.ProviderID = "metal3://metal3/server-02/other" },
	} {
		t.Run(name, func(t *testing.T) {
			f, cluster := newDriftFixture(t, map[string]string{v1alpha1.PropertyOSImage: "old"})
			f.setDrifted(metav1.ConditionTrue, "the image is another")
			clusters := tenanttest.Clusters(&environment, cluster, &faults.Connection{})
			machine := &v1alpha1.Machine{}
			if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(f.machine), machine); err != nil {
				t.Fatal(err)
			}
			change(&clusters, machine)
			status := machine.Status
			if err := environment.Client.Update(t.Context(), machine); err != nil {
				t.Fatal(err)
			}
			machine.Status = status
			if err := environment.Client.Status().Update(t.Context(), machine); err != nil {
				t.Fatal(err)
			}
			f.reconcile(f.controller(clusters))
			if told, err := f.annotation(t.Context()); told != "" || err != nil {
				t.Errorf("the nodeclaim says %q (%v)", told, err)
			}
		})
	}
}
