// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
)

// TestCopiesAreBounded fills each field of a claim and of a template that can hold much. No copy on the host becomes larger than a few
// labels, annotations and requests need: it is left out, or what is too large of it.
func TestCopiesAreBounded(t *testing.T) {
	const bound = 100 << 10
	w := newFixture(t, allowDriver("gpu.example.com"))
	w.run()
	large := func(key string, count, size int) map[string]string {
		all := map[string]string{}
		for n := range count {
			all[fmt.Sprintf("example.com/%s-%d", key, n)] = strings.Repeat("x", size)
		}
		return all
	}
	selectors := func() (all []resourcev1.DeviceSelector) {
		for range 32 {
			all = append(all, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{
				Expression: `device.driver == "` + strings.Repeat("x", 9<<10) + `"`,
			}})
		}
		return all
	}
	configuration := func() (all []resourcev1.DeviceClaimConfiguration) {
		for range 32 {
			all = append(all, opaque("gpu.example.com", 9<<10))
		}
		return all
	}
	for name, fill := range map[string]func(metadata, inner *metav1.ObjectMeta, spec *resourcev1.ResourceClaimSpec){
		"annotations": func(metadata, _ *metav1.ObjectMeta, _ *resourcev1.ResourceClaimSpec) {
			metadata.Annotations = large("a", 25, 10<<10)
		},
		"labels": func(metadata, _ *metav1.ObjectMeta, _ *resourcev1.ResourceClaimSpec) {
			metadata.Labels = large("l", 4000, 63)
		},
		"selectors": func(_, _ *metav1.ObjectMeta, spec *resourcev1.ResourceClaimSpec) {
			spec.Devices.Requests[0].Exactly.Selectors = selectors()
		},
		"configuration": func(_, _ *metav1.ObjectMeta, spec *resourcev1.ResourceClaimSpec) {
			spec.Devices.Config = configuration()
		},
		"template-annotations": func(_, inner *metav1.ObjectMeta, _ *resourcev1.ResourceClaimSpec) {
			inner.Annotations = large("a", 25, 10<<10)
		},
		"template-labels": func(_, inner *metav1.ObjectMeta, _ *resourcev1.ResourceClaimSpec) {
			inner.Labels = large("l", 4000, 63)
		},
	} {
		t.Run(name, func(t *testing.T) {
			meta := metav1.ObjectMeta{Namespace: w.namespace, Name: name}
			spec := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{exactly("gpu", w.class)}}}
			template := &resourcev1.ResourceClaimTemplate{ObjectMeta: meta, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec}}
			fill(&template.ObjectMeta, &template.Spec.ObjectMeta, &template.Spec.Spec)
			claim := &resourcev1.ResourceClaim{ObjectMeta: *template.DeepCopy().ObjectMeta.DeepCopy(), Spec: template.Spec.Spec}
			for _, object := range []client.Object{claim, template} {
				w.must(w.tenant.Create(t.Context(), object))
			}
			for _, copied := range []client.Object{&resourcev1.ResourceClaim{}, &resourcev1.ResourceClaimTemplate{}} {
				w.eventually(fmt.Sprintf("an event or a copy, %T", copied), func(ctx context.Context) error {
					key := client.ObjectKey{Namespace: w.cluster.Namespace, Name: w.hostName(name)}
					if err := w.host.Get(ctx, key, copied); err == nil {
						return nil
					}
					for _, e := range w.events.all() {
						if object := e.InvolvedObject.(client.Object); object.GetName() == name && fmt.Sprintf("%T", object) == fmt.Sprintf("%T", copied) {
							return nil
						}
					}
					return fmt.Errorf("there is neither; events: %v", w.events.all())
				})
				copied.SetManagedFields(nil)
				encoded, err := json.Marshal(copied)
				w.must(err)
				if len(encoded) > bound {
					t.Errorf("%T has %d bytes on the host, want at most %d", copied, len(encoded), bound)
				}
			}
		})
	}
}

// opaque is configuration for a driver, with so many bytes.
func opaque(driver string, size int) resourcev1.DeviceClaimConfiguration {
	parameters := runtime.RawExtension{Raw: []byte(`{"x":"` + strings.Repeat("x", size) + `"}`)}
	return resourcev1.DeviceClaimConfiguration{DeviceConfiguration: resourcev1.DeviceConfiguration{
		Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: driver, Parameters: parameters}}}
}

func allowDriver(drivers ...string) func(*v1alpha1.Sync) {
	return func(sync *v1alpha1.Sync) { sync.ToHost.OpaqueConfigDrivers = drivers }
}

// TestOpaqueConfig: a driver on the host reads nothing that a tenant has written, unless the platform names the driver.
func TestOpaqueConfig(t *testing.T) {
	w := newFixture(t)
	w.run()
	configured := func(name string, drivers ...string) {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{exactly("gpu", w.class)}
		for _, driver := range drivers {
			claim.Spec.Devices.Config = append(claim.Spec.Devices.Config, opaque(driver, 1))
		}
		w.must(w.tenant.Create(t.Context(), claim))
	}
	configured("one", "gpu.example.com")
	configured("two", "gpu.example.com", "nic.example.com")
	w.awaitEvent("OpaqueConfigNotAllowed", "one", "driver gpu.example.com", "sync.toHost.opaqueConfigDrivers")
	w.awaitEvent("OpaqueConfigNotAllowed", "two", "driver gpu.example.com")
	w.setSync(allowDriver("gpu.example.com"))
	if got := w.awaitHostClaim("one").Spec.Devices.Config; len(got) != 1 || got[0].Opaque.Driver != "gpu.example.com" {
		t.Errorf("the host has %+v", got)
	}
	w.awaitEvent("OpaqueConfigNotAllowed", "two", "driver nic.example.com")
	if w.hostClaim("two") != nil {
		t.Error("a claim with configuration for a driver that is not named is on the host")
	}
	w.setSync(allowDriver("*"))
	w.awaitHostClaim("two")
	// Claims that are on the host stay in sync.
	w.setSync(allowDriver())
	w.must(w.tenant.Patch(t.Context(), w.tenantClaim("one"), client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"app":"later"}}}`))))
	w.eventually("the label is on the host", func(context.Context) error {
		if got := w.hostClaim("one").Labels["app"]; got != "later" {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// TestMaxCopies: several workers, whose cache is late, never make more copies than the tenant may have. What there is no room for says so,
// and gets its copy when the platform allows more.
func TestMaxCopies(t *testing.T) {
	const wanted, most = 20, 3
	w := newFixture(t, func(sync *v1alpha1.Sync) { sync.ToHost.ResourceClaims.Max = ptr.To[int64](most) })
	copies := func() int {
		list := &resourcev1.ResourceClaimList{}
		w.must(w.host.List(t.Context(), list, client.InNamespace(w.cluster.Namespace), client.MatchingLabels{names.MarkerLabel: w.cluster.Name}))
		return len(list.Items)
	}
	for n := range wanted {
		w.createClaim(fmt.Sprintf("claim-%02d", n))
	}
	w.run()
	for n := range wanted {
		w.eventually("an event or a copy", func(context.Context) error {
			if got := copies(); got > most {
				t.Fatalf("there are %d copies, and may be %d", got, most)
			}
			name := fmt.Sprintf("claim-%02d", n)
			if w.hostClaim(name) != nil {
				return nil
			}
			for _, e := range w.events.all() {
				if e.InvolvedObject.(client.Object).GetName() == name && strings.Contains(e.Message, "TooManyCopies: ") &&
					strings.Contains(e.Message, "may have 3: ") && strings.Contains(e.Message, "'sync.toHost.resourceClaims.max'") {
					return nil
				}
			}
			return fmt.Errorf("there is neither for %s", name)
		})
	}
	if got := copies(); got != most {
		t.Errorf("there are %d copies, want %d", got, most)
	}
	w.createTemplate("template") // has a bound of its own
	w.setSync(func(sync *v1alpha1.Sync) { sync.ToHost.ResourceClaims.Max = nil })
	for n := range wanted {
		w.awaitHostClaim(fmt.Sprintf("claim-%02d", n))
	}
}

// TestRoomForCopies: a copy that goes makes room for another.
func TestRoomForCopies(t *testing.T) {
	w := newMemoryFixture(t)
	w.setSync(func(sync *v1alpha1.Sync) { sync.ToHost.ResourceClaims.Max = ptr.To[int64](1) })
	first := w.createClaim("first")
	w.run()
	w.awaitHostClaim("first")
	w.createClaim("second")
	w.awaitEvent("TooManyCopies", "second", "has 1 ResourceClaims on the host, and may have 1")
	w.must(w.tenant.Delete(t.Context(), first))
	w.awaitHostClaim("second")
}
