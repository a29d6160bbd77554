// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package karpenter

import (
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

// Feature gates of core.
const (
	nodeRepair       featuregate.Feature = "NodeRepair"
	reservedCapacity featuregate.Feature = "ReservedCapacity"
	spotToSpot       featuregate.Feature = "SpotToSpotConsolidation"
	nodeOverlay      featuregate.Feature = "NodeOverlay"
	staticCapacity   featuregate.Feature = "StaticCapacity"
	capacityBuffer   featuregate.Feature = "CapacityBuffer"

	terminateFirstDrift       featuregate.Feature = "TerminateFirstDrift"
	terminateFirstRepair      featuregate.Feature = "TerminateFirstRepair"
	podDeletionCostManagement featuregate.Feature = "PodDeletionCostManagement"
)

// Features are this provider's and core's, which has a flag for its own that says nothing of a wrong name. They have core's defaults and
// stages but for StaticCapacity: TenantClusters have static pools.
func Features() map[featuregate.Feature]featuregate.FeatureSpec {
	return map[featuregate.Feature]featuregate.FeatureSpec{
		GangPlacement:       {Default: true, PreRelease: featuregate.Beta},
		RolloutWithoutSpare: {Default: true, PreRelease: featuregate.Beta},

		nodeRepair:       {PreRelease: featuregate.Alpha},
		reservedCapacity: {Default: true, PreRelease: featuregate.Beta},
		spotToSpot:       {PreRelease: featuregate.Alpha},
		nodeOverlay:      {PreRelease: featuregate.Alpha},
		staticCapacity:   {Default: true, PreRelease: featuregate.Beta},
		capacityBuffer:   {PreRelease: featuregate.Alpha},

		terminateFirstDrift:       {PreRelease: featuregate.Alpha},
		terminateFirstRepair:      {PreRelease: featuregate.Alpha},
		podDeletionCostManagement: {PreRelease: featuregate.Alpha},
	}
}

// CoreGates are core's, in core's own form.
func CoreGates(enabled func(featuregate.Feature) bool) options.FeatureGates {
	return options.FeatureGates{
		NodeRepair: enabled(nodeRepair), ReservedCapacity: enabled(reservedCapacity), SpotToSpotConsolidation: enabled(spotToSpot),
		NodeOverlay: enabled(nodeOverlay), StaticCapacity: enabled(staticCapacity), CapacityBuffer: enabled(capacityBuffer),
		TerminateFirstDrift: enabled(terminateFirstDrift), TerminateFirstRepair: enabled(terminateFirstRepair),
		PodDeletionCostManagement: enabled(podDeletionCostManagement),
	}
}
