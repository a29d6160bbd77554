// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	karpenteroptions "sigs.k8s.io/karpenter/pkg/operator/options"
)

// karpenterOwn are the flags of Karpenter's core that this binary has. The others configure what this binary does itself
// instead of core's operator: clients, logs, ports, leader election.
var karpenterOwn = []string{
	"batch-max-duration", "batch-idle-duration", "preference-policy", "min-values-policy", "feature-gates",
	"ignore-dra-requests", "cpu-requests", "disable-cluster-state-observability",
}

// karpenterFlags are core's flags, with core's defaults and environment variables.
type karpenterFlags struct {
	values *karpenteroptions.Options
	flags  *karpenteroptions.FlagSet
}

func newKarpenterFlags() karpenterFlags {
	result := karpenterFlags{
		values: &karpenteroptions.Options{},
		flags:  &karpenteroptions.FlagSet{FlagSet: flag.NewFlagSet("karpenter", flag.ContinueOnError)},
	}
	result.values.AddFlags(result.flags)
	result.defaultGates()
	result.defaultDynamicResources()
	return result
}

// defaultGates turns on the feature gate that this provider needs and core has off. An explicitly set gate wins.
func (k karpenterFlags) defaultGates() {
	gates := k.flags.Lookup(featureGates)
	if gates == nil || strings.Contains(os.Getenv("FEATURE_GATES"), staticCapacity) {
		return
	}
	gates.DefValue = strings.Replace(gates.DefValue, staticCapacity+"=false", staticCapacity+"=true", 1)
	// Any text can be set here. Core validates it when it parses it.
	_ = gates.Value.Set(gates.DefValue)
}

const (
	featureGates = "feature-gates"
	// staticCapacity is the gate of pools with a fixed number of nodes.
	staticCapacity = "StaticCapacity"
)

func (k karpenterFlags) addTo(flags *pflag.FlagSet) {
	for _, name := range karpenterOwn {
		if found := k.flags.Lookup(name); found != nil {
			flags.AddGoFlag(found)
		}
	}
}

// options parses the flags. Core validates them.
func (k karpenterFlags) options() (*karpenteroptions.Options, error) {
	gates := k.flags.Lookup(featureGates)
	named := gates == nil || strings.Contains(gates.Value.String(), staticCapacity) // parsing removes the text
	if err := k.values.Parse(k.flags); err != nil {
		return nil, fmt.Errorf("flags of Karpenter, %w", err)
	}
	if !named {
		k.values.FeatureGates.StaticCapacity = true
	}
	return k.values, nil
}
