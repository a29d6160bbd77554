// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gangs places pending pods that must run in one topology domain, in a domain that has capacity for all of them.
//
// Pods with a required affinity to each other by nvlink-domain, rack or the like may run in any domain, but all in the same
// one. Karpenter's core takes for the first of them any domain that has a server, and the others must follow it, whether or
// not there is capacity. So the pending pods that core lists get a requirement, in memory only, for a domain that all of
// them fit into: the cheapest, and of those the one with the least capacity left over. Running pods have fixed the domain
// already; core follows them by itself, and nothing is added.
//
// This is Kubernetes' affinity, not gang scheduling: if no domain has capacity for all, as many as possible get a server,
// in the domain that most of them fit into, and the rest stays pending.
package gangs
