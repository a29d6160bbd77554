// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeprofiles

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }

// fixture is a tenant with a NodePool, a profile, and a Node of each of the ways to have one. Profile, pool and Nodes are named for
// the fixture's namespace, because they are in none.
type fixture struct {
	*testing.T
	cluster types.NamespacedName
	name    string
	events  *record.FakeRecorder
}

const gpu = "{nodeLabels: {example.com/class: gpu}, nodeAnnotations: {example.com/owner: ml}, " +
	"taints: [{key: nvidia.com/gpu, value: 'true', effect: NoSchedule}], startupTaints: [{key: example.com/boot, effect: NoSchedule}]}"

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, cluster: tenanttest.TenantCluster(t, &environment), events: record.NewFakeRecorder(100)}
	f.name = f.cluster.Namespace
	f.create(&v1alpha1.NodeProfile{ObjectMeta: metav1.ObjectMeta{Name: f.name}, Spec: spec[v1alpha1.NodeProfileSpec](t, gpu)})
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: f.name, Labels: map[string]string{v1alpha1.NodeProfileLabelKey: f.name}}}
	pool.Spec.Template.Labels = map[string]string{"example.com/pool": "a"}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: "x"}
	pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{}
	f.create(pool)
	return f
}

func spec[T any](t *testing.T, text string) (parsed T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

func (f *fixture) create(object client.Object) {
	f.Helper()
	if err := environment.Client.Create(f.Context(), object); err != nil {
		f.Fatal(err)
	}
	if object.GetNamespace() == "" {
		f.Cleanup(func() {
			if err := client.IgnoreNotFound(environment.Client.Delete(context.Background(), object)); err != nil {
				f.Errorf("cleaning up, %v", err)
			}
		})
	}
}

// node creates a Machine of the pool that has joined, and its Node. Without a pool, the Machine has no NodeClaim.
func (f *fixture) node(pool string, change func(*corev1.Node, *v1alpha1.Machine)) *corev1.Node {
	f.Helper()
	name := f.name
	id := v1alpha1.ProviderID("metal3-system", "server-01", name)
	machine := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.cluster.Namespace, Name: name, Labels: map[string]string{}},
		Spec: v1alpha1.MachineSpec{Node: &v1alpha1.MachineNode{Name: name}, NodeTypeRef: &v1alpha1.NameReference{Name: "h100"},
			TenantClusterRef: &v1alpha1.NameReference{Name: f.cluster.Name}},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"foreign": "x"}},
		Spec: corev1.NodeSpec{ProviderID: id, Taints: []corev1.Taint{{Key: "foreign", Effect: corev1.TaintEffectNoSchedule}}}}
	if pool != "" {
		machine.Labels = map[string]string{karpv1.NodePoolLabelKey: pool, v1alpha1.NodeClaimLabelKey: name}
		node.Labels[karpv1.NodeRegisteredLabelKey] = "true"
	}
	if change != nil {
		change(node, machine)
	}
	f.create(machine)
	machine.Status.ProviderID = id
	if err := environment.Client.Status().Update(f.Context(), machine); err != nil {
		f.Fatal(err)
	}
	f.create(node)
	return node
}

func (f *fixture) get() *corev1.Node {
	f.Helper()
	node := &corev1.Node{}
	if err := environment.Client.Get(f.Context(), client.ObjectKey{Name: f.name}, node); err != nil {
		f.Fatal(err)
	}
	return node
}

func (f *fixture) controller(process *faults.Connection) *Controller {
	f.Helper()
	return NewController(tenanttest.Clusters(&environment, f.cluster, process), events.NewRecorder(f.events))
}

func (f *fixture) reconcile() {
	f.Helper()
	if _, err := f.controller(&faults.Connection{}).Reconcile(f.Context(), f.get()); err != nil {
		f.Fatal(err)
	}
}

func edit[O client.Object](f *fixture, key client.ObjectKey, object O, change func(O)) {
	f.Helper()
	if err := environment.Client.Get(f.Context(), key, object); err != nil {
		f.Fatal(err)
	}
	before := object.DeepCopyObject().(client.Object)
	change(object)
	if err := environment.Client.Patch(f.Context(), object, client.MergeFrom(before)); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) profile(text string) {
	f.Helper()
	edit(f, client.ObjectKey{Name: f.name}, &v1alpha1.NodeProfile{}, func(profile *v1alpha1.NodeProfile) {
		profile.Spec = spec[v1alpha1.NodeProfileSpec](f.T, text)
	})
}

// summary is what of a Node profiles are about, without what all Nodes have.
func summary(node *corev1.Node) string {
	var parts []string
	for _, key := range []string{"foreign", "example.com/class", v1alpha1.NodeProfileLabelKey, v1alpha1.NodeProfileRestrictedLabelKey} {
		if value, found := node.Labels[key]; found {
			parts = append(parts, key+"="+strings.ReplaceAll(value, node.Name, "gpu"))
		}
	}
	if owner, found := node.Annotations["example.com/owner"]; found {
		parts = append(parts, "owner="+owner)
	}
	for _, taint := range node.Spec.Taints {
		if !strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			parts = append(parts, "taint "+taint.Key)
		}
	}
	return strings.Join(parts, ", ")
}

const (
	foreign  = "foreign=x, taint foreign"
	complete = "foreign=x, example.com/class=gpu, karpenter.metal3.io/node-profile=gpu, node-restriction.kubernetes.io/node-profile=gpu, " +
		"owner=ml, taint foreign, taint nvidia.com/gpu"
)

func (f *fixture) mustBe(reason, want string) {
	f.Helper()
	if got := summary(f.get()); got != want {
		f.Errorf("%s:\n got %s\nwant %s", reason, got, want)
	}
}

// TestWhichProfile: who names the profile of a Node, and who does not.
func TestWhichProfile(t *testing.T) {
	other := "another-profile"
	for name, tc := range map[string]struct {
		reason  string
		pool    bool
		change  func(*corev1.Node, *v1alpha1.Machine)
		prepare func(*fixture)
		want    string
		event   string
	}{
		"Pool": {reason: "the NodePool's label names it", pool: true, want: complete},
		"NotRegistered": {reason: "Karpenter still writes onto it", pool: true, want: foreign,
			change: func(node *corev1.Node, _ *v1alpha1.Machine) { delete(node.Labels, karpv1.NodeRegisteredLabelKey) }},
		"NotJoined": {reason: "a Node that only says whose it is", pool: true, want: foreign,
			change: func(_ *corev1.Node, machine *v1alpha1.Machine) { machine.Spec.Node = nil }},
		"PoolLabelOfTheNode": {reason: "a kubelet can change it", pool: true, want: complete,
			change: func(node *corev1.Node, _ *v1alpha1.Machine) { node.Labels[karpv1.NodePoolLabelKey] = "other" }},
		"OwnClaim": {reason: "a kubelet can set that label, and it is corrected", pool: true, want: complete,
			change: func(node *corev1.Node, _ *v1alpha1.Machine) { node.Labels[v1alpha1.NodeProfileLabelKey] = "other" }},
		"Machine": {reason: "a Machine that was made by hand", want: complete, change: func(node *corev1.Node, machine *v1alpha1.Machine) {
			machine.Spec.ProfileRef = &v1alpha1.NameReference{Name: node.Name}
		}},
		"NoProfile": {reason: "nothing names one", want: foreign},
		"MachineOverPool": {reason: "and there is no such profile, so nothing changes", pool: true, want: foreign,
			event: `there is no NodeProfile "another-profile"`,
			change: func(_ *corev1.Node, machine *v1alpha1.Machine) {
				machine.Spec.ProfileRef = &v1alpha1.NameReference{Name: other}
			}},
		"Default": {reason: "a default is not promoted to a label",
			want: "foreign=x, example.com/class=gpu, owner=ml, taint foreign, taint nvidia.com/gpu", prepare: func(f *fixture) {
				edit(f, f.cluster, &v1alpha1.TenantCluster{}, func(cluster *v1alpha1.TenantCluster) { cluster.Spec.DefaultNodeProfile = f.name })
			}},
		"NotAllowed": {reason: "the tenant may not have it", pool: true, want: foreign, event: "does not permit NodeProfile",
			prepare: func(f *fixture) {
				edit(f, f.cluster, &v1alpha1.TenantCluster{}, func(cluster *v1alpha1.TenantCluster) {
					cluster.Spec.AllowedNodeProfiles = &[]v1alpha1.NameReference{{Name: other}}
				})
			}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if tc.prepare != nil {
				tc.prepare(f)
			}
			pool := ""
			if tc.pool {
				pool = f.name
			}
			f.node(pool, tc.change)
			f.reconcile()
			f.mustBe(tc.reason, tc.want)
			message := ""
			select {
			case message = <-f.events.Events:
			default:
			}
			if (message == "") != (tc.event == "") || !strings.Contains(message, tc.event) {
				t.Errorf("%s: the event says %q", tc.reason, message)
			}
		})
	}
}

// TestLife: what happens to a profile happens to its Node, and to nothing that others have put there.
func TestLife(t *testing.T) {
	f := newFixture(t)
	f.node(f.name, nil)
	f.reconcile()
	f.mustBe("at first", complete)
	before := f.get().ResourceVersion
	f.reconcile()
	if f.get().ResourceVersion != before {
		t.Error("it was written although nothing was left to do")
	}
	f.profile("{nodeLabels: {example.com/class: big}}")
	f.reconcile()
	f.mustBe("annotation and taint are gone from the profile", "foreign=x, example.com/class=big, karpenter.metal3.io/node-profile=gpu, "+
		"node-restriction.kubernetes.io/node-profile=gpu, taint foreign")
	f.profile(gpu)
	f.reconcile()
	f.mustBe("they are back", complete)
	if err := environment.Client.Delete(t.Context(), &v1alpha1.NodeProfile{ObjectMeta: metav1.ObjectMeta{Name: f.name}}); err != nil {
		t.Fatal(err)
	}
	f.reconcile()
	f.mustBe("without its profile a Node stays as it is: its taint keeps pods away", complete)
	edit(f, client.ObjectKey{Name: f.name}, &karpv1.NodePool{}, func(pool *karpv1.NodePool) {
		delete(pool.Labels,
			v1alpha1.NodeProfileLabelKey)
	})
	f.reconcile()
	f.mustBe("the pool has no profile any more", foreign)
}

// TestStartupTaints: what a Node registers with is removed once it is Ready, also if the profile is gone, and does not come back.
func TestStartupTaints(t *testing.T) {
	f := newFixture(t)
	f.node(f.name, func(node *corev1.Node, _ *v1alpha1.Machine) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "example.com/boot", Effect: corev1.TaintEffectNoSchedule})
		node.Annotations = map[string]string{v1alpha1.NodeProfileAppliedAnnotationKey: `{"profile":"gpu",` +
			`"startupTaints":["example.com/boot:NoSchedule"]}`}
	})
	f.reconcile()
	f.mustBe("not Ready yet", strings.Replace(complete, "taint foreign", "taint foreign, taint example.com/boot", 1))
	if err := environment.Client.Delete(t.Context(), &v1alpha1.NodeProfile{ObjectMeta: metav1.ObjectMeta{Name: f.name}}); err != nil {
		t.Fatal(err)
	}
	node := f.get()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := environment.Client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	f.reconcile()
	f.mustBe("Ready", complete)
	f.create(&v1alpha1.NodeProfile{ObjectMeta: metav1.ObjectMeta{Name: f.name}, Spec: spec[v1alpha1.NodeProfileSpec](t, gpu)})
	f.reconcile()
	f.mustBe("never again", complete)
}

// TestRegisteredByHand: a Node without a NodeClaim has the record of what it registered with on its Machine.
func TestRegisteredByHand(t *testing.T) {
	f := newFixture(t)
	f.node("", func(node *corev1.Node, machine *v1alpha1.Machine) {
		machine.Annotations = map[string]string{v1alpha1.NodeProfileAppliedAnnotationKey: `{"profile":"x",` +
			`"labels":["example.com/class"],"taints":["old:NoSchedule"]}`}
		node.Labels["example.com/class"] = "x"
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "old", Effect: corev1.TaintEffectNoSchedule})
	})
	f.reconcile()
	f.mustBe("its profile has been taken from it before it joined", foreign)
	edit(f, client.ObjectKey{Name: f.name}, &corev1.Node{}, func(node *corev1.Node) { node.Labels["example.com/class"] = "x" })
	f.reconcile()
	f.mustBe("what another puts there now is not the profile's", "foreign=x, example.com/class=x, taint foreign")
}

// TestCrashAtEveryWrite: labels, annotations, taints and the record of them are one write, so there is no state in between.
func TestCrashAtEveryWrite(t *testing.T) {
	crashes := 0
	for writes := 0; ; writes++ {
		process := &faults.Connection{Kind: faults.Crash, At: writes}
		t.Run(fmt.Sprintf("after %d writes", writes), func(t *testing.T) {
			f := newFixture(t)
			f.node(f.name, nil)
			for _, step := range []struct{ profile, want string }{{gpu, complete}, {"{}", "foreign=x, karpenter.metal3.io/node-profile=gpu, " +
				"node-restriction.kubernetes.io/node-profile=gpu, taint foreign"}} {
				f.profile(step.profile)
				before := summary(f.get())
				_, err := f.controller(process).Reconcile(t.Context(), f.get())
				if process.Dead() {
					if err != nil && !errors.Is(err, faults.ErrDead) {
						t.Fatal(err)
					}
					if got := summary(f.get()); got != before && got != step.want {
						t.Errorf("after the crash it is half done: %s", got)
					}
					f.reconcile()
				}
				f.mustBe("after "+step.profile, step.want)
			}
		})
		if !process.Dead() {
			break
		}
		crashes++
	}
	if crashes != 2 {
		t.Errorf("the controller was killed at %d writes, want one for each change", crashes)
	}
}

// TestConcurrentTaints: a taint that another client puts onto the Node meanwhile survives.
func TestConcurrentTaints(t *testing.T) {
	f := newFixture(t)
	f.node(f.name, nil)
	stale := f.get()
	edit(f, client.ObjectKey{Name: f.name}, &corev1.Node{}, func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "example.com/maintenance", Effect: corev1.TaintEffectNoSchedule})
	})
	result, err := f.controller(&faults.Connection{}).Reconcile(t.Context(), stale)
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("a Node that has changed is tried again soon, and not %+v, %v", result, err)
	}
	f.reconcile()
	f.mustBe("with both", strings.Replace(complete, "taint foreign", "taint foreign, taint example.com/maintenance", 1))
}

// TestWatches: each of the objects that decide about a Node leads to it, with two controllers at work.
func TestWatches(t *testing.T) {
	f := newFixture(t)
	for range 2 {
		tenanttest.Run(t, &environment, f.cluster, func(clusters tenant.Clusters, _ manager.Manager) tenanttest.Registrar {
			return NewController(clusters, events.NewRecorder(record.NewFakeRecorder(1000)))
		})
	}
	f.node(f.name, nil)
	eventually := func(what, want string) {
		t.Helper()
		got := ""
		defer func() {
			if got != want {
				t.Log(cmp.Diff(want, got, cmpopts.EquateEmpty()))
			}
		}()
		tenanttest.Eventually(t, what, func(ctx context.Context) (bool, error) {
			node := &corev1.Node{}
			err := environment.Client.Get(ctx, client.ObjectKey{Name: f.name}, node)
			got = summary(node)
			return got == want, err
		})
	}
	eventually("the new Node has the profile", complete)
	f.profile("{}")
	eventually("an edit of the profile is on the Node", "foreign=x, karpenter.metal3.io/node-profile=gpu, "+
		"node-restriction.kubernetes.io/node-profile=gpu, taint foreign")
	f.profile(gpu)
	eventually("and back", complete)
	edit(f, client.ObjectKey{Name: f.name}, &corev1.Node{}, func(node *corev1.Node) { node.Spec.Taints = nil })
	eventually("an edit of the Node is undone", strings.Replace(complete, "taint foreign, ", "", 1))
	edit(f, client.ObjectKey{Name: f.name}, &karpv1.NodePool{}, func(pool *karpv1.NodePool) { pool.Labels = nil })
	eventually("the pool has no profile any more", "foreign=x")
	edit(f, f.cluster, &v1alpha1.TenantCluster{}, func(cluster *v1alpha1.TenantCluster) { cluster.Spec.DefaultNodeProfile = f.name })
	eventually("the tenant has a default", "foreign=x, example.com/class=gpu, owner=ml, taint nvidia.com/gpu")
	edit(f, client.ObjectKey{Namespace: f.cluster.Namespace, Name: f.name}, &v1alpha1.Machine{}, func(machine *v1alpha1.Machine) {
		machine.Spec.ProfileRef = &v1alpha1.NameReference{Name: f.name}
	})
	eventually("the Machine names one", strings.Replace(complete, "taint foreign, ", "", 1))
}
