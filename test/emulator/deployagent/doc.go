// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deployagent emulates the agent of the deploy ramdisk, with the protocol of ironic-python-agent.
//
// It looks its server up by MAC address, sends heartbeats, and executes the commands of its HTTP API: it lists and
// executes clean and deploy steps, writes an image and a config drive to the emulated disk, and powers the server off.
// A server then boots the image that Ironic sent.
package deployagent
