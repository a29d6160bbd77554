// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstream runs Karpenter's own regression suite against this provider, on a sandbox. The suite is
// sigs.k8s.io/karpenter/test/suites/regression, built unchanged from the module that this project depends on. Only the
// default node class and the default pool are ours. docs/conformance.md has the results.
package upstream
