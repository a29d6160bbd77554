// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package images names the container images on the disks of test servers, which have no registry. Each is one static
// program, in the directory of that name.
package images

// The programs.
const (
	// Pause holds the namespaces of a pod.
	Pause = "pause"
	// Workload logs its node and its accelerators, and runs until it is stopped.
	Workload = "workload"
	// DevicePlugin advertises the accelerators of a server.
	DevicePlugin = "device-plugin"
)

// Programs returns the names of all.
func Programs() []string { return []string{Pause, Workload, DevicePlugin} }

// Reference returns the name under which a pod finds the image of a program. A pod must not insist on pulling it.
func Reference(program string) string { return "metal.test/" + program + ":1" }
