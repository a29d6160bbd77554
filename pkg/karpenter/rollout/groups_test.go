// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

// groupFixture is three drifted nodes. Pods of the PodGroup train are on the first two, and one of serve is on the third.
type groupFixture struct {
	*driftFixture
	terminator
	published *record.FakeRecorder
}

func newGroupFixture(t *testing.T, together func(podGroup string) (bool, error)) *groupFixture {
	t.Helper()
	f := &groupFixture{driftFixture: newDriftFixture(t, world{}), published: record.NewFakeRecorder(100)}
	f.addNode(t, "second", true)
	f.addNode(t, "third", true)
	for node, group := range map[string]string{"drifted": "train", "second": "train", "third": "serve"} {
		f.changePod(t, "on-"+node, func(pod *corev1.Pod) {
			pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(group)}
		})
	}
	f.terminator.Dependencies = Dependencies{Client: f.driftFixture.Client, Cluster: f.cluster, Recorder: events.NewRecorder(f.published),
		DisruptedTogether: func(_ context.Context, podGroup client.ObjectKey) (bool, error) { return together(podGroup.Name) }}
	return f
}

func (f *groupFixture) changePod(t *testing.T, name string, change func(*corev1.Pod)) {
	t.Helper()
	pod := &corev1.Pod{}
	if err := f.driftFixture.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, pod); err != nil {
		t.Fatal(err)
	}
	change(pod)
	wanted := pod.Status
	if err := f.driftFixture.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status = wanted
	if err := f.driftFixture.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func (f *groupFixture) changeNodeClaim(t *testing.T, name string, change func(*karpv1.NodeClaim)) {
	t.Helper()
	nodeClaim := &karpv1.NodeClaim{}
	if err := f.driftFixture.Get(t.Context(), client.ObjectKey{Name: name}, nodeClaim); err != nil {
		t.Fatal(err)
	}
	change(nodeClaim)
	f.cluster.UpdateNodeClaim(nodeClaim)
}

// candidates are the nodes that core's method for drift may disrupt.
func (f *groupFixture) candidates(t *testing.T) []*disruption.Candidate {
	t.Helper()
	method := disruption.NewDrift(f.driftFixture.Client, f.cluster, f.provisioner, f.recorder, clock.RealClock{})
	candidates, err := disruption.GetCandidates(planning.Options(t).ToContext(t.Context()), f.cluster, f.driftFixture.Client, f.recorder,
		clock.RealClock{}, f.provider, method.ShouldDisrupt, method.Class(), f.queue)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(candidates, func(a, b *disruption.Candidate) int { return strings.Compare(a.NodeClaim.Name, b.NodeClaim.Name) })
	return candidates
}

func only(group string) func(string) (bool, error) {
	return func(podGroup string) (bool, error) { return podGroup == group, nil }
}

func TestOrder(t *testing.T) {
	const sentence = "Warning RolloutBlocked this node has drifted and stays: the pods of PodGroup default/train are disrupted together " +
		"(disruptionMode)"
	for name, tc := range map[string]struct {
		reason   string
		together func(string) (bool, error)
		budget   int
		change   func(*testing.T, *groupFixture)
		want     string
		event    string
	}{
		"Single": {reason: "each by itself, which is the default of Kubernetes", together: only(""), budget: 1, want: "[drifted second third]"},
		"Enough": {reason: "all of them can go", together: only("train"), budget: 2, want: "[drifted second third]"},
		"TooFew": {reason: "the second would go when the pods run again", together: only("train"), budget: 1, want: "[third]",
			event: sentence + ": they are on 2 nodes, and the budgets of NodePool servers allow 1 more now"},
		"OneDrifted": {reason: "the pods on the other node restart as well", together: only("train"), budget: 1,
			change: func(t *testing.T, f *groupFixture) {
				f.changeNodeClaim(t, "second", func(nodeClaim *karpv1.NodeClaim) {
					_ = nodeClaim.StatusConditions().Clear(karpv1.ConditionTypeDrifted) // fails if there is none, which is as well
				})
			}, want: "[third]", event: sentence + ": they are on 2 nodes, and the budgets of NodePool servers allow 1 more now"},
		"OneNode": {reason: "a group on one node is whole there", together: only("serve"), budget: 1, want: "[drifted second third]"},
		"Begun": {reason: "its pods restart anyway, so the rest is next whatever else drifts", together: only("train"), budget: 1,
			change: func(_ *testing.T, f *groupFixture) { f.cluster.MarkForDeletion(providerID(f, "drifted")) }, want: "[second] [third]"},
		"Drained": {reason: "the pods of the first have left it, and its server is not released yet", together: only("train"), budget: 1,
			change: func(t *testing.T, f *groupFixture) {
				f.changeNodeClaim(t, "drifted", func(nodeClaim *karpv1.NodeClaim) {
					nodeClaim.Annotations = map[string]string{v1alpha1.GangsAnnotationKey: `[{"name": "default/PodGroup train"}]`}
				})
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-drifted"}}
				if err := f.driftFixture.Delete(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				f.cluster.MarkForDeletion(providerID(f, "drifted"))
			}, want: "[second] [third]"},
		"Stays": {reason: "a node that cannot go would be one more restart", together: only("train"), budget: 3,
			change: func(t *testing.T, f *groupFixture) {
				f.changePod(t, "on-second", func(pod *corev1.Pod) { pod.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"} })
			}, want: "[third]", event: sentence + ", and NodeClaim second cannot be disrupted now"},
		"Ended": {reason: "pods that have ended are not disrupted", together: only("train"), budget: 1,
			change: func(t *testing.T, f *groupFixture) {
				f.changePod(t, "on-second", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
			}, want: "[drifted second third]"},
		"Unread": {reason: "nothing is disrupted by mistake while the API server does not answer",
			together: func(string) (bool, error) { return false, errors.New("etcd") }, budget: 3, want: "etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newGroupFixture(t, tc.together)
			if tc.change != nil {
				tc.change(t, f)
			}
			groups, err := f.order(t.Context(), map[string]*pool{f.pool.Name: {live: f.pool, left: tc.budget}}, f.candidates(t))
			var got []string
			for _, group := range groups {
				var names []string
				for _, candidate := range group {
					names = append(names, candidate.NodeClaim.Name)
				}
				got = append(got, fmt.Sprint(names))
			}
			if err != nil {
				got = append(got, err.Error())
			}
			if got := strings.Join(got, " "); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
			event := ""
			select {
			case event = <-f.published.Events:
			default:
			}
			if event != tc.event {
				t.Errorf("%s: the first event is %q, want %q", tc.reason, event, tc.event)
			}
		})
	}
}

func providerID(f *groupFixture, name string) string {
	for node := range f.cluster.Nodes() {
		if node.Name() == name {
			return node.ProviderID()
		}
	}
	return ""
}

// always is a method that would disrupt each node.
type always struct{ consolidates }

func (always) ShouldDisrupt(context.Context, *disruption.Candidate) bool { return true }

// TestConsolidationKeepsPodGroups: consolidation moves no pod of a PodGroup that is disrupted as a whole.
func TestConsolidationKeepsPodGroups(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		together func(string) (bool, error)
		want     string
		event    bool
	}{
		"Single": {reason: "each by itself", together: only(""), want: "[drifted second third]"},
		"All":    {reason: "a server less is not worth the restart", together: only("train"), want: "[third]", event: true},
		"Unread": {reason: "until the API server answers", together: func(string) (bool, error) { return true, errors.New("etcd") }, want: "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			f, names := newGroupFixture(t, tc.together), []string{}
			method := &consolidation{consolidates: always{}, terminator: f.terminator}
			for _, candidate := range f.candidates(t) {
				if method.ShouldDisrupt(t.Context(), candidate) {
					names = append(names, candidate.NodeClaim.Name)
				}
			}
			if got := fmt.Sprint(names); got != tc.want {
				t.Errorf("%s: consolidated are %s, want %s", tc.reason, got, tc.want)
			}
			const event = "Normal Unconsolidatable the pods of PodGroup default/train are disrupted together (disruptionMode)"
			if got := len(f.published.Events) > 0; got != tc.event || got && <-f.published.Events != event {
				t.Errorf("%s: there is an event: %v, want %v", tc.reason, got, tc.event)
			}
		})
	}
}

// TestMethods: each method of core that moves pods and can wait is ours, so that none is forgotten when core gets another. Core asks some
// for more than a method must have, and would do without from one that hides it.
func TestMethods(t *testing.T) {
	f := newDriftFixture(t, world{})
	methods := disruption.NewMethods(planning.Options(t).ToContext(t.Context()), clock.RealClock{}, f.cluster, f.Client, f.provisioner,
		f.provider, f.recorder, f.queue)
	var got []string
	for i, method := range replaceDrift(methods, Dependencies{}, Core{}) {
		got = append(got, fmt.Sprintf("%T", method))
		_, want := methods[i].(disruption.NodePoolTotalsSetter)
		if _, is := method.(disruption.NodePoolTotalsSetter); is != want {
			t.Errorf("%T takes the totals of NodePools: %v, want %v as %T", method, is, want, methods[i])
		}
	}
	want := "*disruption.Emptiness *rollout.StaticDrift *rollout.Drift *rollout.consolidation *rollout.consolidation"
	if got := strings.Join(got, " "); got != want {
		t.Errorf("the methods are %s, want %s", got, want)
	}
}
