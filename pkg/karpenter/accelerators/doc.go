// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accelerators keeps pods that request no accelerator off new servers with accelerators.
//
// Core picks the cheapest type that fits, and a GPU server fits every small pod once everything else is taken. Core has
// no option to exclude a type in that case, but it respects node affinity: types with accelerators have the label
// karpenter.metal3.io/accelerated as a requirement, no other type has it, and pods that request none require, in what core
// reads, that it does not exist. Core treats the topology of volumes the same way.
//
// The placeholder pods of a capacity buffer are in no list: core builds them from a PodTemplate or a workload that it gets
// by name, so the requirement is added there too. Pods with resource claims are not restricted, because only device classes
// define what a claim requests; the manager refuses the server unless core has allocated its devices to them.
//
// This is safe because core never writes a pod or a template back: it evicts and deletes by name. Nodes never have the
// label, so pods still fit existing nodes, with accelerators or without.
package accelerators
