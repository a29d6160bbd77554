// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protection keeps a tenant's users from changing what the platform has made for the tenant: its generated
// NodePools and MetalNodeClasses, and while device classes are in sync, its DeviceClasses. It does so by
// ValidatingAdmissionPolicies in the tenant's own API server. These need no server that the tenant's API server would
// have to reach, no certificate, and cannot be down; and they hold back nothing but what they name.
//
// Whoever may write policies in the tenant, as its administrator may, can take them away; the provider puts them back.
package protection
