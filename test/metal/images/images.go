// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package images names the container images that test servers have on their disks, for there is no registry that they
// could fetch from. Each is one static program, in the directory of that name.
package images

// The programs.
const (
	// Pause holds the namespaces of a pod.
	Pause = "pause"
	// Workload is what a test runs on a node: it says where it runs, and with what, and goes on until it is stopped.
	Workload = "workload"
	// DevicePlugin advertises the accelerators of a server.
	DevicePlugin = "device-plugin"
)

// Programs returns the names of all.
func Programs() []string { return []string{Pause, Workload, DevicePlugin} }

// Reference returns the name under which a pod finds the image of a program. A pod must not insist on pulling it.
func Reference(program string) string { return "metal.test/" + program + ":1" }
