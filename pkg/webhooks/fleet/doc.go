// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet knows what there is in the management cluster, for admission to ask: objects by name and by what they
// refer to, from caches with indexes, and servers by label, from the inventory that pkg/hosts keeps. It asks the API
// server nothing while a request waits.
package fleet
