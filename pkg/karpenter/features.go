// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package karpenter

import (
	"fmt"
	"strings"

	"github.com/awslabs/operatorpkg/docs"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// Features of this provider that are not stable. Without one of them, core does what it does elsewhere.
const (
	// GangPlacement plans pods that need each other whole or not at all, in a topology domain that has room for all of them.
	GangPlacement featuregate.Feature = "GangPlacement"
	// RolloutWithoutSpare drains a drifted node first where there is no server for its replacement.
	RolloutWithoutSpare featuregate.Feature = "RolloutWithoutSpare"
)

// staticCapacity is core's gate for static NodePools.
var staticCapacity = featuregate.Feature(options.StaticCapacityFeatureGate.Name)

// Features are this provider's and core's, which has a flag for its own that says nothing of a wrong name. They have core's defaults and
// stages but for StaticCapacity: TenantClusters have static pools.
func Features() map[featuregate.Feature]featuregate.FeatureSpec {
	features := map[featuregate.Feature]featuregate.FeatureSpec{}
	for _, gate := range options.KarpenterFeatureGates {
		spec := featuregate.FeatureSpec{Default: gate.Default, PreRelease: featuregate.Alpha}
		if gate.Stage == docs.Beta {
			spec.PreRelease = featuregate.Beta
		}
		features[featuregate.Feature(gate.Name)] = spec
	}
	for _, feature := range []featuregate.Feature{GangPlacement, RolloutWithoutSpare, staticCapacity} {
		features[feature] = featuregate.FeatureSpec{Default: true, PreRelease: featuregate.Beta}
	}
	return features
}

// CoreGates are core's, in core's own form.
func CoreGates(enabled func(featuregate.Feature) bool) options.FeatureGates {
	var text []string
	for _, gate := range options.KarpenterFeatureGates {
		text = append(text, fmt.Sprintf("%s=%t", gate.Name, enabled(featuregate.Feature(gate.Name))))
	}
	// Core's names and booleans are valid.
	gates, _ := options.ParseFeatureGates(strings.Join(text, ","))
	// It would delete nodes that are not recorded, and keep static pools from servers that are free.
	gates.TerminateFirstDrift = gates.TerminateFirstDrift && !enabled(RolloutWithoutSpare)
	return gates
}
