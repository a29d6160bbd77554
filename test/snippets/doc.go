// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package snippets applies the YAML of the reference's pages, each in a test named after the page, with only apiVersion
// and the surroundings of fragments changed, and checks that it does what the page says. The manager and the provider
// are the real ones, on a real API server that is management and tenant cluster at once; the hosts are objects.
package snippets
