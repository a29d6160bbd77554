// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package examples holds the manifests that the documentation shows and that the demo and the tests apply, so that
// what is written is what runs.
package examples

import "embed"

// ReferenceFleet is the fleet of the reference documentation: two servers each of H100, A100 and CPU only, of which
// one belongs to another tenant.
//
//go:embed reference-fleet/*.yaml
var ReferenceFleet embed.FS

// Files in ReferenceFleet.
const (
	// FleetFile lists the emulated servers of the sandbox.
	FleetFile = "reference-fleet/fleet.yaml"
	// ManagementFile is for the management cluster: an OSImage and a NodeProvider with three NodeTypes.
	ManagementFile = "reference-fleet/management.yaml"
	// TenantFile is for the tenant cluster: a MetalNodeClass and a dynamic NodePool.
	TenantFile = "reference-fleet/tenant.yaml"
	// WorkloadFile is for the tenant cluster: pods that ask for GPUs, and one that asks for none.
	WorkloadFile = "reference-fleet/workload.yaml"
)
