// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deployagent is the agent of the deploy ramdisk, as Ironic knows it: the protocol of ironic-python-agent.
//
// It looks its server up by MAC address, heartbeats, and does what it is told over its own HTTP API: it lists and executes
// clean and deploy steps, writes an image and a config drive to the server's disk, and powers the server off. It does to the
// disk of an emulated server what the real one does to a real disk, so that what a server boots is what Ironic gave it.
package deployagent
