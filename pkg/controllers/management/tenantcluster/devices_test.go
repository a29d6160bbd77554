// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantcluster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestAllowedDevices(t *testing.T) {
	class := func(name, kind string) resourcev1.DeviceClass {
		return resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kind": kind}}}
	}
	deleted := class("deleted", "slice")
	deleted.DeletionTimestamp = ptr.To(metav1.Now())
	classes := []resourcev1.DeviceClass{class("z", "slice"), class("whole", "whole"), class("a", "slice"), deleted}
	var many []resourcev1.DeviceClass
	var first []string
	for n := range v1alpha1.MaxAllowedDevices + 44 {
		name := fmt.Sprintf("class-%03d", n)
		many = append(many, class(name, "slice"))
		if n < v1alpha1.MaxAllowedDevices {
			first = append(first, name)
		}
	}
	slices.Reverse(many)
	tenant := func(enabled bool, selector *metav1.LabelSelector, drivers ...string) v1alpha1.TenantCluster {
		tenant := v1alpha1.TenantCluster{}
		tenant.Spec.Sync.FromHost.DeviceClasses.Enabled = enabled
		tenant.Spec.Sync.FromHost.DeviceClasses.Selector = selector
		tenant.Spec.Sync.ToHost.OpaqueConfigDrivers = drivers
		return tenant
	}
	kind := func(value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"kind": value}}
	}
	wrong := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kind", Operator: "Between"}}}
	for name, tc := range map[string]struct {
		reason        string
		tenants       []v1alpha1.TenantCluster
		classes       []resourcev1.DeviceClass
		want, drivers []string
		selected      int
	}{
		"Selector": {reason: "what it selects, sorted, and nothing that is being deleted", classes: classes,
			want: []string{"a", "z"}, selected: 2,
			tenants: []v1alpha1.TenantCluster{tenant(true, kind("slice"))}},
		"NoSelector": {reason: "all of them", classes: classes, want: []string{"a", "whole", "z"}, selected: 3,
			tenants: []v1alpha1.TenantCluster{tenant(true, nil)}},
		"EmptySelector": {reason: "all of them", classes: classes, want: []string{"a", "whole", "z"}, selected: 3,
			tenants: []v1alpha1.TenantCluster{tenant(true, &metav1.LabelSelector{})}},
		"NotEnabled":  {reason: "none while the switch is off", classes: classes, tenants: []v1alpha1.TenantCluster{tenant(false, nil)}},
		"Invalid":     {reason: "none while it is not known", classes: classes, tenants: []v1alpha1.TenantCluster{tenant(true, wrong)}},
		"NothingFits": {reason: "no such class", classes: classes, tenants: []v1alpha1.TenantCluster{tenant(true, kind("nic"))}},
		"NotServed":   {reason: "a host before Kubernetes 1.34", tenants: []v1alpha1.TenantCluster{tenant(true, nil)}},
		"Several": {reason: "together, each once", classes: classes, want: []string{"a", "whole", "z"}, selected: 3,
			drivers: []string{"gpu", "nic"},
			tenants: []v1alpha1.TenantCluster{tenant(true, kind("slice"), "nic", "gpu"), tenant(true, nil, "gpu"), tenant(true, wrong),
				tenant(false, kind("whole"))}},
		"AnyDriver": {reason: "as the TenantCluster says", drivers: []string{"*"}, tenants: []v1alpha1.TenantCluster{tenant(false, nil, "*")}},
		"TooMany": {reason: "the first by name, whatever the order of the list", classes: many, want: first, selected: len(many),
			tenants: []v1alpha1.TenantCluster{tenant(true, nil)}},
	} {
		t.Run(name, func(t *testing.T) {
			got, selected := allowedDevices(tc.tenants, tc.classes)
			want := &v1alpha1.AllowedDevices{DeviceClasses: tc.want, OpaqueConfigDrivers: tc.drivers}
			if diff := cmp.Diff(want, got); diff != "" || selected != tc.selected {
				t.Errorf("%s: %d are selected, want %d (-want +got):\n%s", tc.reason, selected, tc.selected, diff)
			}
		})
	}
}
