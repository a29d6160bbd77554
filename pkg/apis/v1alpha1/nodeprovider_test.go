// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"testing"
)

func TestExclusiveTopology(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		topology []TopologyKey
		want     []string
	}{
		"Default": {"GPUs of an NVLink domain reach each other's memory", nil, []string{NVLinkDomainLabelKey}},
		"Allowed": {"the operator has partitioned the fabric", []TopologyKey{{NVLinkDomainLabelKey, SharedFabricAllowed}}, nil},
		"Stated": {"the default may be written down", []TopologyKey{{NVLinkDomainLabelKey, SharedFabricForbidden}},
			[]string{NVLinkDomainLabelKey}},
		"Another": {"it is one more", []TopologyKey{{"rack", SharedFabricForbidden}}, []string{NVLinkDomainLabelKey, "rack"}},
		"Replaced": {"each label has its own",
			[]TopologyKey{{NVLinkDomainLabelKey, SharedFabricAllowed}, {"pkey", SharedFabricForbidden}}, []string{"pkey"}},
		"Useless": {"all others are allowed anyway", []TopologyKey{{"rack", SharedFabricAllowed}}, []string{NVLinkDomainLabelKey}},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := &Metal3Fleet{Topology: tc.topology}
			if got := fleet.ExclusiveTopology(); !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
