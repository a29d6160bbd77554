// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestStandAlone(t *testing.T) {
	tenant := func(name string, policy v1alpha1.StandAlonePolicy, deleting bool) *v1alpha1.TenantCluster {
		tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		tenant.Spec.StandAloneMachines = policy
		if deleting {
			tenant.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		return tenant
	}
	const allowed, forbidden = v1alpha1.StandAloneAllowed, v1alpha1.StandAloneForbidden
	labelled := map[string]string{v1alpha1.StandAloneMachinesLabelKey: v1alpha1.StandAloneMachinesLabelValue}
	for name, tc := range map[string]struct {
		reason  string
		names   string
		tenants []*v1alpha1.TenantCluster
		labels  map[string]string
		charged string
		problem string
	}{
		"Named": {"it says whose it is", "red", []*v1alpha1.TenantCluster{tenant("blue", allowed, false), tenant("red", "", false)}, nil,
			"red", ""},
		"NamedMissing": {"the tenant may be created later", "green", []*v1alpha1.TenantCluster{tenant("blue", allowed, false)}, nil, "", ""},
		"Alone":        {"the platform has not allowed it", "", nil, map[string]string{"other": "allowed"}, "", "does not have the label"},
		"OtherValue": {"the value is part of it", "", nil, map[string]string{v1alpha1.StandAloneMachinesLabelKey: "no"}, "",
			"does not have the label"},
		"Labelled": {"the platform has allowed it", "", nil, labelled, "", ""},
		"ByDefault": {"nothing is allowed, and what it has from before is charged all the same", "",
			[]*v1alpha1.TenantCluster{tenant("blue", "", false)}, nil, "blue", "no TenantCluster in namespace team has"},
		"LabelledTenant": {"the label is for namespaces without tenants", "", []*v1alpha1.TenantCluster{tenant("blue", forbidden, false)},
			labelled, "blue", "no TenantCluster in namespace team has"},
		"Allowed": {"one allows it", "", []*v1alpha1.TenantCluster{tenant("a", forbidden, false), tenant("blue", allowed, false)}, nil,
			"blue", ""},
		"AllowedDeleting": {"it is released with the one that it is charged to", "",
			[]*v1alpha1.TenantCluster{tenant("a", forbidden, false), tenant("blue", allowed, true)}, nil, "blue", ""},
		"Several": {"whose it is, is not clear", "", []*v1alpha1.TenantCluster{tenant("red", allowed, false), tenant("blue", allowed, false)},
			nil, "blue", "TenantClusters blue and red in namespace team both have"},
		"OtherDeleting": {"it is not released with a tenant that may have nothing to do with it", "",
			[]*v1alpha1.TenantCluster{tenant("a", "", true), tenant("blue", "", false)}, nil, "blue", "no TenantCluster"},
		"AllDeleting": {"nothing outlives the last", "", []*v1alpha1.TenantCluster{tenant("red", "", true), tenant("blue", "", true)}, nil,
			"blue", "no TenantCluster"},
	} {
		t.Run(name, func(t *testing.T) {
			asking := machine("m", tc.names, "")
			got := ""
			if to := ChargedTo(&asking, tc.tenants); to != nil {
				got = to.Name
			}
			if got != tc.charged {
				t.Errorf("%s: charged to %q, want %q", tc.reason, got, tc.charged)
			}
			if problem := StandAloneProblem(&asking, tc.tenants, tc.labels); (problem == "") != (tc.problem == "") ||
				!strings.Contains(problem, tc.problem) {
				t.Errorf("%s: problem %q, want %q", tc.reason, problem, tc.problem)
			}
		})
	}
}
