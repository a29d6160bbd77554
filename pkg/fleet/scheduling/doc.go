// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduling is the queue of Machines that wait for a server, an address, a quota or the correction of an object.
// It works as the queue of kube-scheduler does: a Machine is active, or unschedulable with the events that could make it
// schedulable; an event moves the Machines that it could help to active, and Pop returns those in order.
package scheduling
