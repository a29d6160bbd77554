// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ipam allocates addresses to Machines and sweeps up those whose Machine is gone. An address that is taken is an
// IPAddress named for its network and itself, so that the API server sees to it that nobody has one twice, however many
// managers are running and however old their caches are.
package ipam
