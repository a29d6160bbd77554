// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network moves servers between the parking lot, the network of unclaimed servers, and the networks of tenants. It is a
// reference for network controllers: it owns the hook v1alpha1.NetworkHook and drives an HTTP endpoint in front of the switches.
//
// A request states the desired network and not an action, so it can be repeated:
//
//	PUT <endpoint>/servers/<namespace>/<name of the BareMetalHost>
//	{"network": "vlan:100", "macs": ["00:00:5e:00:53:01"], "tenant": "<namespace of the Machine>"}
//
// network is vlan:N, vni:N or id:NAME, and "" for the parking lot. The endpoint answers
//
//	200 {"network": "vlan:100"}   the server is in that network, and in no other
//	202                           it is being moved; repeat the request
//	4xx                           it will not be moved; the body is the reason
//	anything else                 an error; repeat the request
//
// Only a 200 that repeats the network is a confirmation. The last request is valid: an endpoint that works
// asynchronously must drop earlier ones. The controller never sends two requests for one server at a time.
package network
