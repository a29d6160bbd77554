// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package packing knows how kube-scheduler has to be configured so that servers with accelerators become empty.
//
// The scheduler's own defaults put a pod on the node that has the most left. Eight pods with one GPU each then occupy
// two servers of eight GPUs half, neither ever becomes empty, and neither goes back to the pool. The configuration here
// prefers the node that has the least left of what the pod asks for. It is a preference: what a pod requires stays
// required, and pods that ask for none of the resources are placed by the scheduler's other rules.
package packing
