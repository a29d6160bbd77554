// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package neighbours tests what is shared with other projects in a management cluster: names of kinds, the commands of the
// docs, and BareMetalHosts. docs/neighbours.md is its page.
package neighbours
