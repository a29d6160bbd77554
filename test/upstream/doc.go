// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstream runs Karpenter's own regression suite against this provider, on a sandbox. The suite is the one in
// sigs.k8s.io/karpenter/test/suites/regression, built as it is from the module that this project depends on, and takes
// nothing from here but a default node class and a default pool. What it finds is in docs/conformance.md.
package upstream
