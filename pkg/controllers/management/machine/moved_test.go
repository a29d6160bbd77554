// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestRegisteredAnew: a person registers a server that runs again, as Metal3 documents it: detached, deleted, and made anew with its
// status in an annotation. Its Machine has joined, and names the server by its former key.
func TestRegisteredAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*fixture, *bmov1alpha1.BareMetalHost)
		// goes is true if the Machine is deleted, too.
		goes, wantRuns bool
	}{
		"OtherNamespace": {reason: "the node runs on it", wantRuns: true,
			change: func(w *fixture, host *bmov1alpha1.BareMetalHost) { host.Namespace = w.api.Namespace(t) }},
		"OtherName": {reason: "the node runs on it", wantRuns: true,
			change: func(_ *fixture, host *bmov1alpha1.BareMetalHost) { host.Name = "rack7-u12" }},
		"Deleted": {reason: "nobody needs it any more", goes: true,
			change: func(_ *fixture, host *bmov1alpha1.BareMetalHost) { host.Name = "rack7-u12" }},
		"LeftBehind": {reason: "a crash of ours: it was claimed, and another was chosen",
			change: func(_ *fixture, host *bmov1alpha1.BareMetalHost) { host.Name, host.Spec.Image = "rack7-u12", nil }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRichFixture(t, 1)
			running := w.start(w.client)
			now := func() *process { return running }
			key := w.join("runs", now)
			host := w.hosts()[0].DeepCopy()
			bare := host.DeepCopy()
			bare.Finalizers = nil
			if err := w.client.Patch(t.Context(), bare, client.MergeFrom(host)); err != nil {
				t.Fatal(err)
			}
			if err := w.client.Delete(t.Context(), bare); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			moved := host.DeepCopy()
			tc.change(w, moved)
			moved.UID, moved.ResourceVersion = "", ""
			w.create(moved)
			moved.Status = host.Status
			moved.Status.PoweredOn = true
			if err := w.client.Status().Update(t.Context(), moved); err != nil {
				t.Fatal(err)
			}
			if tc.goes {
				if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
					t.Fatal(err)
				}
			}
			running.inventory.SetHost(moved)
			for range 3 {
				running.look(key)
				if _, err := (OrphanHosts{running.servers, running.inventory, running.recorder}).Reconcile(t.Context(),
					ctrl.Request{NamespacedName: client.ObjectKeyFromObject(moved)}); err != nil {
					t.Fatal(err)
				}
			}
			reported := running.reported("ServerNotReleased")
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(moved), moved); err != nil {
				t.Fatal(err)
			}
			if runs := moved.Spec.Image != nil && moved.Spec.Online; runs != tc.wantRuns || reported != tc.wantRuns {
				t.Errorf("%s: image and online %v, event %v; want %v", tc.reason, runs, reported, tc.wantRuns)
			}
		})
	}
}
