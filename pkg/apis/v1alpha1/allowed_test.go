// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "testing"

func TestAllows(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		allowed *[]string
		want    bool
	}{
		"Unset":         {"a tenant without a list may have everything", nil, true},
		"Empty":         {"an empty list is a list with nothing on it", &[]string{}, false},
		"ByName":        {"the type itself is listed", &[]string{"cpu", "h100-8x"}, true},
		"ByProvider":    {"all types of its provider are listed", &[]string{"metal.*"}, true},
		"OtherProvider": {"the star is for that provider only", &[]string{"other.*"}, false},
		"Prefix":        {"the name before the star is a whole name", &[]string{"met.*", "h100.*", "*"}, false},
		"ProviderName":  {"a provider without the star is the name of a type", &[]string{"metal"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &TenantCluster{Spec: TenantClusterSpec{AllowedNodeTypes: tc.allowed}}
			if got := cluster.Allows("h100-8x", "metal"); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
