// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package view is the model of the fleet that people look at: what each server does, what each NodeType has left, why
// a pod, a NodeClaim, a Machine or a server waits, how long each step took, and which problems there are, with the
// command that solves each. It builds the model from a Snapshot of the management cluster and, where it has access,
// of a tenant cluster. Live is a Snapshot that follows the clusters. The package uses the inventory of the manager
// and the explanations of the provider, so its words match their events. It writes nothing and reads no Secret.
package view
