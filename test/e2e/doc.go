// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the system as its users see it: through the two API servers, kubectl, and our programs, which it stops and kills. It
// knows nothing of what is inside. It runs on a sandbox of its own; with E2E_MANAGEMENT_KUBECONFIG and E2E_TENANT_KUBECONFIG set, on the
// clusters that those name, which have the charts, the reference fleet of examples/ and nodes of their own (docs/testing.md).
package e2e
