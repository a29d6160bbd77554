// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestReferences(t *testing.T) {
	const userData, networkData = v1alpha1.PropertyUserDataTemplate, v1alpha1.PropertyNetworkDataTemplate
	template := func(property, name string, overridden bool) Reference {
		return Reference{Property: property, Kind: KindMachineConfigTemplate, Name: name, Overridden: overridden}
	}
	for name, tc := range map[string]struct {
		reason string
		values map[string]string
		want   []Reference
	}{
		"None": {reason: "a value of the user's own names nothing", values: map[string]string{"example.com/driver": "570"}},
		"All": {reason: "each property names its kind", values: map[string]string{v1alpha1.PropertyOSImage: "ubuntu",
			v1alpha1.PropertySSHKeys: "me, team,me", userData: "gpu", networkData: "bond"},
			want: []Reference{{Property: v1alpha1.PropertyOSImage, Kind: KindOSImage, Name: "ubuntu"},
				{Property: v1alpha1.PropertySSHKeys, Kind: KindSSHKey, Name: "me"},
				{Property: v1alpha1.PropertySSHKeys, Kind: KindSSHKey, Name: "team"},
				template(userData, "gpu", false), template(networkData, "bond", false)}},
		"Overridden": {reason: "a document of the same object takes the place of a template", values: map[string]string{userData: "gpu",
			v1alpha1.PropertyUserData: "#cloud-config", networkData: "bond", v1alpha1.PropertyNetworkData: "links: []"},
			want: []Reference{template(userData, "gpu", true), template(networkData, "bond", true)}},
		"NoNames": {reason: "what cannot be a name names nothing", values: map[string]string{v1alpha1.PropertyOSImage: "Ubuntu 24",
			v1alpha1.PropertySSHKeys: "me,,team", userData: "a/b", networkData: strings.Repeat("x", 300)}},
		"Removed": {reason: "an empty value takes away what the platform names", values: map[string]string{v1alpha1.PropertyOSImage: "",
			v1alpha1.PropertySSHKeys: "", userData: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Merge(Layer{Source: "Machine a/m", Values: tc.values}).References()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	if got := (Reference{Kind: KindOSImage, Name: "ubuntu"}).String(); got != "OSImage/ubuntu" {
		t.Errorf("the key in an index is %s", got)
	}
}
