// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metal shows that servers are registered, inspected, installed, cleaned and given back by real parts: our manager,
// baremetal-operator and Ironic. Only the servers are emulated, from the wire of their BMCs on. The tests run by
// `make e2e-metal`, which gets Ironic from Debian; without it they are skipped, and say so.
package metal
