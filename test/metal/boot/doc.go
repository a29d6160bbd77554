// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package boot is what all programs share that boot a server, whatever it is made of: a rack of emulated servers runs them
// as its boot command. It knows what a rack tells them, and what is in the directory of a server.
package boot
