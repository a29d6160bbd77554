// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network moves servers between the parking lot, the network of servers that nobody has, and the networks of
// tenants. It is a reference for network controllers: it owns the hook v1alpha1.NetworkHook and drives an HTTP
// endpoint in front of the switches.
//
// The endpoint is told what is to be, not what to do, so that everything can be said again:
//
//	PUT <endpoint>/servers/<namespace>/<name of the BareMetalHost>
//	{"network": "vlan:100", "macs": ["00:00:5e:00:53:01"], "tenant": "<namespace of the Machine>"}
//
// network is vlan:N, vni:N or id:NAME, and "" for the parking lot. The endpoint answers
//
//	200 {"network": "vlan:100"}   the server is in that network, and in no other
//	202                           it is being moved; ask again
//	4xx                           it will not be moved; the body says why
//	anything else                 something went wrong; ask again
//
// Only a 200 that repeats the network is a confirmation. What was asked for last holds: an endpoint that moves servers
// in its own time must drop what it was asked for before. The controller never has two requests for one server under
// way.
package network
