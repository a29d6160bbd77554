// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func TestHostUpdated(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*bmov1alpha1.BareMetalHost)
		want   bool
	}{
		"Time": {"Metal3 has written the time only", func(*bmov1alpha1.BareMetalHost) {}, false},
		"State": {"the state is another", func(h *bmov1alpha1.BareMetalHost) {
			h.Status.Provisioning.State = bmov1alpha1.StateProvisioned
		}, true},
		"Power":  {"the power is another", func(h *bmov1alpha1.BareMetalHost) { h.Status.PoweredOn = !h.Status.PoweredOn }, true},
		"Error":  {"there is an error", func(h *bmov1alpha1.BareMetalHost) { h.Status.ErrorMessage = "broken" }, true},
		"Label":  {"a label is another", func(h *bmov1alpha1.BareMetalHost) { h.Labels["rack"] = "r2" }, true},
		"Hook":   {"an annotation is new", func(h *bmov1alpha1.BareMetalHost) { h.Annotations = map[string]string{"hook": ""} }, true},
		"Claim":  {"the consumer is new", func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef = &corev1.ObjectReference{Name: "m"} }, true},
		"Resync": {"nothing has been written", func(h *bmov1alpha1.BareMetalHost) { h.ResourceVersion = "1" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := env.AvailableHost("metal3", "h", map[string]string{"rack": "r1"})
			before.ResourceVersion, before.Status.LastUpdated = "1", ptr.To(metav1.Unix(1, 0))
			after := before.DeepCopy()
			after.ResourceVersion, after.Status.LastUpdated = "2", ptr.To(metav1.NewTime(time.Unix(61, 0)))
			tc.change(after)
			if got := hostUpdated.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("%s: the update comes through: %t", tc.reason, got)
			}
			if before.ResourceVersion != "1" || !before.Status.LastUpdated.Equal(ptr.To(metav1.Unix(1, 0))) {
				t.Error("the object of the cache has been written to")
			}
		})
	}
	if added := (event.CreateEvent{Object: env.AvailableHost("metal3", "h", nil)}); !hostUpdated.Create(added) {
		t.Error("a new host does not come through")
	}
}
