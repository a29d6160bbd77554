// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package snippets applies the YAML of the reference's pages, each in a test named after the page, with only apiVersion
// and the context of fragments changed, and checks the documented effect. Manager and provider are real, on a real API
// server that is management and tenant cluster at once; the hosts are objects.
package snippets
