// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ai takes the steps of CNCF's Kubernetes AI Conformance that are about servers that come and go, as KAR-0053 and KAR-0055 of
// kubernetes-sigs/ai-conformance describe them (docs/ai-conformance.md). The steps use the tenant's API alone. It runs on a sandbox of its
// own, or on clusters that the environment names (docs/testing.md), which must have the servers of test/e2e/servers; on kind by
// `make ai-conformance`.
package ai
