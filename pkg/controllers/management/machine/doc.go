// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine implements the lifecycle of a Machine: it gets a server, has an image installed on it, becomes a
// node, and releases the server after cleaning. It is the only writer of Machine.status and of the claims on
// BareMetalHosts.
//
// The life is a state machine. stateOf reads the state only from the Machine and its host, never from memory, so that a
// run that was killed at any write is continued:
//
//	pending ─► claiming ─► waitingForHooks ─► claimed ─► provisioning ─► provisioned ─► joined
//	   ▲           │                             │             │          └── switching ──┘
//	   └───────────┘ taken                       └─────────────┴──► errored (and back, when the server recovers), hostLost
//
//	interrupted, restored ─► claiming, or pending if no server is claimed
//	any from waitingForHooks on ─► gaveUp, if it gets no further (progress.go) or its server is in error for good (replacing.go)
//	any of them ─► releasing, once the Machine is being deleted
//
// What is installed follows from a plan (plan.go, resolve.go), which is validated for the chosen server before that is
// claimed, so that no server is claimed for a wrong property, template or key. Hooks (hooks.go) hold a Machine before
// anything is installed and before its server is released.
//
// Two rules keep a host from being claimed twice. The choice is written on the Machine, with the finalizer, before the host is
// touched, and both writes are compare-and-swap on the resource version: one decides which host a Machine wants, the
// other which Machine a host belongs to. The status names the host once it is claimed. What the two leave behind in the worst
// case, a host whose consumer does not want it or is gone, the orphan sweep (orphanhosts.go, userdata.go) gives back.
package machine
