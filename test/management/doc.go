// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package management is a management cluster for tests that are about numbers: a real API server, the real manager as
// a separate process that can be measured. The test plays Metal3, as fast as the API server allows.
package management
