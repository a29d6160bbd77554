// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli knows how the binaries of this project talk to whoever starts them: sections of flags, the environment
// variables that stand in for flags, logging, version, kubeconfigs, the end by signal, and errors that are one
// sentence. What a binary does with its flags it does not know.
package cli
