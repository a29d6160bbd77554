// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package timelimits knows how long Karpenter's core waits for a server, and makes it wait for as long as the server has
// a Machine that the manager has not given up.
//
// Core deletes a NodeClaim whose node has not registered 15 minutes after it was launched, and gives up on a replacement
// that is not ready after 10 minutes. Neither limit can be set. Both count from a time that core has written down, the
// last transition of the condition Registered and the time of the disruption command, and both are looked at by a
// controller that first reads the NodeClaim that it was woken for. That read is the place to say that the time has come
// forward: whoever decides reads it there and then, so it makes no difference how long the provider was down, which
// controller is first after a restart, or whether a write got lost. Nothing is written for it.
//
// What is decided with is the cache of Machines. A cache that is behind, or an API server that does not answer, makes
// core wait, and never makes it give up: that is the manager's to say, by the condition GivenUp.
package timelimits
