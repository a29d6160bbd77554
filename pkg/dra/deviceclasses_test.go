// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/classes"
)

func (w *fixture) awaitClass(name string, check func(*resourcev1.DeviceClass) error) {
	w.Helper()
	w.eventually("the tenant has class "+name, func(ctx context.Context) error {
		class := &resourcev1.DeviceClass{}
		if err := w.tenant.Get(ctx, client.ObjectKey{Name: name}, class); err != nil {
			return err
		}
		if check == nil {
			return nil
		}
		return check(class)
	})
}

// Point 2: the classes that match exist in the tenant, kept equal, and no others.
func TestDeviceClasses(t *testing.T) {
	w := newFixture(t)
	w.must(w.tenant.Create(t.Context(), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}}))
	w.createClass("others", func(class *resourcev1.DeviceClass) { class.Labels = map[string]string{"for": "others"} })
	w.run()
	w.awaitCondition(v1alpha1.ReasonSynced)
	w.awaitClass(w.class, func(class *resourcev1.DeviceClass) error {
		if len(class.Spec.Selectors) != 1 {
			return fmt.Errorf("it has selectors %v", class.Spec.Selectors)
		}
		return nil
	})
	w.awaitGone(w.tenant, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}})
	w.awaitEvent(classes.ReasonRemoved, "by-hand", "the host has no such DeviceClass")

	// One that changes is updated, on either side.
	host := &resourcev1.DeviceClass{}
	w.must(w.host.Get(t.Context(), client.ObjectKey{Name: w.class}, host))
	host.Spec.Selectors = append(host.Spec.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: "true"}})
	w.must(w.host.Update(t.Context(), host))
	two := func(class *resourcev1.DeviceClass) error {
		if len(class.Spec.Selectors) != 2 {
			return fmt.Errorf("it has selectors %v", class.Spec.Selectors)
		}
		return nil
	}
	w.awaitClass(w.class, two)
	tenant := &resourcev1.DeviceClass{}
	w.must(w.tenant.Get(t.Context(), client.ObjectKey{Name: w.class}, tenant))
	tenant.Spec.Selectors = nil
	w.must(w.tenant.Update(t.Context(), tenant))
	w.awaitClass(w.class, two)

	// One that matches later comes; one that matches no more goes.
	others := &resourcev1.DeviceClass{}
	w.must(w.host.Get(t.Context(), client.ObjectKey{Name: "others"}, others))
	others.Labels = w.labels()
	w.must(w.host.Update(t.Context(), others))
	w.awaitClass("others", nil)
	w.must(w.host.Delete(t.Context(), host))
	w.awaitGone(w.tenant, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: w.class}})
	w.setSync(func(sync *v1alpha1.Sync) { sync.FromHost.DeviceClasses.Selector.MatchLabels["for"] = "somewhere-else" })
	w.awaitGone(w.tenant, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "others"}})
	w.setSync(func(sync *v1alpha1.Sync) { sync.FromHost.DeviceClasses.Selector = nil })
	w.awaitClass("others", nil)
}

func TestHiddenPartsOfClasses(t *testing.T) {
	w := newFixture(t, func(sync *v1alpha1.Sync) {
		sync.FromHost.DeviceClasses.Hidden = []v1alpha1.DeviceClassPart{v1alpha1.DeviceClassConfig}
	})
	w.createClass("configured", func(class *resourcev1.DeviceClass) {
		class.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{secret}", "note": "n"}
		class.Spec.Config = []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: resourcev1.DeviceConfiguration{
			Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: "gpu.example.com",
				Parameters: runtime.RawExtension{Raw: []byte(`{"host":"node-7"}`)}}}}}
	})
	w.run()
	w.awaitClass("configured", func(class *resourcev1.DeviceClass) error {
		if len(class.Spec.Config) > 0 || class.Annotations[corev1.LastAppliedConfigAnnotation] != "" || class.Annotations["note"] != "n" ||
			len(class.Spec.Selectors) != 1 {
			return fmt.Errorf("it is %v", class)
		}
		return nil
	})
	w.setSync(func(sync *v1alpha1.Sync) { sync.FromHost.DeviceClasses.Hidden = nil })
	w.awaitClass("configured", func(class *resourcev1.DeviceClass) error {
		if len(class.Spec.Config) != 1 {
			return fmt.Errorf("it has config %v", class.Spec.Config)
		}
		return nil
	})
}
