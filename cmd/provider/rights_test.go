// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	karpenteroptions "sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
)

const spreadByRack = `{"podTopologySpread":{"defaultConstraints":[{"topologyKey":"rack","maxSkew":1,"whenUnsatisfiable":"DoNotSchedule"}]}}`

// TestSchedulerConfig: core's flag and core's variable are read, and the flag wins.
func TestSchedulerConfig(t *testing.T) {
	const byZone = "podTopologySpread: {defaultConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}]}"
	for name, tc := range map[string]struct {
		reason, environment, flag string
		want                      string
	}{
		"None":        {reason: "the scheduler has defaults of its own, which are preferences"},
		"Empty":       {reason: "a document without constraints needs no rights", flag: "podTopologySpread: {}"},
		"Flag":        {reason: "as Karpenter has it", flag: spreadByRack, want: "rack"},
		"Environment": {reason: "Karpenter's chart sets the variable", environment: byZone, want: "zone"},
		"Both":        {reason: "the command line is nearer", environment: byZone, flag: spreadByRack, want: "rack"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(schedulerConfigEnvironment, tc.environment)
			o := defaultOptions()
			if tc.flag != "" {
				if err := o.karpenter.flags.Set(schedulerConfig, tc.flag); err != nil {
					t.Fatal(err)
				}
			}
			got, err := o.karpenter.options(o.gates)
			if err != nil {
				t.Fatal(err)
			}
			if spreadsByDefault(got) != (tc.want != "") ||
				tc.want != "" && got.SchedulerConfig.PodTopologySpread.DefaultConstraints[0].TopologyKey != tc.want {
				t.Errorf("%s: got %+v, want a constraint by %q", tc.reason, got.SchedulerConfig, tc.want)
			}
			if needed := len(optionalReads(got)); (needed > 0) != (tc.want != "") {
				t.Errorf("%s: %d groups of resources are read for options", tc.reason, needed)
			}
		})
	}
}

// TestRightsOfOptions: the error about a missing right sends people to config/rbac, which must have what the options need, under the name
// that the API server gives it.
func TestRightsOfOptions(t *testing.T) {
	content, err := rbac.Files.ReadFile("provider-tenant.yaml")
	if err != nil {
		t.Fatal(err)
	}
	given := sets.New[string]()
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		role := &rbacv1.ClusterRole{}
		if err := yaml.Unmarshal([]byte(document), role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if !sets.New(rule.Verbs...).HasAll("list", "watch") {
				continue
			}
			for _, resource := range rule.Resources {
				given.Insert(resource + "." + rule.APIGroups[0])
			}
		}
	}
	config, err := karpenteroptions.ParseSchedulerConfiguration(spreadByRack)
	if err != nil {
		t.Fatal(err)
	}
	all := &karpenteroptions.Options{SchedulerConfig: config, FeatureGates: karpenteroptions.FeatureGates{CapacityBuffer: true}}
	for _, read := range optionalReads(all) {
		for _, resource := range read.resources {
			if !given.Has(resource + "." + read.group) {
				t.Errorf("%s needs to list and watch %s of the API group %q, which the provider may not", read.option, resource, read.group)
			}
		}
	}
}
