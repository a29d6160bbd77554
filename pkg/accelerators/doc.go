// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accelerators knows which pods must not get a server with accelerators, and tells Karpenter's core of it.
//
// Core picks the cheapest type that fits, and a GPU server fits every small pod once everything else is taken. It has
// no hook for "never, even when it is the only type". What it has is node affinity: types with accelerators carry the
// label karpenter.metal3.io/accelerated as a requirement, no other type has it, and pods that ask for none require in
// core's memory that it does not exist. Core treats the topology of volumes the same way.
//
// The placeholder pods of a capacity buffer are in no list: core makes them from a PodTemplate or a workload that it gets
// by name, so the requirement is in what it gets. And resource claims: only their device classes know what they ask for, so
// pods that have some are not kept off here, but the manager refuses the server unless core has given them its devices.
//
// That is safe because core reads the pods to be scheduled by listing them and never writes a pod or a template back: it evicts
// and deletes by name. Nodes never carry the label, so pods still fit nodes that are there, with accelerators or without.
package accelerators
