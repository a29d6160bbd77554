// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestCheckOpening(t *testing.T) {
	bound := ptr.To[int64]
	for name, tc := range map[string]struct {
		reason string
		quota  *v1alpha1.Quota
		used   int
		held   []string
		free   int
		says   string // empty if it may
	}{
		"NoQuota": {reason: "all servers may be its own", held: []string{"n0"}, free: 17},
		"First":   {reason: "it must be somewhere", quota: &v1alpha1.Quota{Servers: bound(1)}},
		"Room": {reason: "17 are for it alone", quota: &v1alpha1.Quota{Servers: bound(4)}, used: 1,
			held: []string{"n0"}, free: 17, says: "n0, where 17"},
		"Exactly": {reason: "the domain is as big as the quota", quota: &v1alpha1.Quota{Servers: bound(18)}, used: 1,
			held: []string{"n0"}, free: 17, says: "n0"},
		"OneMore": {reason: "the last of its quota is in no domain of 18", quota: &v1alpha1.Quota{Servers: bound(19)},
			used: 1, held: []string{"n0"}, free: 17},
		"Elsewhere": {reason: "servers outside of domains count in the quota",
			quota: &v1alpha1.Quota{Servers: bound(4)}, used: 3, held: []string{"n0"}, free: 1, says: "n0"},
		"Full": {reason: "nothing is free for it", quota: &v1alpha1.Quota{Servers: bound(4)}, used: 3,
			held: []string{"n0"}},
		"GPUs": {reason: "a server has four of eight", quota: &v1alpha1.Quota{GPUs: bound(8)}, used: 1,
			held: []string{"n0"}, free: 1, says: "n0, where 1"},
		"MoreGPUs": {reason: "a server has four of twelve", quota: &v1alpha1.Quota{GPUs: bound(12)}, used: 1,
			held: []string{"n0"}, free: 1},
		"Domains": {reason: "the platform allows a spread",
			quota: &v1alpha1.Quota{Servers: bound(4), Domains: bound(2)}, used: 1, held: []string{"n0"}, free: 17},
		"DomainsHeld": {reason: "and no more", quota: &v1alpha1.Quota{Domains: bound(2)}, used: 40,
			held: []string{"n0", "n1"}, says: "n0, n1, as many"},
	} {
		tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "prod"}}
		tenant.Spec.Quota = tc.quota
		rest := RestOf(tenant, slices.Repeat([]string{"gb200"}, tc.used), func(string) int64 { return 4 })
		err := rest.CheckOpening("gb200", Opening{Label: "nvlink-domain", Value: "n9", Held: tc.held, Free: tc.free})
		exceeded, refused := err.(*ExceededError)
		if (err != nil) != (tc.says != "") || err != nil && !(refused && exceeded.Elsewhere &&
			strings.HasPrefix(exceeded.Message, "TenantCluster acme/prod has servers in nvlink-domain "+tc.says)) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, err, tc.says)
		}
	}
}
