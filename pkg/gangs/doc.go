// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gangs knows which pending pods must run in one topology domain, and picks a domain that has room for all of
// them.
//
// Pods that have a required affinity to each other by nvlink-domain, rack or the like may run in any domain, but all in
// the same. Karpenter's core takes for the first of them any domain that has a server, and the others must follow it
// there, whether or not there is room. So what core lists as pending pods is told, in core's memory only, the domain
// that all of them fit into: the cheapest, and of those the one that is filled best. Pods that run already have chosen
// the domain; core knows how to follow them, and nothing is told then.
//
// It is Kubernetes' affinity still, and no gang scheduling: if no domain has room for all, as many as possible get a
// server, in the domain with the most room, and the rest waits.
package gangs
