// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator is what the programs of this project share: commands with flags and an environment variable for each,
// logging, kubeconfigs, the wait for API servers, controller managers with their leases and probes, and errors that are
// one sentence.
package operator
