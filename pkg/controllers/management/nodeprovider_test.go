// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management_test

import (
	"context"
	"testing"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/nodeprovider"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func profileOf(name, cpu string) v1alpha1.NodeTypeTemplate {
	return v1alpha1.NodeTypeTemplate{Name: name, HardwareProfile: v1alpha1.HardwareProfile{
		Resources:      env.Resources("cpu", cpu, "memory", "256Gi"),
		BareMetalHosts: env.HostsWith(map[string]string{"kind": name}),
	}}
}

// providerTest is a controller of NodeProviders and its events.
type providerTest struct {
	*testing.T
	controller *nodeprovider.Controller
	events     *events.FakeRecorder
}

func newProviderTest(t *testing.T) *providerTest {
	recorder := events.NewFakeRecorder(100)
	return &providerTest{t,
		nodeprovider.NewController(environment.Client, environment.Client, inventory.NewInventory(inventory.Options{}), recorder,
			clocktesting.NewFakePassiveClock(time.Unix(1700000000, 0))),
		recorder}
}

func (w *providerTest) create(name string, templates ...v1alpha1.NodeTypeTemplate) *v1alpha1.NodeProvider {
	w.Helper()
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: name}}
	provider.Spec.Metal3 = v1alpha1.Metal3Fleet{ClusterRef: v1alpha1.Metal3ClusterRef{Namespace: "metal3-system"}, NodeTypes: templates}
	if err := environment.Client.Create(w.Context(), provider); err != nil {
		w.Fatal(err)
	}
	// No garbage collector deletes its NodeTypes here, and the controller of NodeTypes in other tests would see them.
	w.Cleanup(func() {
		leftovers := []client.Object{provider.DeepCopy()}
		for _, template := range templates {
			leftovers = append(leftovers, &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: template.Name}})
		}
		for _, object := range leftovers {
			if err := client.IgnoreNotFound(environment.Client.Delete(context.Background(), object)); err != nil {
				w.Errorf("deleting %s, %v", object.GetName(), err)
			}
		}
	})
	return provider
}

// reconcile runs the controller on what the API server has, and returns what it has then.
func (w *providerTest) reconcile(provider *v1alpha1.NodeProvider) *v1alpha1.NodeProvider {
	w.Helper()
	key := client.ObjectKeyFromObject(provider)
	current := &v1alpha1.NodeProvider{}
	if err := environment.Client.Get(w.Context(), key, current); err != nil {
		w.Fatal(err)
	}
	if _, err := w.controller.Reconcile(w.Context(), current); err != nil {
		w.Fatal(err)
	}
	if err := environment.Client.Get(w.Context(), key, current); err != nil {
		w.Fatal(err)
	}
	return current
}

func (w *providerTest) get(name string) (*v1alpha1.NodeType, bool) {
	w.Helper()
	nodeType := &v1alpha1.NodeType{}
	err := environment.Client.Get(w.Context(), client.ObjectKey{Name: name}, nodeType)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return nodeType, !apierrors.IsNotFound(err)
}

func (w *providerTest) expect(provider *v1alpha1.NodeProvider, nodeTypes int32, reason, message string) {
	w.Helper()
	condition := meta.FindStatusCondition(provider.Status.Conditions, v1alpha1.ConditionSynced)
	if condition == nil {
		w.Fatal("there is no condition")
	}
	conditionOf := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
			ObservedGeneration: provider.Generation, LastTransitionTime: condition.LastTransitionTime}
	}
	want := v1alpha1.NodeProviderStatus{ObservedGeneration: provider.Generation, NodeTypes: nodeTypes, Conditions: []metav1.Condition{
		conditionOf(v1alpha1.ConditionSynced, metav1.ConditionFalse), conditionOf(v1alpha1.ConditionReady, metav1.ConditionFalse),
		conditionOf(v1alpha1.ConditionStalled, metav1.ConditionTrue),
	}}
	if reason == v1alpha1.ReasonSynced {
		want.Conditions = []metav1.Condition{conditionOf(v1alpha1.ConditionSynced, metav1.ConditionTrue),
			conditionOf(v1alpha1.ConditionReady, metav1.ConditionTrue)}
	}
	if diff := cmp.Diff(want, provider.Status); diff != "" {
		w.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestNodeTypesFollowProvider(t *testing.T) {
	w := newProviderTest(t)
	provider := w.reconcile(w.create("follow", profileOf("follow-a", "8"), profileOf("follow-b", "8")))
	w.expect(provider, 2, v1alpha1.ReasonSynced, "every NodeType is as the spec says")
	nodeType, found := w.get("follow-a")
	if !found || !metav1.IsControlledBy(nodeType, provider) || nodeType.Spec.ProviderRef.Name != "follow" {
		t.Fatalf("follow-a is not there or not the provider's: %+v", nodeType)
	}
	if diff := cmp.Diff(profileOf("follow-a", "8").HardwareProfile, nodeType.Spec.HardwareProfile); diff != "" {
		t.Errorf("profile (-want +got):\n%s", diff)
	}

	unchanged := w.reconcile(provider)
	if again, _ := w.get("follow-a"); again.ResourceVersion != nodeType.ResourceVersion ||
		unchanged.ResourceVersion != provider.ResourceVersion {
		t.Error("there was nothing to do, and something was written")
	}

	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{profileOf("follow-a", "16")}
	if err := environment.Client.Update(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	w.expect(w.reconcile(provider), 1, v1alpha1.ReasonSynced, "every NodeType is as the spec says")
	if nodeType, _ = w.get("follow-a"); nodeType.Spec.Resources["cpu"] != env.Resources("cpu", "16")["cpu"] {
		t.Errorf("follow-a was not updated: %v", nodeType.Spec.Resources)
	}
	if _, found := w.get("follow-b"); found {
		t.Error("follow-b still exists, but no NodeProvider lists it")
	}
	for _, want := range []string{
		"Normal NodeTypeCreated Created NodeType follow-a.", "Normal NodeTypeCreated Created NodeType follow-b.",
		"Normal NodeTypeDeleted Deleted NodeType follow-b, which is not among the nodeTypes any more.",
	} {
		if got := <-w.events.Events; got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	}
}

// TestSelectorLeftOut: a type without a selector selects nothing, unless the annotation of its provider names it.
func TestSelectorLeftOut(t *testing.T) {
	w := newProviderTest(t)
	leftOut := profileOf("left-out", "8")
	leftOut.BareMetalHosts = nil
	provider := w.reconcile(w.create("leaves-out", leftOut))
	w.expect(provider, 1, v1alpha1.ReasonSynced, "every NodeType is as the spec says")
	selects := func(reason string, want *v1alpha1.HostSelection) {
		t.Helper()
		provider = w.reconcile(provider)
		nodeType, _ := w.get("left-out")
		if diff := cmp.Diff(want, nodeType.Spec.BareMetalHosts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
	selects("nothing says that all are meant", nil)
	for annotation, want := range map[string]*v1alpha1.HostSelection{
		"left": nil, "other, left-out": {Selector: &metav1.LabelSelector{}}, "": nil,
	} {
		provider.Annotations = map[string]string{v1alpha1.SelectAllHostsAnnotationKey: annotation}
		if err := environment.Client.Update(t.Context(), provider); err != nil {
			t.Fatal(err)
		}
		selects("the annotation is "+annotation, want)
	}
}

func TestNameConflict(t *testing.T) {
	w := newProviderTest(t)
	first := w.reconcile(w.create("first", profileOf("wanted-by-both", "8")))
	second := w.reconcile(w.create("second", profileOf("wanted-by-both", "64"), profileOf("second-own", "8")))
	w.expect(second, 1, v1alpha1.ReasonNameConflict,
		"NodeType wanted-by-both belongs to NodeProvider first and is not taken over by NodeProvider second: rename the type in one of the two, "+
			"or delete it there")
	if nodeType, _ := w.get("wanted-by-both"); !metav1.IsControlledBy(nodeType, first) ||
		nodeType.Spec.Resources["cpu"] != env.Resources("cpu", "8")["cpu"] {
		t.Errorf("the type was taken over: %+v", nodeType)
	}
	first.Spec.Metal3.NodeTypes = nil
	if err := environment.Client.Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	w.reconcile(first)
	second = w.reconcile(second)
	w.expect(second, 2, v1alpha1.ReasonSynced, "every NodeType is as the spec says")
	if nodeType, _ := w.get("wanted-by-both"); !metav1.IsControlledBy(nodeType, second) {
		t.Error("the name is free and was not taken")
	}
}

func TestNodeTypeWithoutOwnerIsNotAdopted(t *testing.T) {
	w := newProviderTest(t)
	made := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "hand-made"}, Spec: v1alpha1.NodeTypeSpec{
		ProviderRef: v1alpha1.NameReference{Name: "adopter"}, HardwareProfile: profileOf("hand-made", "8").HardwareProfile}}
	if err := environment.Client.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	provider := w.reconcile(w.create("adopter", profileOf("hand-made", "8")))
	w.expect(provider, 0, v1alpha1.ReasonNameConflict,
		"NodeType hand-made has no owner and is not taken over by NodeProvider adopter: rename the type in one of the two, or delete it there")
}

func TestInvalidSelector(t *testing.T) {
	w := newProviderTest(t)
	broken := profileOf("broken", "8")
	broken.BareMetalHosts.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "gpu", Operator: "Is"}}
	provider := w.reconcile(w.create("careless", profileOf("sound", "8"), broken))
	w.expect(provider, 2, v1alpha1.ReasonInvalidSelector,
		`NodeType broken selects no servers: bareMetalHosts.selector.matchExpressions[0] (gpu Is []) is not valid: "Is" is not a valid label `+
			`selector operator: correct it`)
}

func TestStaleProviderDeletesNothing(t *testing.T) {
	w := newProviderTest(t)
	old := w.reconcile(w.create("stale", profileOf("stale-a", "8")))
	current := old.DeepCopy()
	current.Spec.Metal3.NodeTypes = append(current.Spec.Metal3.NodeTypes, profileOf("stale-b", "8"))
	if err := environment.Client.Update(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	w.reconcile(current)

	// A manager that has just started, with a cache that is behind.
	if _, err := w.controller.Reconcile(t.Context(), old); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
	if _, found := w.get("stale-b"); !found {
		t.Error("stale-b was deleted because the provider that was read is from before stale-b was named")
	}
}

// TestNodeTypeMetadata: labels and annotations follow the template, and those that others have set stay.
func TestNodeTypeMetadata(t *testing.T) {
	w := newProviderTest(t)
	template := func(labels, annotations map[string]string) v1alpha1.NodeTypeTemplate {
		template := profileOf("marked", "8")
		template.Metadata = &v1alpha1.NodeTypeMetadata{Labels: labels, Annotations: annotations}
		return template
	}
	provider := w.create("marks", profileOf("marked", "8"))
	apply := func(template v1alpha1.NodeTypeTemplate) {
		t.Helper()
		if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(provider), provider); err != nil {
			t.Fatal(err)
		}
		provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{template}
		if err := environment.Client.Update(t.Context(), provider); err != nil {
			t.Fatal(err)
		}
		provider = w.reconcile(provider)
	}
	expect := func(reason string, labels, annotations map[string]string) {
		t.Helper()
		nodeType, _ := w.get("marked")
		if diff := cmp.Diff(labels, nodeType.Labels); diff != "" {
			t.Errorf("%s: labels (-want +got):\n%s", reason, diff)
		}
		if diff := cmp.Diff(annotations, nodeType.Annotations); diff != "" {
			t.Errorf("%s: annotations (-want +got):\n%s", reason, diff)
		}
		version := nodeType.ResourceVersion
		w.reconcile(provider)
		if again, _ := w.get("marked"); again.ResourceVersion != version {
			t.Errorf("%s: there was nothing to do, and something was written", reason)
		}
	}
	w.reconcile(provider)
	expect("a type as in earlier versions is not touched", nil, nil)

	nodeType, _ := w.get("marked")
	nodeType.Labels = map[string]string{"theirs": "1"}
	nodeType.Annotations = map[string]string{"theirs": "2", "karpenter.metal3.io/admission": "x"}
	if err := environment.Client.Update(t.Context(), nodeType); err != nil {
		t.Fatal(err)
	}
	apply(template(map[string]string{"team": "a", "tier": "gold", "karpenter.metal3.io/admission": "ignore"},
		map[string]string{"example.com/note": "hello", "karpenter.metal3.io/admission": "y", "kubernetes.io/a": "z"}))
	expect("reserved ones are not written", map[string]string{"theirs": "1", "team": "a", "tier": "gold"}, map[string]string{
		"theirs": "2", "karpenter.metal3.io/admission": "x", "example.com/note": "hello",
		"karpenter.metal3.io/provider-labels": "team,tier", "karpenter.metal3.io/provider-annotations": "example.com/note"})

	apply(template(map[string]string{"team": "b"}, nil))
	expect("what the template has no more is removed", map[string]string{"theirs": "1", "team": "b"}, map[string]string{
		"theirs": "2", "karpenter.metal3.io/admission": "x", "karpenter.metal3.io/provider-labels": "team"})

	nodeType, _ = w.get("marked")
	nodeType.Labels["team"] = "by-hand"
	if err := environment.Client.Update(t.Context(), nodeType); err != nil {
		t.Fatal(err)
	}
	w.reconcile(provider)
	expect("the template counts", map[string]string{"theirs": "1", "team": "b"}, map[string]string{
		"theirs": "2", "karpenter.metal3.io/admission": "x", "karpenter.metal3.io/provider-labels": "team"})

	apply(profileOf("marked", "8"))
	expect("nothing of the provider's is left", map[string]string{"theirs": "1"},
		map[string]string{"theirs": "2", "karpenter.metal3.io/admission": "x"})

	nodeType, _ = w.get("marked")
	if err := environment.Client.Delete(t.Context(), nodeType); err != nil {
		t.Fatal(err)
	}
	apply(template(map[string]string{"team": "c"}, nil))
	expect("a new type has them from the start", map[string]string{"team": "c"},
		map[string]string{"karpenter.metal3.io/provider-labels": "team"})

	apply(template(map[string]string{"a b": "c"}, nil))
	synced := meta.FindStatusCondition(provider.Status.Conditions, v1alpha1.ConditionSynced)
	if synced.Reason != v1alpha1.ReasonInvalidSpec {
		t.Errorf("a label that cannot be one: %s %s", synced.Reason, synced.Message)
	}
}
