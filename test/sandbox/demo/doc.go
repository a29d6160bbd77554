// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo shows the main job on a running sandbox: pods that request GPUs are created, servers are claimed for
// them, installed and joined, the pods run, and when they are deleted the servers are released. It creates and deletes
// only the objects of a tenant, and watches the rest.
package demo
