// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protection rejects changes of a tenant's users to what the platform has written for the tenant: its generated
// NodePools and MetalNodeClasses, and while device classes are in sync, its DeviceClasses. It does so by
// ValidatingAdmissionPolicies in the tenant's own API server. Unlike a webhook these need no endpoint that the tenant's API
// server can reach and no certificate, cannot be down, and affect only the objects that they name.
//
// A user that may write policies in the tenant, such as its administrator, can delete them. The provider restores them.
package protection
