// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics knows what the manager tells Prometheus of hosts and Machines: the names, the labels, and what they
// are made from. Gauges are counted when they are asked for, from the inventory and the cache, so nothing has to be kept
// up to date and a series goes with what it counts. Counters and durations come of a watch on Machines.
//
// Labels are types, states, phases and reasons; never a host or a Machine. docs/metrics.md lists every metric.
package metrics
