// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package management is a management cluster for measurements: a real API server, and the real manager as a separate
// process. The test emulates Metal3, as fast as the API server allows.
package management
