// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package view is the model of the fleet that people look at: what each server does, what each NodeType has left, why a pod, a
// NodeClaim, a Machine or a server waits, how long each step took, and what is wrong with the command that mends it. It is made of
// a Snapshot of the management cluster and, where there is access to it, of a tenant; Live is one that follows them. It uses the
// inventory of the manager and the explanations of the provider, so that its words are those of their events. It writes nothing and
// reads no Secret.
package view
