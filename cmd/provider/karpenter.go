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

// karpenterOwn lists the flags of Karpenter's core that this binary has. Core's other flags configure clients, logs,
// ports and leader election, which this binary sets up itself instead of core's operator.
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

// karpenterFlags are core's flags with core's environment variables. Two of them have another default than in core.
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
	// Core's default is to ignore pods with resource claims.
	result.setDefault(ignoreDRA, ignoreDRAEnvironment, "false")
	// Core's newer repair waits for a replacement of the broken server, and servers are finite.
	result.setDefault(legacyRepair, legacyRepairEnvironment, "true")
	return result
}

// setDefault changes the default of a boolean flag. The flag and core's environment variable take precedence.
func (k karpenterFlags) setDefault(name, environment, value string) {
	flag := k.flags.Lookup(name)
	if flag == nil || os.Getenv(environment) != "" {
		return
	}
	flag.DefValue = value
	// Set cannot fail: the value is a boolean.
	_ = flag.Value.Set(value)
}

// featureGatesEnvironment is core's variable for feature gates. This binary's flag and its own variable take
// precedence.
const featureGatesEnvironment = "FEATURE_GATES"

// readFeatureGates reads core's variable if neither the flag nor its own variable has set gates.
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

// options parses the flags, and core validates them. Feature gates come from this binary's own flag, which knows
// core's gates, too.
func (k karpenterFlags) options(gates *operator.FeatureGates) (*karpenteroptions.Options, error) {
	// Core's error does not name the flag or the variable, nor say that a KubeSchedulerConfiguration is wrong here.
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
