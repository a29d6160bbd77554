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

// Features of this provider that are not stable. If one is off, core behaves as it does elsewhere.
const (
	// GangPlacement plans the pods of a gang all or none, in a topology domain that has room for all of them.
	GangPlacement featuregate.Feature = "GangPlacement"
	// RolloutWithoutSpare drains a drifted node first if there is no server for its replacement.
	RolloutWithoutSpare featuregate.Feature = "RolloutWithoutSpare"
)

// staticCapacity is core's gate for static NodePools.
var staticCapacity = featuregate.Feature(options.StaticCapacityFeatureGate.Name)

// Features returns the feature gates of this provider and of core. Core's own flag ignores wrong names. The gates have
// core's defaults and stages, except StaticCapacity: TenantClusters have static pools.
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

// CoreGates returns core's feature gates in core's own form.
func CoreGates(enabled func(featuregate.Feature) bool) options.FeatureGates {
	var text []string
	for _, gate := range options.KarpenterFeatureGates {
		text = append(text, fmt.Sprintf("%s=%t", gate.Name, enabled(featuregate.Feature(gate.Name))))
	}
	// Core's names and booleans are valid.
	gates, _ := options.ParseFeatureGates(strings.Join(text, ","))
	// TerminateFirstDrift would delete nodes that are not recorded, and keep static pools from free servers.
	gates.TerminateFirstDrift = gates.TerminateFirstDrift && !enabled(RolloutWithoutSpare)
	return gates
}
