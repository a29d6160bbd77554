// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMapping(t *testing.T) {
	host := map[string]string{"rack": "r1", "datacenter": "dc1", "room": "room-2", "country": "de", "nvlink-domain": ""}
	type labels = map[string]string
	for name, tc := range map[string]struct {
		reason  string
		entries []string
		labels  labels
		zone    string
	}{
		"Default": {"as it was before there was a mapping; an empty value is none", Defaults(), labels{"rack": "r1", "datacenter": "dc1"}, "dc1"},
		"None":    {"the zone does not depend on what nodes inherit", nil, labels{}, "dc1"},
		"Other":   {"under another key alone", []string{"rack=fabric.topograph.run/tier-0"}, labels{"fabric.topograph.run/tier-0": "r1"}, "dc1"},
		"Several": {"under each of the keys",
			[]string{"rack", "rack=network.topology.nvidia.com/leaf", "rack=cloud.provider.com/topology-rack", "rack"},
			labels{"rack": "r1", "network.topology.nvidia.com/leaf": "r1", "cloud.provider.com/topology-rack": "r1"}, "dc1"},
		"Region": {"a label that Kubernetes knows", []string{"country=topology.kubernetes.io/region"},
			labels{"topology.kubernetes.io/region": "de"}, "dc1"},
		"Zone": {"it takes the place of the data center", []string{"datacenter", "room=topology.kubernetes.io/zone"},
			labels{"datacenter": "dc1"}, "room-2"},
		"ZoneThatTheHostLacks": {"a node without a zone cannot be consolidated", []string{"hall=topology.kubernetes.io/zone"}, labels{},
			"global"},
	} {
		t.Run(name, func(t *testing.T) {
			mapping, err := Parse(tc.entries)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.labels, mapping.Labels(host)); diff != "" || mapping.Zone(host) != tc.zone {
				t.Errorf("%s: zone %s, want %s; labels (-want +got):\n%s", tc.reason, mapping.Zone(host), tc.zone, diff)
			}
			for key := range tc.labels {
				if !strings.Contains(strings.Join(mapping.Keys(), " ")+" ", key+" ") {
					t.Errorf("the keys %v lack %s", mapping.Keys(), key)
				}
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		entries []string
		want    []string
	}{
		"HostKey": {"no host has it", []string{"the rack"}, []string{`--topology-labels has "the rack": "the rack" is not the key of a label (`,
			"): write HOST-LABEL or HOST-LABEL=NODE-LABEL"}},
		"NodeKey":   {"no node can have it", []string{"rack=a/b/c"}, []string{`"rack=a/b/c": "a/b/c" is not the key of a label (`}},
		"NoNodeKey": {"a typing error", []string{"rack="}, []string{`"rack=": "" is not the key of a label (`}},
		"NoHostKey": {"a typing error", []string{"=rack"}, []string{`"=rack": "" is not the key of a label (`}},
		"TwoSources": {"a node has one value", []string{"rack=leaf", "row=leaf"},
			[]string{`"row=leaf": the label leaf of nodes comes from the label rack of hosts already`}},
		"Hostname": {"each node has its own", []string{"rack=kubernetes.io/hostname"},
			[]string{"the label kubernetes.io/hostname of nodes is set by Kubernetes, Karpenter or this project: choose another"}},
		"Karpenter": {"Karpenter refuses to plan with it", []string{"rack=karpenter.sh/rack"}, []string{"the label karpenter.sh/rack"}},
		"Ours": {"it says how big a server is", []string{"cpus=karpenter.metal3.io/instance-cpu"},
			[]string{"karpenter.metal3.io/instance-cpu"}},
		"TypeLabel": {"it says which types a server matches", []string{"a=type.karpenter.metal3.io/a"}, []string{"type.karpenter.metal3.io/a"}},
		"NodeType":  {"it is the name of the type", []string{"karpenter.metal3.io/node-type"}, []string{"karpenter.metal3.io/node-type"}},
		"BetaRegion": {"Karpenter reads it as another key", []string{"region=failure-domain.beta.kubernetes.io/region"},
			[]string{"failure-domain"}},
		"All": {"what is wrong is said at once", []string{"a b", "rack", "row=rack"}, []string{`"a b"`, `"row=rack"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tc.entries)
			if err == nil {
				t.Fatalf("%v is accepted: %s", tc.entries, tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %q does not contain %q", tc.reason, err, want)
				}
			}
		})
	}
}
