// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo tells the story of the main job on a running sandbox: pods that ask for GPUs are created, servers are
// claimed for them, installed and joined, the pods run, and when they are deleted the servers go back to the pool.
// It only creates and deletes what a tenant would, and watches the rest happen.
package demo
