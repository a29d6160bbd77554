// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestOnly(t *testing.T) {
	for events, want := range map[Events][3]bool{
		Creations:             {true, false, false},
		Updates:               {false, true, false},
		Deletions:             {false, false, true},
		Creations | Deletions: {true, false, true},
		Creations | Updates:   {true, true, false},
	} {
		only := Only(events)
		got := [3]bool{only.Create(event.CreateEvent{}), only.Update(event.UpdateEvent{}), only.Delete(event.DeleteEvent{})}
		if got != want || only.Generic(event.GenericEvent{}) {
			t.Errorf("%b: creations, updates and deletions come through: %v, want %v", events, got, want)
		}
	}
}

func TestChanged(t *testing.T) {
	changed := Changed(func(node *corev1.Node) map[string]string { return node.Labels })
	labelled := func(labels map[string]string) *corev1.Node {
		node := &corev1.Node{}
		node.Labels = labels
		return node
	}
	for name, tc := range map[string]struct {
		reason        string
		before, after map[string]string
		want          bool
	}{
		"Another": {"the part is another", map[string]string{"a": "b"}, map[string]string{"a": "c"}, true},
		"Same":    {"nothing that matters has changed", map[string]string{"a": "b"}, map[string]string{"a": "b"}, false},
		"Empty":   {"an empty map says as much as none", nil, map[string]string{}, false},
	} {
		update := event.UpdateEvent{ObjectOld: labelled(tc.before), ObjectNew: labelled(tc.after)}
		if got := changed.Update(update); got != tc.want {
			t.Errorf("%s: %s: the update comes through: %t", name, tc.reason, got)
		}
	}
	if !changed.Create(event.CreateEvent{}) || !changed.Delete(event.DeleteEvent{}) {
		t.Error("other events do not come through")
	}
	if changed.Update(event.UpdateEvent{ObjectOld: &corev1.Pod{}, ObjectNew: &corev1.Pod{}}) {
		t.Error("an update of another kind comes through")
	}
}

func TestOnUpdate(t *testing.T) {
	object := func(name string, uid types.UID) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	}
	var changes [][2]string
	handler := OnUpdate(func(before, after *corev1.Node) { changes = append(changes, [2]string{before.Name, after.Name}) })
	handler.OnAdd(object("new", "1"), false)
	handler.OnDelete(object("gone", "1"))
	handler.OnUpdate(object("before", "1"), object("after", "1"))
	handler.OnUpdate(object("before", "1"), object("another of its name", "2"))
	handler.OnUpdate(&corev1.Pod{}, &corev1.Pod{})
	if want := [][2]string{{"before", "after"}}; !slices.Equal(changes, want) {
		t.Errorf("changes %v, want %v: only a change of one object counts", changes, want)
	}
}
