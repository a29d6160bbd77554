// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/claims"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// A selector that does not parse selects nothing new and takes nothing away.
func TestInvalidSelector(t *testing.T) {
	w := newFixture(t)
	w.run()
	w.createClaim("before")
	w.awaitHostClaim("before")
	w.awaitClass(w.class, nil)
	w.setSync(func(sync *v1alpha1.Sync) {
		sync.FromHost.DeviceClasses.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "for",
			Operator: "Like", Values: []string{"x"}}}}
	})
	w.awaitCondition(v1alpha1.ReasonInvalidSelector)
	if got := w.condition(); !strings.Contains(got, "spec.sync.fromHost.deviceClasses.selector") || !strings.Contains(got, `"Like"`) {
		t.Errorf("the condition is %q", got)
	}
	w.createClaim("after")
	w.awaitEvent(claims.ReasonInvalidSelector, "after")
	w.awaitClass(w.class, nil)
	if w.hostClaim("before") == nil || w.hostClaim("after") != nil {
		t.Error("a claim has come or gone")
	}
	w.setSync(func(sync *v1alpha1.Sync) {
		sync.FromHost.DeviceClasses.Selector = &metav1.LabelSelector{MatchLabels: w.labels()}
	})
	w.awaitCondition(v1alpha1.ReasonSynced)
	w.awaitHostClaim("after")
}

// A class may go between the provider's check and its write. What happens then depends on whether the manager has told the
// admission policy; both orders are forced.
func TestClassDeletedBetweenCheckAndWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// told: the policy knows that the class is gone when the claim is created.
		told bool
	}{
		"PolicyNotTold": {reason: "the claim is on the host, says that it is orphaned, and stays"},
		"PolicyTold":    {reason: "the host rejects the claim, and gets it once the class is back", told: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			provider, err := client.New(asUser(hostEnvironment.Config), client.Options{Scheme: hostEnvironment.Scheme})
			w.must(err)
			awaitAdmission := func(class string, allowed bool) {
				t.Helper()
				w.eventually(fmt.Sprintf("the host allows a claim of %s: %t", class, allowed), func(ctx context.Context) error {
					claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster.Namespace, Name: "probe",
						Labels: map[string]string{names.MarkerLabel: w.cluster.Name}}}
					claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{exactly("gpu", class)}
					if err := provider.Create(ctx, claim, client.DryRunAll); (err == nil) != allowed {
						return fmt.Errorf("the answer is %v", err)
					}
					return nil
				})
			}
			awaitAdmission("absent", false) // a new policy takes effect after a while
			awaitAdmission(w.class, true)
			checked, proceeding, told := make(chan struct{}), make(chan struct{}), make(chan struct{})
			p := immortal()
			var once sync.Once
			p.beforeWrite(func(write string) {
				if write == "host create ResourceClaim" {
					once.Do(func() { close(checked); <-proceeding })
				}
			})
			if !tc.told {
				hostManager.beforeWrite(func(string) { <-told })
				t.Cleanup(func() { hostManager.beforeWrite(nil) })
			}
			tell := sync.OnceFunc(func() { close(told) })
			t.Cleanup(tell)
			w.run(p)
			proceed := sync.OnceFunc(func() { close(proceeding) })
			t.Cleanup(proceed)
			w.createClaim("gpu")
			poll.Receive(t, "the provider is about to create the claim", checked)
			w.must(w.host.Delete(t.Context(), w.classObject()))
			if tc.told {
				awaitAdmission(w.class, false)
			}
			proceed()
			if tc.told {
				w.awaitEvent(claims.ReasonRefusedByHost, "gpu", w.class)
			} else {
				w.awaitHostClaim("gpu")
				tell()
				w.awaitEvent(claims.ReasonOrphaned, "gpu", w.class)
			}
			w.awaitGone(w.tenant, w.classObject())
			if claim := w.hostClaim("gpu"); (claim == nil) != tc.told || claim != nil && !claim.DeletionTimestamp.IsZero() {
				t.Errorf("the claim on the host is %v, %s", claim, tc.reason)
			}
			w.createClass(w.class, nil)
			w.awaitClass(w.class, nil)
			w.allocate(w.awaitHostClaim("gpu"), "gpu-0")
			w.awaitStatus("gpu", "")
		})
	}
}

func TestClaimWith32Requests(t *testing.T) {
	w := newFixture(t)
	w.run()
	var requests []resourcev1.DeviceRequest
	for i := range 32 {
		name := fmt.Sprintf("r%d", i)
		if i%2 == 0 {
			requests = append(requests, exactly(name, w.class))
		} else {
			requests = append(requests, firstOf(name, w.class, w.class, w.class, w.class, w.class, w.class, w.class, w.class))
		}
	}
	w.createClaim("big", requests...)
	if got := len(w.awaitHostClaim("big").Spec.Devices.Requests); got != 32 {
		t.Errorf("the host has %d requests", got)
	}
	// One class of 144 that is not allowed is enough.
	requests[31].FirstAvailable[7].DeviceClassName = "vip"
	w.createClaim("too-big", requests...)
	w.awaitEvent(claims.ReasonClassNotAllowed, "too-big", "Device class vip")
}

func TestLongestName(t *testing.T) {
	w := newFixture(t)
	w.run()
	name, near := strings.Repeat("c", 253), strings.Repeat("c", 252)
	w.createClaim(name)
	w.createClaim(near)
	first, second := w.awaitHostClaim(name), w.awaitHostClaim(near)
	if first.Name == second.Name || len(first.Name) > 63 {
		t.Errorf("the names are %s and %s", first.Name, second.Name)
	}
	tenantPod, hostPod := w.createPod("train")
	w.allocate(first, "gpu-0", hostPod)
	w.awaitStatus(name, "", tenantPod)
	for _, name := range []string{name, near} {
		w.must(w.tenant.Delete(t.Context(), w.tenantClaim(name)))
	}
	w.deallocate(first)
	w.awaitGone(w.host, first)
	w.awaitGone(w.host, second)
}

// What could be read as another object is refused.
func TestAmbiguousName(t *testing.T) {
	w := newFixture(t)
	w.run()
	w.createClaim("a-x-b")
	w.awaitEvent(claims.ReasonInvalidName, "a-x-b", "a-x-b-x-"+w.namespace+"-x-blue", `without "-x-"`)
	claim := w.tenantClaim("a-x-b")
	if len(claim.Finalizers) > 0 {
		t.Errorf("it has finalizers %v", claim.Finalizers)
	}
	w.must(w.tenant.Delete(t.Context(), claim))
	w.awaitGone(w.tenant, claim)
}

// An object on the host with our labels that we have not created is never adopted, changed or deleted.
func TestNameTakenOnHost(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		forge  func(w *fixture, forged *resourcev1.ResourceClaim, real names.Metadata)
	}{
		"Labels": {"labels alone", func(_ *fixture, forged *resourcev1.ResourceClaim, real names.Metadata) { forged.Labels = real.Labels }},
		"AnotherUID": {"the copy of an object that there was, by another syncer",
			func(_ *fixture, forged *resourcev1.ResourceClaim, real names.Metadata) {
				forged.Labels, forged.Annotations = real.Labels, real.Annotations
				forged.Annotations[names.UIDAnnotation] = "00000000-0000-0000-0000-000000000000"
			}},
		"Everything": {"all our marks without our finalizer, as another syncer would make it",
			func(_ *fixture, forged *resourcev1.ResourceClaim, real names.Metadata) {
				forged.Labels, forged.Annotations = real.Labels, real.Annotations
			}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			claim := w.createClaim("gpu")
			key := client.ObjectKey{Namespace: w.cluster.Namespace, Name: w.hostName("gpu")}
			forged := &resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
				Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{exactly("other",
					"other")}}},
			}
			tc.forge(w, forged, names.HostMetadata(claim, names.ClaimKind, key, w.cluster.Name,
				names.Metadata{}))
			w.must(w.host.Create(t.Context(), forged))
			version := forged.ResourceVersion
			w.run()
			w.awaitEvent(claims.ReasonNameTaken, "gpu", key.Name, "is not its copy")
			if got := w.tenantClaim("gpu"); got.Status.Allocation != nil || len(got.Finalizers) > 0 {
				t.Errorf("%s: the tenant's claim is %v", tc.reason, got)
			}
			w.must(w.tenant.Delete(t.Context(), claim))
			w.awaitGone(w.tenant, claim)
			// Something else has been done since, so there was time to delete it.
			w.createClaim("later")
			w.awaitHostClaim("later")
			w.must(w.host.Get(t.Context(), key, forged))
			if forged.ResourceVersion != version || !forged.DeletionTimestamp.IsZero() {
				t.Errorf("%s: it has been touched: %v", tc.reason, forged.ManagedFields)
			}
			// Once it is gone, the name is free.
			again := w.createClaim("gpu")
			w.must(w.host.Delete(t.Context(), forged))
			w.eventually("the claim has its copy", func(context.Context) error {
				if copied := w.hostClaim("gpu"); copied == nil || copied.Annotations[names.UIDAnnotation] != string(again.UID) {
					return fmt.Errorf("it is %v", copied)
				}
				return nil
			})
		})
	}
}

// A tenant whose API is away for a while loses nothing, and neither does the host.
func TestTenantAPIOutage(t *testing.T) {
	for name, away := range map[string]error{
		"Unavailable": apierrors.NewServiceUnavailable("the tenant is away"),
		// What a server answers that does not know the kind, while it starts.
		"KindUnknown": apierrors.NewGenericServerResponse(404, "GET", resourcev1.Resource("resourceclaims"), "gpu", "404 page not found", 0,
			true),
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			p := immortal()
			w.run(p)
			w.createClaim("gpu")
			copied := w.awaitHostClaim("gpu")
			w.awaitClass(w.class, nil)
			p.cutOff(away)
			tenantPod, hostPod := w.createPod("train")
			w.allocate(copied, "gpu-0", hostPod)
			w.createClaim("later")
			change(w, w.host, w.classObject(), func(class *resourcev1.DeviceClass) { class.Spec.Selectors = nil })
			p.cutOff(nil)
			w.awaitStatus("gpu", "", tenantPod)
			w.awaitHostClaim("later")
			w.awaitClass(w.class, func(class *resourcev1.DeviceClass) error {
				if len(class.Spec.Selectors) > 0 {
					return fmt.Errorf("it has selectors")
				}
				return nil
			})
			for _, write := range p.written() {
				if strings.Contains(write, "delete") {
					t.Errorf("there was a %s", write)
				}
			}
		})
	}
}

// The copy of a claim that was deleted in the tenant by force while the provider was down is deleted.
func TestForceDeletedClaim(t *testing.T) {
	w := newFixture(t)
	stop := w.run()
	claim := w.createClaim("gpu")
	copied := w.awaitHostClaim("gpu")
	template := w.createTemplate("one-gpu")
	w.eventually("the template is held", func(ctx context.Context) error {
		if err := w.tenant.Get(ctx, client.ObjectKeyFromObject(template), template); err != nil || len(template.Finalizers) == 0 {
			return fmt.Errorf("it is not, %v", err)
		}
		return nil
	})
	stop()
	change(w, w.tenant, claim, func(claim *resourcev1.ResourceClaim) { claim.Finalizers = nil })
	w.must(w.tenant.Delete(t.Context(), claim))
	// Another of the same name has come since.
	again := w.createClaim("gpu")
	w.run()
	w.eventually("the new claim has a copy of its own", func(context.Context) error {
		if now := w.hostClaim("gpu"); now == nil || now.UID == copied.UID || now.Annotations[names.UIDAnnotation] != string(again.UID) {
			return fmt.Errorf("it is %v", now)
		}
		return nil
	})
}
