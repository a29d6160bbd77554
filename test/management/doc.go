// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package management is a management cluster for tests that are about numbers: a real API server, the real manager as
// a process of its own, which can be measured, and Metal3 played by the test, which is as fast as the API server.
package management
