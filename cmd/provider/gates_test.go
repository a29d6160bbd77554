// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

func TestFeatureGates(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, environment, flag string
		static, rollout           bool
		problem                   string
	}{
		"Default":     {reason: "TenantClusters have static pools", static: true, rollout: true},
		"OtherGate":   {reason: "another gate does not set this one", flag: "NodeRepair=true", static: true, rollout: true},
		"Core":        {reason: "core's gates are set by the same flag", flag: "StaticCapacity=false", rollout: true},
		"Ours":        {reason: "and so are ours", flag: "RolloutWithoutSpare=false", static: true},
		"Environment": {reason: "core's variable is as good as the flag", environment: "StaticCapacity=false", rollout: true},
		"OtherByEnv":  {reason: "and so for other gates", environment: "NodeRepair=true", static: true, rollout: true},
		"FlagWins": {reason: "the command line is nearer", environment: "StaticCapacity=false", flag: "NodeRepair=true", static: true,
			rollout: true},
		"Stage": {reason: "all of one stage", flag: "AllBeta=false"},
		"Unknown": {reason: "a typing error must not be taken for a feature that is off", flag: "CapacityBuffers=true",
			problem: "CapacityBuffer=true|false (ALPHA"},
		"UnknownByEnv": {reason: "the error names the variable", environment: "Gangs=true",
			problem: `environment variable FEATURE_GATES has the wrong value "Gangs=true"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(featureGatesEnvironment, tc.environment)
			o := defaultOptions()
			o.namespace, o.tenantCluster = "acme", "acme"
			var err error
			if tc.flag != "" {
				err = o.gates.Set(tc.flag)
			}
			if err == nil {
				_, err = o.complete()
			}
			if tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			core := karpenter.CoreGates(o.gates.Enabled)
			if core.StaticCapacity != tc.static || o.gates.Enabled(karpenter.RolloutWithoutSpare) != tc.rollout {
				t.Errorf("%s: StaticCapacity is %v, and RolloutWithoutSpare %v", tc.reason, core.StaticCapacity,
					o.gates.Enabled(karpenter.RolloutWithoutSpare))
			}
			if want := tc.flag != "AllBeta=false"; core.ReservedCapacity != want {
				t.Errorf("ReservedCapacity is %v: without it, claims would be made for servers that there are not", core.ReservedCapacity)
			}
		})
	}
}

// TestFeatureGatesHelp: --help has all gates with their stages and defaults.
func TestFeatureGatesHelp(t *testing.T) {
	command := operator.NewCommand(operator.Command{Name: name, Flags: defaultOptions().addFlags})
	var help bytes.Buffer
	command.SetOut(&help)
	command.SetArgs([]string{"--help"})
	if err := command.Execute(); err != nil {
		t.Fatal(err)
	}
	for feature := range karpenter.Features() {
		if !strings.Contains(help.String(), string(feature)+"=true|false (") {
			t.Errorf("it does not name %s:\n%s", feature, help.String())
		}
	}
}
