// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestStaticCapacityDefault(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, environment, flag string
		want                      bool
	}{
		"Default":     {"TenantClusters have static pools", "", "", true},
		"OtherGate":   {"another gate does not set this one", "", "NodeRepair=true", true},
		"Flag":        {"an explicitly set flag wins", "", "StaticCapacity=false", false},
		"Environment": {"the environment is as good as the flag", "StaticCapacity=false", "", false},
		"OtherByEnv":  {"and so for other gates", "NodeRepair=true", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.environment != "" {
				t.Setenv("FEATURE_GATES", tc.environment)
			}
			flags := newKarpenterFlags()
			if tc.flag != "" {
				if err := flags.flags.Set("feature-gates", tc.flag); err != nil {
					t.Fatal(err)
				}
			}
			options, err := flags.options()
			if err != nil {
				t.Fatal(err)
			}
			if got := options.FeatureGates.StaticCapacity; got != tc.want {
				t.Errorf("%s: StaticCapacity is %v, want %v", tc.reason, got, tc.want)
			}
			if !options.FeatureGates.ReservedCapacity {
				t.Error("ReservedCapacity is off: claims would be made for servers that there are not")
			}
		})
	}
}
