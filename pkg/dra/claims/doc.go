// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claims syncs ResourceClaims and ResourceClaimTemplates between a tenant and the host.
//
// CopyController copies the tenant's objects to the host. A copy and its origin hold each other by a finalizer. The
// origin's is written before the copy is created, and removed once the copy is gone: no copy loses its origin, and no
// claim leaves the tenant while a pod on the host still uses it. The copy has its own from its creation, so that nobody
// deletes it unnoticed.
//
// GeneratedController shows the tenant the claims that the host's resourceclaim controller generates from templates, for
// the host's copies of the tenant's pods, under the names that the tenant's pods expect. If the tenant has a resourceclaim
// controller of its own, that has generated a claim for its pod already, and only the status is mirrored. If it has not,
// GeneratedController creates the claim in the tenant too, owned by the pod.
package claims
