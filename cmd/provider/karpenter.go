// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	karpenteroptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

// karpenterOwn are the flags of Karpenter's core that this binary has. The others configure what this binary does itself
// instead of core's operator: clients, logs, ports, leader election.
var karpenterOwn = []string{
	"batch-max-duration", "batch-idle-duration", "preference-policy", "min-values-policy",
	"ignore-dra-requests", "cpu-requests", "disable-cluster-state-observability", legacyRepair, schedulerConfig,
}

const (
	legacyRepair            = "legacy-node-repair"
	legacyRepairEnvironment = "LEGACY_NODE_REPAIR"

	schedulerConfig            = "scheduler-config"
	schedulerConfigEnvironment = "SCHEDULER_CONFIG"
)

// karpenterFlags are core's flags, with core's environment variables, and its defaults but for two.
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
	// Core ignores pods with resource claims by default.
	result.setDefault(ignoreDRA, ignoreDRAEnvironment, "false")
	// Core's newer repair waits for a server that replaces the broken one, and servers are finite.
	result.setDefault(legacyRepair, legacyRepairEnvironment, "true")
	return result
}

// setDefault changes the default of a boolean flag. The flag and core's environment variable win.
func (k karpenterFlags) setDefault(name, environment, value string) {
	flag := k.flags.Lookup(name)
	if flag == nil || os.Getenv(environment) != "" {
		return
	}
	flag.DefValue = value
	// Any boolean is valid.
	_ = flag.Value.Set(value)
}

// featureGatesEnvironment is core's variable for feature gates. The flag wins, and so does the variable that stands in for it.
const featureGatesEnvironment = "FEATURE_GATES"

// readFeatureGates reads core's variable if nothing else has set gates.
func (o *options) readFeatureGates() error {
	text := os.Getenv(featureGatesEnvironment)
	if text == "" || o.gates.IsSet() {
		return nil
	}
	if err := o.gates.Set(text); err != nil {
		return fmt.Errorf("environment variable %s has the wrong value %q, %w", featureGatesEnvironment, text, err)
	}
	return nil
}

func (k karpenterFlags) addTo(flags *pflag.FlagSet) {
	for _, name := range karpenterOwn {
		if found := k.flags.Lookup(name); found != nil {
			flags.AddGoFlag(found)
		}
	}
}

// options parses the flags, which core validates. Feature gates come from this binary's own flag, which has core's too.
func (k karpenterFlags) options(gates *operator.FeatureGates) (*karpenteroptions.Options, error) {
	// Core's error names neither the flag nor the variable, nor that the document is not the scheduler's own.
	if _, err := karpenteroptions.ParseSchedulerConfiguration(k.flags.Lookup(schedulerConfig).Value.String()); err != nil {
		return nil, fmt.Errorf("--%s (or %s), %w: it is a document such as {podTopologySpread: {defaultConstraints: [{topologyKey: rack, "+
			"maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]}}, and not a KubeSchedulerConfiguration", schedulerConfig,
			schedulerConfigEnvironment, err)
	}
	if err := k.values.Parse(k.flags); err != nil {
		return nil, fmt.Errorf("flags of Karpenter, %w", err)
	}
	k.values.FeatureGates = karpenter.CoreGates(gates.Enabled)
	return k.values, nil
}
