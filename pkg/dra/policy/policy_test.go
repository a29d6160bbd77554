// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func sync(enabled bool, selector *metav1.LabelSelector, hidden ...v1alpha1.DeviceClassPart) *v1alpha1.DeviceClassSync {
	return &v1alpha1.DeviceClassSync{SyncSwitch: v1alpha1.SyncSwitch{Enabled: enabled}, Selector: selector, Hidden: hidden}
}

func matching(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func TestPolicy(t *testing.T) {
	gold := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Labels: map[string]string{"tier": "gold"}}}
	going := gold.DeepCopy()
	going.DeletionTimestamp = ptr.To(metav1.Now())
	for name, tc := range map[string]struct {
		reason  string
		sync    *v1alpha1.DeviceClassSync
		class   *resourcev1.DeviceClass
		want    bool
		wantErr string
	}{
		"Disabled":    {"off by default", sync(false, nil), gold, false, ""},
		"NoSelector":  {"all, if there is none", sync(true, nil), gold, true, ""},
		"Empty":       {"an empty one is none", sync(true, &metav1.LabelSelector{}), gold, true, ""},
		"Labels":      {"it matches", sync(true, &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}), gold, true, ""},
		"OtherLabels": {"it does not", sync(true, &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "tin"}}), gold, false, ""},
		"Expression":  {"it matches", sync(true, matching("tier", "In", "tin", "gold")), gold, true, ""},
		"NotIn":       {"it does not", sync(true, matching("tier", "NotIn", "gold")), gold, false, ""},
		"Missing":     {"the host has no such class", sync(true, nil), nil, false, ""},
		"Going":       {"it is about to be missing", sync(true, nil), going, false, ""},
		"BadOperator": {"it says nothing", sync(true, matching("tier", "Like", "g")), gold, false,
			`"Like" is not a valid label selector operator`},
		"BadKey":   {"it says nothing", sync(true, matching("a b", "Exists")), gold, false, "spec.sync.fromHost.deviceClasses.selector"},
		"NoValues": {"it says nothing", sync(true, matching("tier", "In")), gold, false, "correct it"},
	} {
		t.Run(name, func(t *testing.T) {
			policy, err := NewPolicy(tc.sync)
			if (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("%s: got error %v, want one with %q", tc.reason, err, tc.wantErr)
			}
			if got := policy.Allows(tc.class); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestForTenant(t *testing.T) {
	class := &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: "gpu", UID: types.UID("u"), ResourceVersion: "7", Generation: 3, Finalizers: []string{"f"},
			Labels:          map[string]string{"tier": "gold"},
			Annotations:     map[string]string{"note": "n", corev1.LastAppliedConfigAnnotation: "{}"},
			OwnerReferences: []metav1.OwnerReference{{Name: "operator"}}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		Spec: resourcev1.DeviceClassSpec{
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: "true"}}},
			Config: []resourcev1.DeviceClassConfiguration{
				{DeviceConfiguration: resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: "d"}}},
			},
			ExtendedResourceName: ptr.To("example.com/gpu"),
		},
	}
	full := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Labels: class.Labels,
		Annotations: map[string]string{"note": "n"}}, Spec: class.Spec}
	for name, tc := range map[string]struct {
		reason string
		hidden []v1alpha1.DeviceClassPart
		change func(*resourcev1.DeviceClass)
	}{
		"Nothing": {"what is about the host's object, and kubectl's copy of everything, never pass", nil, func(*resourcev1.DeviceClass) {}},
		"Config": {"it may have host details", []v1alpha1.DeviceClassPart{v1alpha1.DeviceClassConfig},
			func(c *resourcev1.DeviceClass) { c.Spec.Config = nil }},
		"Selectors": {"they may have host details", []v1alpha1.DeviceClassPart{v1alpha1.DeviceClassSelectors},
			func(c *resourcev1.DeviceClass) { c.Spec.Selectors = nil }},
		"Labels": {"they may name tenants", []v1alpha1.DeviceClassPart{v1alpha1.DeviceClassLabels},
			func(c *resourcev1.DeviceClass) { c.Labels = nil }},
		"Annotations": {"they may be the platform's", []v1alpha1.DeviceClassPart{v1alpha1.DeviceClassAnnotations},
			func(c *resourcev1.DeviceClass) { c.Annotations = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			policy, err := NewPolicy(sync(true, nil, tc.hidden...))
			if err != nil {
				t.Fatal(err)
			}
			want, stored := full.DeepCopy(), class.DeepCopy()
			tc.change(want)
			if diff := cmp.Diff(want, policy.ForTenant(class)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(stored, class); diff != "" {
				t.Errorf("the host's class has been changed:\n%s", diff)
			}
		})
	}
}

func TestClaimsOfClasses(t *testing.T) {
	spec := func(requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaimSpec {
		return &resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}
	}
	exactly := func(class string, admin *bool) resourcev1.DeviceRequest {
		return resourcev1.DeviceRequest{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AdminAccess: admin, Count: 2}}
	}
	either := func(classes ...string) resourcev1.DeviceRequest {
		request := resourcev1.DeviceRequest{Name: "r"}
		for _, class := range classes {
			request.FirstAvailable = append(request.FirstAvailable, resourcev1.DeviceSubRequest{DeviceClassName: class})
		}
		return request
	}
	for name, tc := range map[string]struct {
		reason  string
		spec    *resourcev1.ResourceClaimSpec
		classes []string
		admin   bool
		onHost  *resourcev1.ResourceClaimSpec
	}{
		"None": {"nothing is asked for", spec(), nil, false, spec()},
		"Exactly": {"each request", spec(exactly("b", nil), exactly("a", nil)), []string{"a", "b"}, false,
			spec(exactly("b", nil), exactly("a", nil))},
		"Twice": {"each class once", spec(exactly("a", nil), exactly("a", nil)), []string{"a"}, false,
			spec(exactly("a", nil), exactly("a", nil))},
		"Either": {"every alternative may be the one", spec(either("a", "c"), exactly("b", nil)), []string{"a", "b", "c"}, false,
			spec(either("a", "c"), exactly("b", nil))},
		"Admin": {"it is never passed on", spec(exactly("a", ptr.To(true)), either("b")), []string{"a", "b"}, true,
			spec(exactly("a", nil), either("b"))},
		"NoAdmin": {"not even that it is not wanted", spec(exactly("a", ptr.To(false))), []string{"a"}, false, spec(exactly("a", nil))},
	} {
		t.Run(name, func(t *testing.T) {
			stored := tc.spec.DeepCopy()
			if diff := cmp.Diff(tc.classes, Classes(tc.spec)); diff != "" {
				t.Errorf("%s: classes (-want +got):\n%s", tc.reason, diff)
			}
			onHost := ForHost(tc.spec)
			if diff := cmp.Diff(tc.onHost, &onHost); diff != "" {
				t.Errorf("%s: on the host (-want +got):\n%s", tc.reason, diff)
			}
			if got := WantsAdminAccess(tc.spec); got != tc.admin {
				t.Errorf("%s: admin access %v, want %v", tc.reason, got, tc.admin)
			}
			if diff := cmp.Diff(stored, tc.spec); diff != "" {
				t.Errorf("the tenant's claim has been changed:\n%s", diff)
			}
		})
	}
}

func TestMaxCopies(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		quota  *v1alpha1.Quota
		most   *int64
		want   int
	}{
		"NoQuota":    {reason: "a bound by default", want: leastCopies},
		"OtherQuota": {reason: "it says nothing of servers", quota: &v1alpha1.Quota{GPUs: ptr.To[int64](800)}, want: leastCopies},
		"SmallQuota": {reason: "tests and services have claims as well", quota: &v1alpha1.Quota{Servers: ptr.To[int64](2)}, want: leastCopies},
		"LargeQuota": {reason: "each slice of each GPU, and as many again", quota: &v1alpha1.Quota{Servers: ptr.To[int64](100)}, want: 6400},
		"Said":       {reason: "the platform knows", quota: &v1alpha1.Quota{Servers: ptr.To[int64](100)}, most: ptr.To[int64](5), want: 5},
		"None":       {reason: "the platform knows", most: ptr.To[int64](0), want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.TenantCluster{Spec: v1alpha1.TenantClusterSpec{Quota: tc.quota}}
			if got := Of(cluster).MaxCopies(v1alpha1.ClaimSync{Max: tc.most}); got != tc.want {
				t.Errorf("%s: got %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
}
