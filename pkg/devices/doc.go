// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices knows which devices DRA drivers publish on a server, by what its NodeType says of them, and what is
// wrong with what it says. It knows neither Karpenter nor a cluster.
package devices
