// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestValidateLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		values map[string]string
		want   []string
	}{
		"Nothing": {reason: "nothing is wrong with nothing"},
		"Labels":  {reason: "what a label can be", values: map[string]string{"rack": "r1", "example.com/team": "a,b", "any": "*", "gone": ""}},
		"FreeText": {reason: "they have a form of their own",
			values: map[string]string{v1alpha1.PropertyUserData: "#cloud-config\n", v1alpha1.PropertyNetworkCIDR: "10.0.0.1/24"}},
		"Reference": {reason: "the reference has it for other providers, and it has no effect here",
			values: map[string]string{"kubevirt." + v1alpha1.ReferenceDomain + "/image": "docker.io/example/noble"}},
		"Keys": {reason: "a label has no such key", values: map[string]string{"gpu model": "h100", "/x": "y"},
			want: []string{"/x", "gpu model"}},
		"Values": {reason: "a label has no such value",
			values: map[string]string{"rack": "r 1", "list": "a, b ,c d", "long": strings.Repeat("x", 64)}, want: []string{"list", "long", "rack"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range Merge(Layer{"Machine a/m", tc.values}).ValidateLabels() {
				got = append(got, keyOf(err))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestLabelValues(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, key, value string
		want               []string
		any                bool
	}{
		"One":        {reason: "a label", key: "team", value: "ml", want: []string{"ml"}},
		"Several":    {reason: "separated by commas", key: "team", value: "ml, web", want: []string{"ml", "web"}},
		"Any":        {reason: "a type for all teams", key: "team", value: "*", any: true},
		"AnyOfMany":  {reason: "the others say nothing more", key: "team", value: "ml,*", any: true},
		"Empty":      {reason: "it is not set", key: "team"},
		"Unsafe":     {reason: "no node could have it", key: "team", value: "ml,the best"},
		"Key":        {reason: "no label has such a key", key: "a team", value: "ml"},
		"OSImage":    {reason: "a name can be a label", key: v1alpha1.PropertyOSImage, value: "ubuntu", want: []string{"ubuntu"}},
		"SSHKeys":    {reason: "a list of objects", key: v1alpha1.PropertySSHKeys, value: "alice,bob"},
		"ServerName": {reason: "a pin is for one Machine", key: v1alpha1.PropertyServerName, value: "server-01"},
	} {
		t.Run(name, func(t *testing.T) {
			got, any := LabelValues(tc.key, tc.value)
			if diff := cmp.Diff(tc.want, got); diff != "" || any != tc.any {
				t.Errorf("%s: any is %t, want %t, values (-want +got):\n%s", tc.reason, any, tc.any, diff)
			}
		})
	}
}
