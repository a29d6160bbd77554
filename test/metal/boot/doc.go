// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package boot has what the programs that boot a server share. A rack of emulated servers runs them as its boot
// command, and passes the server in environment variables and in the server's directory.
package boot
