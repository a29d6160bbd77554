// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster gives admission a view of the management cluster: objects by name and by what they refer to, from
// caches with indexes, and servers by label, from the inventory. No request waits for the API server.
package cluster
