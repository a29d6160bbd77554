// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metal tests that our manager, baremetal-operator and Ironic register, inspect, install, clean and release
// servers. Only the servers and their BMCs are emulated. The tests run by `make e2e-metal`, which gets Ironic from
// Debian; without it they are skipped, and say so.
package metal
