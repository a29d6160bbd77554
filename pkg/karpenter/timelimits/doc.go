// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package timelimits makes Karpenter's core wait for a server for as long as its Machine has not been given up.
//
// Core deletes a NodeClaim whose node has not registered 15 minutes after it was launched, and gives up on a replacement
// that is not ready after 10 minutes. Neither limit can be set. Both count from a time that core stores, the last
// transition of the condition Registered and the creation of the disruption command, and in both cases the controller that
// compares it first reads the NodeClaim of its request. That read moves the time: core compares it there and then, so it
// makes no difference how long the provider was down, which controller is first after a restart, or whether a write was
// lost. Nothing is written for it.
//
// Machines are read from a cache. A cache that is behind, or an API server that does not answer, makes core wait, and never
// makes it give up: that is decided by the manager, in the condition GivenUp.
package timelimits
